"""The compile of a CUDA unit in two halves, and the record of sources that need nvcc.

Each half is preprocessed, cut (halves.py) and compiled, by NVRTC (device_compiler.py) or by the C++ compiler
(host_compiler.py); kernels_object.py joins them. Sources that NVRTC could not compile are recorded, and go to nvcc at
once the next time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import kjit
from kjit import env
from kjit.engine.cache.missing import asking
from kjit.engine.compile import short_headers
from kjit.engine.compile.libraries import files_named
from kjit.engine.compile.quoting import PLAIN_FOR_CXX, Links
from kjit.engine.compile.steps import Step, Unit
from kjit.engine.diagnostics.symbols import base_name, demangle
from kjit.engine.key.flags import parse
from kjit.engine.key.key import digest
from kjit.engine.toolchain.build_flags import device_half_flags, host_half_flags, nvrtc_flags
from kjit.engine.toolchain.cuda import INSTALL_CUDA
from kjit.engine.toolchain.locations import kjit_include
from kjit.engine.toolchain.memo import open_memo
from kjit.engine.toolchain.nvrtc import PROGRAMS, Nvrtc, OnlyNvccError, command_of
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError
from kjit.spec import Spec

if TYPE_CHECKING:
    from kjit.engine.diagnostics.limits import Limit

_CUT = ".cut.ii"
"""The suffix of the files that halves.py makes."""

_UNRESOLVED = re.compile(r"^ptxas fatal +: Unresolved extern function '(?P<symbol>\w+)'\n", re.MULTILINE)

# A kernel with a result, in PTX: `.entry (.param .b32 result) kernel(`.
_NO_KERNEL = re.compile(
    r"^ptxas application ptx input, line \d+; fatal +: Parsing error near '\(': syntax error\n(?:ptxas fatal .*\n)?",
    re.MULTILINE,
)

# Messages about a kernel that uses a host variable: of ptxas, or of the optimizer if it is static; and NVRTC's warning.
_HOST_VARIABLE = re.compile(
    r"^(?:ptxas warning : Unresolved extern variable '(?P<symbol>\w+)'.*|error: Broken module found.*)\n", re.MULTILINE
)
_OF_HOST_VARIABLE = re.compile(r'warning #\d+-D: .*host (?:variable|member) "(?P<name>[^"\n]+)" cannot be .*')

# g++'s warnings about kernels in the host half, each with the lines above it that name the place.
_UNDEFINED_KERNEL = re.compile(
    r"(?:^In file included from .*\n(?: +from .*\n)*)?"
    r"^.*warning: (?:inline function )?'[^\n]*' used but never defined\n(?:^ .*\n)*",
    re.MULTILINE,
)

# A message of NVRTC's optimizer about a host function's lambda that is passed to a `__host__ __device__` function; it
# drops both afterwards.
_HOST_LAMBDA = re.compile(
    r"^Global is external, but doesn't have external or weak linkage!\n.*@_Z.*Ul.*\n?", re.MULTILINE
)


def steps_of(unit: Unit, spec: Spec, toolchain: Toolchain, links: Links, launcher: tuple[str, ...]) -> Iterator[Step]:
    """The commands that compile a CUDA unit in two halves, in parallel: the C++ compiler for the host, NVRTC for the
    device.

    Raises:
        OnlyNvccError: only nvcc has one of the flags.
    """
    nvrtc = toolchain.nvrtc
    assert nvrtc is not None
    reads = files_named([*spec.extra_cuda_cflags, *toolchain.flags_from_environment()], "nvcc")
    compiler = str(toolchain.cxx.path)

    def preprocessed(plain: str, flags: tuple[str, ...]) -> Step:
        preprocess = (compiler, *flags, "-x", "c++")
        making = ("-E", "-MD", "-MF", f"{plain}.d", "-MT", plain, unit.path, "-o", plain)
        ask = (*preprocess, *asking("c++", plain), unit.path)
        return Step(plain, (*preprocess, *making), generated=unit.generated, reads=reads, asking=ask)

    whole = () if all(map(short_headers.may_suffice, spec.cuda_files)) else (short_headers.FULL,)
    cubins = []
    for arch in toolchain.target.archs:
        plain = f"{unit.name}.sm_{arch.digits}.ii"
        flags = (*links.flags(device_half_flags(toolchain, spec, arch), PLAIN_FOR_CXX), *whole)
        preprocess = preprocessed(plain, flags)
        yield preprocess
        cubin = f"{unit.name}.sm_{arch.digits}.cubin"
        libraries = (str(nvrtc.library), str(nvrtc.builtins))
        call = (*command_of("device_compiler"), *libraries, plain, cubin, preprocess.command)
        yield Step(
            cubin, (*call, *nvrtc_flags(toolchain, spec, arch)), (plain,), reads=PROGRAMS, program="device_compiler"
        )
        cubins.append(cubin)
    plain, cut, host = f"{unit.name}.ii", f"{unit.name}{_CUT}", f"{unit.name}.host.o"
    flags = tuple(links.flags(host_half_flags(toolchain, spec), PLAIN_FOR_CXX))
    preprocess = preprocessed(plain, flags)
    yield preprocess
    # Headers that -include names are in the preprocessed text already.
    flags = tuple(word for flag in parse(flags) if flag.meaning != "header" for word in flag.words())
    compile_cut = (*launcher, compiler, *flags, "-x", "c++-cpp-output", "-c", cut, "-o", host)
    call = (*command_of("host_compiler"), plain, cut, host, preprocess.command, *compile_cut)
    yield Step(host, call, (plain,), program="host_compiler")
    table, output = f"{unit.name}.kernels.s", f"{unit.name}.kernels.o"
    has_others = not spec.cuda_wrappers and len(spec.cuda_files) > 1
    call = (*command_of("kernels_object"), host, table, unit.name if has_others else "", *cubins)
    yield Step(table, call, (host, *cubins), program="kernels_object")
    yield Step(output, (compiler, "-c", table, "-o", output), (table, *cubins))


def for_ptx(step: Step) -> Step:
    """The command that makes PTX, from the one that makes a cubin."""
    output = f"{step.output.removesuffix('cubin')}ptx"
    words = {step.output: output}
    arguments = (
        re.sub(r"^--gpu-architecture=sm_", "--gpu-architecture=compute_", words.get(word, word))
        for word in step.arguments
    )
    return replace(step, output=output, arguments=tuple(arguments))


def shown_output(step: Step, log: str, read: Callable[[str], str]) -> str:
    """The output of a command, as shown to the user.

    Args:
        read: the content of a file in the build's folder, by its name.
    """
    if "c++-cpp-output" in step.arguments:
        return _UNDEFINED_KERNEL.sub("", log)
    if not step.output.endswith(".cubin"):
        return log
    log = _HOST_LAMBDA.sub("", log)
    if _HOST_VARIABLE.search(log) is not None:
        return _use_of_host_variable(log, read(step.inputs[0]))
    message = None
    if (found := _UNRESOLVED.search(log)) is not None:
        message = _call_of_host(demangle(found["symbol"]), read(step.inputs[0]))
    elif (found := _NO_KERNEL.search(log)) is not None:
        message = _kernel_with_result(read(step.inputs[0]))
    return log if found is None or message is None else log[: found.start()] + message + log[found.end() :]


def _use_of_host_variable(log: str, unit: str) -> str:
    """NVRTC's warnings about variables of the host in kernels, as nvcc's errors."""

    def error(name: str) -> str:
        return f'error: identifier "{name}" is undefined in device code'

    symbols = [match["symbol"] for match in _HOST_VARIABLE.finditer(log) if match["symbol"]]
    names = [base_name(demangle(symbol)) if symbol.startswith("_Z") else symbol for symbol in symbols]

    def as_error(match: re.Match[str]) -> str:
        name = base_name(match["name"])
        return error(name) if name in names or not names else match[0]

    rest = _HOST_VARIABLE.sub("", log)
    with_errors = _OF_HOST_VARIABLE.sub(as_error, rest)
    if with_errors != rest:
        return with_errors
    if not names:
        return log
    from kjit.engine.compile import halves  # only an error needs it here

    for file, line, text in halves.device_lines(unit):
        if (use := re.search(rf"\b{re.escape(names[0])}\b", text)) is not None:
            return f"{rest}{file}({line}): {error(names[0])}\n{text}\n{' ' * use.start()}^\n"
    return f"{rest}{error(names[0])}\n"


def _kernel_with_result(unit: str) -> str | None:
    """nvcc's errors about kernels with a return value, which with NVRTC only ptxas notices."""
    from kjit.engine.compile import halves  # only an error needs it here

    message = "a __global__ function must have a void return type"
    return "".join(f"{file}({line}): error: {message}\n\n" for file, line in halves.kernels_with_results(unit)) or None


