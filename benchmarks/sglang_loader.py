"""SGLang's own `load_jit`, run from an unpacked wheel, for warm_load.py.

Its package imports a whole inference engine. So the packages above the JIT are made empty here, and of the one module
that the JIT asks for a fact about the machine (`sglang.srt.utils.common`) there is a stand-in with that fact.
Everything between the call of `load_jit` and the loaded module is SGLang's code. It needs the package `msgspec`.
"""

from __future__ import annotations

import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

from common import clock, sglang_root


def _import_loader(root: Path) -> Any:
    """The module `sglang.kernels.jit.utils.compile.loader`."""
    for name in ("sglang", "sglang.kernels", "sglang.srt", "sglang.srt.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    facts = types.ModuleType("sglang.srt.utils.common")
    facts.__dict__.update(is_cuda=lambda: True)
    sys.modules["sglang.srt.utils.common"] = facts

    # It links with the libraries in its lib64, which the CUDA of PyPI does not have.
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")
    import torch

    if not torch.cuda.is_available():
        # The architecture is part of its key: without a GPU it is that of an H100.
        torch.cuda.current_device = lambda: 0
        torch.cuda.get_device_capability = lambda device=None: (9, 0)  # noqa: ARG005
    from sglang.kernels.jit.utils.compile import loader

    return loader


def _load(loader: Any, constant: int) -> None:
    loader.load_jit(
        "add_constant",
        str(constant),
        cuda_files=["elementwise/add_constant.cuh"],
        cuda_wrappers=[("add_constant", f"add_constant<{constant}>")],
    )


def load_with_sglang(modules: int) -> tuple[float, float]:
    """Seconds for the first module and for all others. Runs in a process of its own; imports are not counted."""
    import tvm_ffi  # noqa: F401

    loader = _import_loader(sglang_root())
    begin = clock()
    _load(loader, 0)
    first = clock() - begin
    begin = clock()
    for constant in range(1, modules):
        _load(loader, constant)
    return first, clock() - begin


def fill_sglang_cache(modules: int) -> float:
    """Only to fill the cache: one module is compiled, and published by SGLang under the keys of the others too.

    A look-up reads no library, so that it takes as long with a copy of another one as with its own.
    """
    import tvm_ffi  # noqa: F401

    loader = _import_loader(sglang_root())
    build, scan = loader.ninja.build, loader.ninja.scan_dependencies
    made: list[Path] = []
    dependencies: list[Any] = []

    def build_once(*, spec: Any, build_dir: Path, build_file: str) -> Path:
        if not made:
            library: Path = build(spec=spec, build_dir=build_dir, build_file=build_file)
            dependencies.extend(scan(build_dir))
            made.append(Path(shutil.copy(library, build_dir.parents[2] / "made.so")))
            return library
        build_dir.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(made[0], build_dir / f"{spec.module_name}.so"))

    loader.ninja.build = build_once
    loader.ninja.scan_dependencies = lambda _: dependencies
    for constant in range(modules):
        _load(loader, constant)
    return 0.0
