"""Compiles of the sources of SGLang's JIT kernels, unchanged, with kjit and as SGLang does; a table of the results.

python tools/sglang_sources.py FOLDER [--only WORD ...] [--check] [--all] [--minutes 60]

The wheel is downloaded into FOLDER, which must be outside this repository, and unpacked there; nothing of it is
installed. The exports, template arguments and flags of a source come from SGLang's own wrappers: the functions that
call `load_jit` are run alone, with arguments of the types that they name. Of several guesses, the first with which a
source compiles counts. No GPU is needed, and no kernel runs.

Included are sources that use only SGLang's general headers, which kjit forwards, and no library's, and that a wrapper
compiles for NVIDIA's GPUs; `--all` includes all. A row is a source: CPU seconds of kjit (nvcc and the linker) and of
SGLang's nvcc, their ratio, and the first error. `--check` compiles without optimization, and with SGLang's commands
only sources that fail.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import kjit
from kjit.compat import sglang as compat
from kjit.engine import miss
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.locations import tvm_ffi_include
from kjit.spec import Spec, Target, Variant

RELEASE = "sglang==0.5.23"
GUESSES: dict[str, list[object]] = {
    "dtype": [torch.bfloat16, torch.int32, torch.float32, torch.float8_e4m3fn],
    "bool": [False, True],
    "int": [128, 8, 1024, 1, 512, 4, 16, 64, 256],
    "str": ["silu", "float", "bf16_t"],
    "float": [1.0],
}
# By a word in the name of an argument; those above follow.
NAMED: tuple[tuple[str, str, list[object]], ...] = (
    ("dtype", "ind|loc|pos|ids", [torch.int32, torch.int64]),
    ("dtype", "out|quant|fp8", [torch.float8_e4m3fn]),
    ("dtype", "scale", [torch.float32]),
    ("int", "hidden", [4096, 7168, 2048]),
    ("int", "rope_bytes", [128]),
    ("int", "nope_bytes", [1024]),
    ("int", "rope", [64]),
    ("int", "nope|rank", [512, 448]),
    ("int", "head_dim", [128, 512, 64]),
    ("int", "hc", [4]),
    ("int", "topk", [8]),
    ("int", "num_top_k", [1024]),
    ("int", "max_tokens", [16]),
    ("int", "num_red", [8]),
    ("int", "sm_ver", [900]),
    ("int", "^nc$", [16]),
    ("int", "hot_buffer", [4096]),
    ("int", "group", [128]),
    ("int", "world|gpus|ranks", [8, 4, 2]),
    ("int", "page", [64, 1]),
    ("int", "unroll", [4, 2, 1]),
    ("int", "quota|steps", [2]),
)
MOST_GUESSES = 8
OTHERS = re.compile(r'^\s*#\s*include\s*[<"](?:cutlass|cute|flashinfer|cublasdx)\b', re.MULTILINE)
"""Headers of other libraries."""
ARCHS = ("9.0a", "10.0a", "12.0a")
"""The architectures to try for a source: it is compiled for the first that works."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="sources with one of these words in their path"
    )
    parser.add_argument(
        "--check", action="store_true", help="only check that they compile, without optimization and times"
    )
    parser.add_argument("--all", action="store_true", help="include sources that use other headers of SGLang")
    parser.add_argument("--minutes", type=float, default=60, help="start no source after this time")
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    if folder.is_relative_to(Path(__file__).resolve().parent.parent):
        parser.error("FOLDER is in this repository, and SGLang's code does not belong there")
    kernels = _unpack(folder)
    sys.path.insert(0, str(kernels.parent.parent))
    sources = sorted((kernels / "jit" / "csrc").rglob("*.cuh")) + sorted((kernels / "jit" / "csrc").rglob("*.cu"))
    torch.cuda.current_device = lambda: 0
    sys.modules["sglang.kernels.jit.utils"] = compat  # what wrappers import in their functions
    if options.check:
        os.environ["NVCC_APPEND_FLAGS"] = "-Xcicc -O0 -Xptxas -O0"
    specs = _specs(kernels)
    if not options.all:
        sources = _candidates(sources, kernels / "jit", specs)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        os.environ["KJIT_CACHE_DIR"] = scratch  # empty: a hit would be a time of its own
        _print_table(sources, specs, kernels, Path(scratch), options)
    return 0


