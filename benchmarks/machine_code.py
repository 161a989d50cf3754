"""The machine code that NVRTC makes of kjit's kernels, against nvcc's.

    python benchmarks/machine_code.py [--ops norm,scale] [--all] [--jobs N]

Every kernel of the reference ops (`kjit/ops`) and of an op of each pattern as `kjit new` writes it is compiled for
sm_90a both ways: in bfloat16 where there is a choice, with `--all` in every variant. For each kernel that differs it
prints registers, spilled bytes and instructions (padding left out; needs CUDA's disassembler), and then how many are
alike. Needs nvcc and NVRTC, and no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import common

import kjit.ops
from kjit import env
from kjit.engine.compile.compile import compile_variant
from kjit.engine.diagnostics.machine_code import read_library
from kjit.engine.toolchain.cuda_tools import find_tool
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError
from kjit.runtime.declared import declared_in, variants_of
from kjit.spec import Target, Variant

_TARGET = Target.cuda("9.0a")
_ANONYMOUS = re.compile(r"\{anonymous\}::|\(anonymous namespace\)::|_GLOBAL__N__\w+::")
_SCAFFOLDED = {
    "scale": "Scale<bf16_t>::run",
    "rms_norm": "RmsNorm<bf16_t>::run",
    "take_rows": "TakeRows<bf16_t>::run",
}


@dataclass(frozen=True)
class Numbers:
    """The compared figures of a kernel; instructions and code are empty without a disassembler."""

    registers: int
    spilled: int
    instructions: int | None
    code: tuple[str, ...]


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", help="some of the ops, with commas between")
    parser.add_argument("--all", action="store_true", help="every variant, not one of each module")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compiles at the same time")
    options = parser.parse_args(args)
    common.print_machine()
    chosen = options.ops.split(",") if options.ops else None
    with tempfile.TemporaryDirectory() as folder:
        found = [
            (op, variant)
            for op, variant in (*_reference(every=options.all), *_scaffolded(Path(folder)))
            if chosen is None or op in chosen
        ]
        toolchains = {compiler: _toolchain(compiler) for compiler in ("nvcc", "nvrtc")}
        with ThreadPoolExecutor(options.jobs) as pool:
            sides = {
                compiler: list(pool.map(lambda item, t=toolchain: _numbers(item[1], t), found))
                for compiler, toolchain in toolchains.items()
            }
    _print([op for op, _ in found], sides["nvcc"], sides["nvrtc"])


def _reference(*, every: bool) -> Iterator[tuple[str, Variant]]:
    for name in sorted(each.name for each in pkgutil.iter_modules(kjit.ops.__path__)):
        for declared in declared_in(vars(importlib.import_module(f"kjit.ops.{name}"))):
            specs = [spec for spec in declared.specs() if spec.cuda_files]
            narrow = [spec for spec in specs if "bf16_t" in spec.args]
            for spec in specs if every else (narrow or specs)[:1]:
                for variant in variants_of(spec, [_TARGET]):
                    yield spec.name, variant


def _scaffolded(folder: Path) -> Iterator[tuple[str, Variant]]:
    for op, symbol in _SCAFFOLDED.items():
        common.write_scaffold(folder / op, f"kernels_{op}", op, "--dtypes", "bf16")
        (source,) = (folder / op).rglob(f"{op}.cuh")
        yield op, Variant(common.Kernel(op, source.name, symbol, source.parent).spec, _TARGET)


def _toolchain(compiler: str) -> Toolchain:
    os.environ[env.CUDA_COMPILER] = compiler
    return Toolchain.for_target(_TARGET)


def _numbers(variant: Variant, toolchain: Toolchain) -> dict[str, Numbers]:
    """The compared figures of each kernel of a module, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        built = compile_variant(variant, toolchain, Path(folder))
        try:
            find_tool("cuobjdump")
            find_tool("nvdisasm")
            kernels = {kernel.name: kernel for kernel in read_library(built.library, built.resources)}
        except ToolchainError:
            kernels = {}
    found = {}
    for each in built.resources:
        kernel = kernels.get(each.kernel)
        texts = tuple(
            text for one in (kernel.instructions if kernel else ()) if (text := one.text) and one.opcode != "NOP"
        )
        name = _ANONYMOUS.sub("", each.kernel)
        found[name] = Numbers(each.registers, each.spill_stores, len(texts) if kernel else None, texts)
    return found


def _print(ops: Sequence[str], nvcc: Sequence[dict[str, Numbers]], nvrtc: Sequence[dict[str, Numbers]]) -> None:
    print(f"\n  {'registers':>13}  {'spilled':>13}  {'instructions':>21}  kernel that differs: nvcc, NVRTC")
    kernels = alike = 0
    shares = []
    for op, before, now in zip(ops, nvcc, nvrtc, strict=True):
        for name in sorted(before.keys() | now.keys()):
            kernels += 1
            old, new = before.get(name), now.get(name)
            if old is None or new is None:
                print(f"  {op}: {name} is of {'NVRTC' if old is None else 'nvcc'} alone")
                continue
            if old.instructions is not None and new.instructions is not None:
                shares.append(new.instructions / old.instructions)
            if old == new:
                alike += 1
                continue
            counts = ("", "") if old.instructions is None else (f"{old.instructions}", f"{new.instructions}")
            change = f" {shares[-1] - 1:+.1%}" if old.instructions is not None else ""
            print(
                f"  {old.registers:>6} {new.registers:>6}  {old.spilled:>6} {new.spilled:>6}  "
                f"{counts[0]:>6} {counts[1]:>6}{change:>8}  {op}: {name[:90]}"
            )
    print(f"\n{kernels} kernels, {alike} of them the same either way", end="")
    print(f"; instructions {min(shares):.3f} to {max(shares):.3f} of nvcc's" if shares else "")


if __name__ == "__main__":
    main()