def _call_of_host(signature: str, unit: str) -> str | None:
    """nvcc's message for a kernel that calls a host function, which with NVRTC only ptxas notices; None if the call is
    something else."""
    if signature.startswith("__cudaCDP"):
        error = "a kernel launches a kernel, which needs linked device code (-rdc=true); kjit does not link device code"
        places = ((file, line) for file, line, text in _own_code(unit) if "<<<" in text)
        return "".join(f"{file}({line}): error: {error}\n\n" for file, line in itertools.islice(places, 1)) or None
    name = re.escape(base_name(signature))
    if re.search(rf"\b__device__\b[^;{{}}]*\b{name}\s*\(", unit) is not None:
        return None  # a device function without a definition
    for file, line, text in _own_code(unit):
        if (call := re.search(rf"\b{name}\s*\(", text)) is not None:
            place = f"{file}({line}): error: "
            error = f'calling a __host__ function("{signature}") from code for the device is not allowed'
            return f"{place}{error}\n{text}\n{' ' * call.start()}^\n"
    return None


def _own_code(unit: str) -> Iterator[tuple[str, int, str]]:
    from kjit.engine.compile import halves  # only an error needs it here

    return halves.device_lines(unit, lambda file: not file.startswith("<"))


def why_nvcc(spec: Spec, nvrtc: Nvrtc, launcher: Path | None = None) -> str | None:
    """Why nvcc compiles these sources: they needed it before, or a launcher can share its objects. None if NVRTC
    compiles them."""
    if launcher is not None and env.cuda_compiler() != "nvrtc":
        return f"{launcher.name} can share objects of nvcc, but not of NVRTC"
    for each in (_WHOLE, _INCLUDES):
        known = open_memo().known(nvrtc.stamps[0], _question(spec, each))
        if known and (len(known) == 1 or any(known[1].encode() in Path(path).read_bytes() for path in spec.cuda_files)):
            return known[0]
    return None