def _print_table(
    sources: list[Path],
    specs: dict[str, list[Spec | str]],
    kernels: Path,
    scratch: Path,
    options: argparse.Namespace,
) -> None:
    end = time.monotonic() + 60 * options.minutes
    compiled = tried = 0
    print(f"{'source':<60} {'kjit s':>7} {'SGLang s':>9} {'ratio':>6}  error")
    for source in sources:
        name = source.relative_to(kernels / "jit" / "csrc").as_posix()
        if not any(word in name for word in options.only) or time.monotonic() > end:
            continue
        tried += 1
        candidates = specs.get(name)
        if candidates is None:
            print(f"{name:<60} {'-':>7} {'-':>9} {'-':>6}  no wrapper compiles it with load_jit", flush=True)
            continue
        error, seconds, peer = _row(candidates, kernels, scratch, both=not options.check)
        compiled += seconds is not None
        ratio = f"{peer / seconds:.1f}" if seconds and peer else "-"
        print(f"{name:<60} {_number(seconds):>7} {_number(peer):>9} {ratio:>6}  {error}", flush=True)
    print(f"{compiled} of {tried} compile")


def _candidates(sources: list[Path], jit: Path, specs: dict[str, list[Spec | str]]) -> list[Path]:
    """The sources that a wrapper compiles for NVIDIA's GPUs with SGLang's general headers and no library's."""
    headers = {path: compat.INCLUDE / path.relative_to(jit / "include") for path in (jit / "include").rglob("*")}
    special = {path for path, ours in headers.items() if not ours.is_file()}
    names = {source: source.relative_to(jit / "csrc").as_posix() for source in sources}
    found = []
    for source, name in names.items():
        if name in specs and not re.search("gfx9|_hip", name):
            needed = _needed(source, jit)
            if needed.isdisjoint(special) and not any(OTHERS.search(path.read_text()) for path in needed):
                found.append(source)
    return found


def _needed(source: Path, jit: Path) -> set[Path]:
    """A source and the files of SGLang's that it includes."""
    found: set[Path] = set()
    rest = [source]
    while rest:
        path = rest.pop()
        found.add(path)
        for name in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE):
            places = (folder / name for folder in (path.parent, jit / "csrc", jit / "include"))
            rest += [place.resolve() for place in itertools.islice(filter(Path.is_file, places), 1)]
        rest = [path for path in rest if path not in found]
    return found


def _number(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f}"


def _row(
    candidates: list[Spec | str], kernels: Path, scratch: Path, *, both: bool
) -> tuple[str, float | None, float | None]:
    """The error, kjit's seconds and SGLang's seconds, for the first guess that one of them compiles."""
    errors = [spec for spec in candidates if isinstance(spec, str)]
    skipped = ""
    for arch, spec in itertools.product(ARCHS, candidates):
        if isinstance(spec, str) or arch == skipped:
            continue
        error, seconds = _with_kjit(spec, arch)
        if not error:
            remark = "" if arch == ARCHS[0] else f"(for {arch})"
            return remark, seconds, _with_sglang(spec, arch, kernels, scratch) if both else None
        peer = _with_sglang(spec, arch, kernels, scratch)
        if peer is not None:
            return error, None, peer
        skipped = arch if "not supported on .target" in error else ""  # other arguments are the same instructions
        errors.append(f"neither compiles it with {', '.join(spec.args) or 'no arguments'}: {error}")
    return errors[0], None, None


