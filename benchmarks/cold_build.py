"""How long does the first build of an op take, against the peers' builds of the same op?

    python benchmarks/cold_build.py [--repeat 5] [--sglang DIR] [--no-cuda]

- CUDA: `add_constant` for sm_90a through kjit, against SGLang 0.5.23's own kernel of that name with the flags that its
  JIT gives to nvcc. SGLang is fetched from PyPI (`pip download --no-deps`) into the user's cache folder and only its
  `kernels/jit` folder is unpacked; `--sglang DIR` uses one that is unpacked already. Needs nvcc, and no GPU.
- CPU: kjit against `tvm_ffi.cpp.load_inline` of the same op.

For kjit everything counts that a user waits for: look-up, generated unit, ninja, compilers, link, publication, and its
own imports; for SGLang the compiler and the linker alone. "First" is with an empty cache: compilers are asked for their
versions, and the code that all modules share is compiled. "Next" is a further op with that cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import common

VERSION = "0.5.23"
_ARCH = "9.0a"


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sglang", type=Path, help=f"a folder with the unpacked sglang {VERSION}")
    parser.add_argument("--no-cuda", action="store_true")
    options = parser.parse_args(args)
    common.print_machine()

    medians = common.alternate(
        {
            "kjit, first": lambda: _kjit("cpu", "first"),
            "kjit, next": lambda: _kjit("cpu", "next"),
            "load_inline": lambda: common.in_new_process("cold_build", "time_load_inline"),
        },
        options.repeat,
    )
    common.print_sides("CPU: build and load add_constant", medians, "s", "load_inline")

    missing = common.nvcc_missing()
    if options.no_cuda or missing is not None:
        print(f"\nCUDA: left out: {missing or '--no-cuda'}")
        return
    sglang = options.sglang.resolve() if options.sglang else _fetch_sglang()
    medians = common.alternate(
        {
            "kjit, first": lambda: _kjit("cuda", "first"),
            "kjit, next": lambda: _kjit("cuda", "next"),
            f"SGLang {VERSION}": lambda: _time_sglang(sglang),
        },
        options.repeat,
    )
    common.print_sides("CUDA: build add_constant for sm_90a", medians, "s", f"SGLang {VERSION}")


def _kjit(target: str, which: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o700)
        if which == "next":
            common.in_new_process("cold_build", "time_kjit", target, 7, KJIT_CACHE_DIR=cache)
        return common.in_new_process("cold_build", "time_kjit", target, 8, KJIT_CACHE_DIR=cache)


def time_kjit(target: str, constant: int) -> float:
    """Seconds for one build; for the CPU with loading, as `load_inline` does that too. Runs in a process of its own."""
    import tvm_ffi  # noqa: F401 (its 1.5 s of importing torch belong to neither side)

    begin = time.perf_counter()
    from kjit.runtime.load import ensure_built, load_variant
    from kjit.spec import Target, Variant

    if target == "cpu":
        load_variant(Variant(common.add_constant(constant).only("cpu"), Target.cpu()))
    else:
        ensure_built(Variant(common.add_constant(constant).only("cuda"), Target.cuda(_ARCH)))
    return time.perf_counter() - begin


def time_load_inline() -> float:
    """Seconds for one `load_inline` into an empty folder. Runs in a process of its own."""
    import tvm_ffi.cpp

    with tempfile.TemporaryDirectory() as folder:
        source = common.TVM_FFI_CPU.replace("CONSTANT", "8")
        begin = time.perf_counter()
        tvm_ffi.cpp.load_inline(
            "add_constant", cpp_sources=source, functions="add_constant", extra_cflags=["-O3"], build_directory=folder
        )
        return time.perf_counter() - begin


def _fetch_sglang() -> Path:
    """Download SGLang's wheel, unpack its JIT kernels outside of this repository, and return the folder."""
    import platformdirs

    root = Path(platformdirs.user_cache_dir("kjit-benchmarks")) / f"sglang-{VERSION}"
    if (root / "sglang" / "kernels" / "jit").is_dir():
        return root
    root.mkdir(parents=True, exist_ok=True)
    print(f"\nfetching sglang {VERSION} from PyPI into {root}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(root), f"sglang=={VERSION}"], check=True)
    (wheel,) = root.glob("sglang-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root, [name for name in archive.namelist() if name.startswith("sglang/kernels/jit/")])
    wheel.unlink()
    return root


def _time_sglang(root: Path) -> float:
    """Seconds that nvcc and the linker take for SGLang's `add_constant`."""
    from kjit.build.toolchain import find_cuda, find_cxx, tvm_ffi_include, tvm_ffi_library

    jit = root / "sglang" / "kernels" / "jit"
    (kernel,) = (jit / "csrc").rglob("add_constant.cuh")
    cuda, cxx = find_cuda(), find_cxx()
    headers = ("container/tensor.h", "dtype.h", "error.h", "extra/c_env_api.h", "function.h")
    unit = "".join(f"#include <tvm/ffi/{header}>\n" for header in headers)
    unit += f'#include "{kernel}"\n'
    unit += "namespace sglang {\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(add_constant, (add_constant<8>));\n}\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cuda.cu").write_text(unit)
        flags = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DSGL_CUDA_ARCH=900"]
        flags += ["-gencode=arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC", "-ccbin", str(cxx.path)]
        flags += [f"-I{tvm_ffi_include()}", f"-I{jit / 'include'}"]
        compile_ = [cuda.nvcc.path, *flags, "-c", folder / "cuda.cu", "-o", folder / "cuda.o"]
        libraries = [tvm_ffi_library(), cuda.cudart]
        link = [cxx.path, "-shared", folder / "cuda.o", *libraries, "-o", folder / "add_constant.so"]
        begin = time.perf_counter()
        for command in (compile_, link):
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"SGLang's add_constant does not build: {done.stderr}")
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