def remember_nvcc(spec: Spec, nvrtc: Nvrtc, reason: str, word: str | None) -> None:
    """Record why these sources needed nvcc. With a `word`, the record also holds for edited sources with the same
    includes while they contain it, so that an edit does not cost a failed compile."""
    question = _question(spec, _WHOLE if word is None else _INCLUDES)
    open_memo().learn(nvrtc.stamps[0], question, [reason] if word is None else [reason, word])


# Files and libraries, except CUDA's.
_OTHER_CODE = re.compile(r"(?!-)|-l(?!cu|nv|nccl)|-Wl,(?:.*,)?[^-,]|-Xlinker$")
# Types of arguments that the light headers lack: a search is faster than a failed compile.
_OWN_TYPES = re.compile(
    rb"\bstd::string\b|\b(?:Array|List|Map|Dict|Tuple|Variant)<"
    rb"|\bffi::(?:Any|AnyView|Array|Bytes|Dict|Function|List|Map|Module|Object\w*|String|Tuple|TypedFunction|Variant)\b"
)
_WHOLE = re.compile(rb".*", re.DOTALL)
_INCLUDES = re.compile(rb"^\s*#\s*include.*$", re.MULTILINE)


def _question(spec: Spec, part: re.Pattern[bytes]) -> str:
    """The name of a record about all sources that have the same text in each match of `part`."""
    headers = kjit_include() / "kjit_rtc"
    parts = [kjit.__version__, *spec.extra_cuda_cflags]
    parts += [digest(Path(path).read_bytes()) for path in PROGRAMS]
    parts += [digest((headers / name).read_bytes()) for name in ("device.h", "host.h", "../kjit_light/tvm.h")]
    parts += [digest(b"".join(part.findall(Path(path).read_bytes()))) for path in spec.cuda_files]
    return f"only nvcc compiles {digest(chr(0).join(parts).encode(errors='surrogateescape'))}"


class LightHeadersError(Exception):
    """Halves did not compile with the light headers, possibly because of something these lack."""


def refuse_light_headers(steps: list[Step], logs: list[str], read: Callable[[str], str]) -> None:
    """Raise an error if halves that did not compile read the light headers, kjit/include/kjit_light.

    Args:
        logs: the output of the steps.
        read: the content of a file in the build's folder, by its name.

    Raises:
        LightHeadersError: they did.
    """
    names = (step.depfile if " -E " in step.command else step.log for step in steps if step.output.endswith(".ii"))
    if any("/kjit_light/" in text for text in (*map(read, names), *logs)):
        raise LightHeadersError


def needs_whole_headers(spec: Spec, nvrtc: Nvrtc) -> bool:
    """Whether units are compiled with tvm-ffi's own headers instead of the light ones.

    They are if sources with the same includes did not compile with the light headers before, if they name a type that
    the light headers lack, or if they are linked with code that kjit does not compile in halves: such code may pass on
    tvm-ffi's own types and errors, which light code does not know.
    """
    if spec.cpp_files or any(map(_OTHER_CODE.match, spec.extra_ldflags)):
        return True
    if any(_OWN_TYPES.search(Path(path).read_bytes()) for path in spec.cuda_files):
        return True
    return open_memo().known(nvrtc.stamps[0], _whole_question(spec)) is not None


def _whole_question(spec: Spec) -> str:
    return f"tvm-ffi's own headers: {_question(spec, _INCLUDES)}"


def remember_whole_headers(spec: Spec, nvrtc: Nvrtc) -> None:
    """Record that these sources compile only with tvm-ffi's own headers."""
    open_memo().learn(nvrtc.stamps[0], _whole_question(spec), [""])


def limited(error: CompileError, toolchain: Toolchain, limit: Limit | None) -> CompileError:
    """The error to raise if the halves do not compile.

    Args:
        limit: why nvcc may compile them; None if it would not.

    Raises:
        OnlyNvccError: nvcc may compile them, and is installed.
    """
    if limit is None:
        return error
    if toolchain.has_nvcc:
        raise OnlyNvccError(limit.reason, limit.word) from error
    hint = error.hint or f"if nvcc compiles it, {INSTALL_CUDA}"
    return CompileError(error.message, log=error.log, command=error.command, hint=hint)