def _with_kjit(spec: Spec, arch: str) -> tuple[str, float]:
    start = _cpu_seconds()
    try:
        miss.ensure_built(Variant(spec, Target.cuda(arch)))
    except kjit.KjitError as error:
        lines = [line for line in str(error).splitlines() if re.search(r"error|cannot|is not", line)]
        return (lines or str(error).splitlines())[0].strip()[:200], 0
    return "", _cpu_seconds() - start


def _cpu_seconds() -> float:
    """The CPU time of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def _with_sglang(spec: Spec, arch: str, kernels: Path, scratch: Path) -> float | None:
    """The seconds of nvcc for a module with SGLang's command, without the link; None if it fails."""
    unit, made = scratch / "unit.cu", scratch / "unit.o"
    parts = ("container/tensor.h", "dtype.h", "error.h", "extra/c_env_api.h", "function.h")
    exports = [f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, ({symbol}));" for name, symbol in spec.cuda_wrappers]
    includes = [*(f"#include <tvm/ffi/{part}>" for part in parts), *(f'#include "{path}"' for path in spec.cuda_files)]
    unit.write_text("\n".join([*includes, "namespace sglang {", *exports, "}", ""]))
    folders = [path for path in spec.extra_include_paths if path != str(compat.INCLUDE)]
    cuda = find_cuda()
    digits = arch.replace(".", "")
    start = _cpu_seconds()
    done = subprocess.run(
        [
            *(cuda.home / "bin" / "nvcc", "-c", "-Xcompiler", "-fPIC", "-std=c++20", "-O3"),
            *("--expt-relaxed-constexpr", f"-DSGL_CUDA_ARCH={digits.rstrip('a')}0"),
            f"-gencode=arch=compute_{digits},code=sm_{digits}",
            *spec.extra_cuda_cflags,
            *(f"-I{path}" for path in (kernels / "jit" / "include", *folders, tvm_ffi_include())),
            *(unit, "-o", made),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return _cpu_seconds() - start if done.returncode == 0 else None


def _unpack(folder: Path) -> Path:
    kernels = folder / "sglang" / "kernels"
    if not kernels.is_dir():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), RELEASE]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(folder.glob("sglang-*.whl"))) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("sglang/kernels/")])
    return kernels


