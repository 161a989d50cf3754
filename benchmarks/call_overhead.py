"""The CPU time of an eager call of a wrapper, against the bare kernel and PyTorch.

    python benchmarks/call_overhead.py [--repeat 31]

All sides add a constant to one int32 element with the output given, so that the call is all that there is to measure:
the wrapper (`kjit.torch_op` over a declared op), the raw export, `torch.add(out=)`, and a `torch.library.custom_op`
around the raw export. The wrapper once more, defined while calls are recorded (`KJIT_RECORD`): of these calls all but
the first are known already. CPU tensors, and CUDA tensors where there is a GPU (launches are asynchronous: what is
measured is the CPU's part). Each in two modes: as PyTorch starts, and in `torch.inference_mode()`, as models are
served.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import common
import torch

import kjit
from kjit import env

_CONSTANT = 7
_CALLS = 500


class Exports(Protocol):
    def add_constant(self, dst: torch.Tensor, src: torch.Tensor, /) -> None: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=[torch.int32]))
def _add_constant(dtype: torch.dtype) -> kjit.Spec:
    assert dtype == torch.int32
    return common.add_constant(_CONSTANT)


@kjit.torch_op("kjit_benchmarks::add_constant", outputs=torch.empty_like)
def add_constant(src: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The wrapper, as `kjit new` writes them."""
    if out is None:
        out = torch.empty_like(src)
    _add_constant(src.dtype, device=src).add_constant(out, src)
    return out


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=31)
    options = parser.parse_args(args)
    gpu = common.has_gpu() and common.nvcc_missing() is None
    common.print_machine(gpu=gpu)
    _compare("cpu", options.repeat)
    if gpu:
        _compare("cuda", options.repeat)
    else:
        print(f"\nCUDA: left out: {common.nvcc_missing() or 'there is no GPU'}")


def _compare(device: str, repeat: int) -> None:
    src = torch.ones(1, dtype=torch.int32, device=device)
    out = torch.empty_like(src)
    export = _add_constant(src.dtype, device=src).add_constant

    @torch.library.custom_op(f"kjit_benchmarks::add_constant_{device}", mutates_args=("out",))
    def custom(src: torch.Tensor, out: torch.Tensor) -> None:
        export(out, src)

    def wrapper_call() -> None:
        add_constant(src, out=out)

    def export_call() -> None:
        export(out, src)

    def torch_call() -> None:
        torch.add(src, _CONSTANT, out=out)

    def custom_call() -> None:
        custom(src, out)

    recorded = _recorded()

    def recorded_call() -> None:
        recorded(src, out=out)

    sides = {
        "raw export": export_call,
        "kjit wrapper": wrapper_call,
        "kjit wrapper, recorded": recorded_call,
        "torch.add(out=)": torch_call,
        "torch.library.custom_op": custom_call,
    }

    for mode in (torch.enable_grad, torch.inference_mode):
        for call in sides.values():
            out.zero_()
            call()
            assert int(out) == 1 + _CONSTANT
        with mode():
            medians = common.alternate(
                {name: functools.partial(_time, call, device) for name, call in sides.items()}, repeat
            )
        title = f"{device}, {mode.__name__}: CPU time a call"
        common.print_sides(title, medians, "us", "torch.add(out=)")
        for name in ("kjit wrapper", "kjit wrapper, recorded"):
            print(f"  {name}: {medians[name] - medians['raw export']:.3f} us over the raw export")


@functools.cache
def _recorded() -> Callable[..., torch.Tensor]:
    """The wrapper, as it is in a process that records calls."""
    folder = tempfile.mkdtemp(prefix="kjit-recorded-")
    atexit.register(shutil.rmtree, folder)
    os.environ[env.RECORD] = folder
    try:
        return kjit.torch_op("kjit_benchmarks::recorded", outputs=torch.empty_like)(add_constant.__wrapped__)
    finally:
        del os.environ[env.RECORD]


def _time(call: Callable[[], None], device: str) -> float:
    """Microseconds a call, over too few calls to fill the GPU's queue."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter() - begin) * 1e6 / _CALLS


if __name__ == "__main__":
    main()