def _specs(kernels: Path) -> dict[str, list[Spec | str]]:
    """The specs to compile each source with: guesses, or the reason why the arguments of its wrapper were not found."""
    found: dict[str, list[Spec | str]] = {}
    for path in sorted(kernels.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and _calls_load_jit(function):
                for each in _asked(tree, function, path):
                    for source in _named(each, function, kernels):
                        specs = found.setdefault(source, [])
                        if each not in specs and len(specs) < MOST_GUESSES:
                            specs.append(each)
    return found


def _calls_load_jit(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "load_jit"
        for node in ast.walk(function)
    )


def _named(each: Spec | str, function: ast.FunctionDef, kernels: Path) -> Iterator[str]:
    """The sources of a spec; if there are none, those named by strings in its wrapper."""
    if isinstance(each, Spec):
        for path in each.cuda_files:
            if Path(path).is_relative_to(kernels / "jit" / "csrc"):
                yield Path(path).relative_to(kernels / "jit" / "csrc").as_posix()
        return
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith((".cuh", ".cu")):
            yield node.value


def _asked(tree: ast.Module, function: ast.FunctionDef, path: Path) -> list[Spec | str]:
    """The specs that a wrapper's function passes to `load_jit`, with guessed arguments."""
    asked: list[Spec | str] = []

    def load_jit(*args: object, **parts: Any) -> object:
        asked.append(_spec(*args, **parts))
        raise _Asked

    major = 9
    torch.cuda.get_device_capability = lambda device=None: (major, 0)  # noqa: ARG005
    scope: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    kernels = Path(*path.parts[: path.parts.index("kernels") + 1])
    for statement in _statements(tree, path, kernels):
        _run(statement, scope)
        scope.update({name: getattr(compat, name) for name in compat.__all__ if name != "KERNEL_PATH"})
        scope.update(
            load_jit=load_jit,
            cache_once=lambda fn: fn,
            is_arch_support_pdl=lambda: True,
            get_jit_cuda_arch=lambda: compat.ArchInfo(major, 0, "a"),
            is_hip_runtime=lambda: False,
            is_sail_runtime=lambda: False,
            is_sm120_supported=lambda: major == 12,
            KERNEL_PATH=kernels / "jit",
            torch=torch,
            functools=functools,
        )
    wrapped: Callable[..., object] = scope.get(function.name, _missing)
    reason = "no arguments were found with which its wrapper asks for it"
    for major, arguments in itertools.product((9, 10, 12), _guesses(function)):
        if len(asked) == MOST_GUESSES or (asked and major > 9):
            break
        try:
            inspect.unwrap(wrapped)(**arguments)
        except _Asked:
            continue
        except Exception as error:  # noqa: BLE001 (foreign code, called with guessed arguments)
            reason = f"its wrapper cannot be asked: {type(error).__name__}: {error}".splitlines()[0][:160]
    return asked or [reason]


def _statements(tree: ast.Module, path: Path, kernels: Path) -> Iterator[ast.stmt]:
    """The statements of a module; each import from SGLang's kernels is preceded by the imported module's statements."""
    for statement in tree.body:
        if isinstance(statement, ast.If):
            continue  # if TYPE_CHECKING
        module = str(statement.module) if isinstance(statement, ast.ImportFrom) else ""
        if isinstance(statement, ast.ImportFrom) and (statement.level or module.startswith("sglang.kernels.")):
            base = path.parents[statement.level - 1] if statement.level else kernels.parent.parent
            imported = base.joinpath(*module.split(".")).with_suffix(".py")
            if imported.is_file() and kernels / "jit" / "utils" not in imported.parents:
                yield from _statements(ast.parse(imported.read_text()), imported, kernels)
        else:
            yield statement


class _Asked(BaseException):
    """Ends a wrapper's function when it has called `load_jit`; not an `Exception`, so that the function does not catch
    it."""


def _missing(**_: object) -> None:
    raise NameError("its module cannot be run by itself")


def _run(statement: ast.stmt, scope: dict[str, Any]) -> None:
    """Run a statement of a wrapper's module, unless it needs all of SGLang."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)) and "sglang" in ast.unparse(statement):
        return
    code = compile(ast.Module([_FUTURE, statement], []), str(scope["__file__"]), "exec")
    try:
        exec(code, scope)
    except Exception:  # noqa: BLE001 (foreign code that is run in part)
        return


_FUTURE = ast.parse("from __future__ import annotations").body[0]


def _guesses(function: ast.FunctionDef) -> Iterator[dict[str, object]]:
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    choices = [_choices(each) for each in named]
    width = max(map(len, choices), default=1)
    # Each argument's first guess, second guess and so on; one that differs from the first; then every combination.
    in_step = ([options[min(turn, len(options) - 1)] for options in choices] for turn in range(width))
    first = [options[0] for options in choices]
    one = ([*first[:at], value, *first[at + 1 :]] for at, options in enumerate(choices) for value in options[1:])
    for values in itertools.chain(in_step, one, itertools.islice(itertools.product(*choices), 200)):
        yield {each.arg: value for each, value in zip(named, values, strict=True)}


def _choices(parameter: ast.arg) -> list[object]:
    text = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
    kinds = (word for word in GUESSES if word in text or (not text and word in parameter.arg))
    kind = next(kinds, "int")
    first = [values for of, words, values in NAMED if of == kind and re.search(words, parameter.arg)]
    return list(dict.fromkeys([*itertools.chain(*first), *GUESSES[kind]]))


def _spec(*args: object, **parts: Any) -> Spec | str:
    """The spec that `kjit.compat.sglang.load_jit` would build."""
    try:
        return compat.spec_of(args, caller=None, **parts)
    except kjit.KjitError as error:
        return str(error).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
