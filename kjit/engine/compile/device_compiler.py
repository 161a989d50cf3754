"""The compile of a unit's device half by NVRTC.

The build runs `main` of this file as a program:

    libnvrtc.so libnvrtc-builtins.so unit.sm_90a.ii unit.sm_90a.cubin 'command of the preprocessor' options...

The input is preprocessed, and is preprocessed again if the short headers of the C++ library do not suffice
(short_headers.py); halves.py makes the device half of it. With the two libraries as the only arguments, it prints the
architectures that they support (`90`).

It prints NVRTC's messages, which have nvcc's format and include ptxas' table of resources. NVRTC opens the library of
its builtins by name and does not find it in a wheel, so that library is loaded first.

Few imports: it starts once for every compiled unit.
"""

from __future__ import annotations

import ctypes
import os
import re

from kjit.engine.compile import halves, short_headers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kjit.engine.compile.precompiled import DeviceHeaders

_SUCCESS = 0
_CONTINUED = re.compile(r"^ptxas +\. +", re.MULTILINE)
# ptxas' warning about a host variable in a kernel, which would use another one with value 0: an error here.
_HOST_VARIABLE = "Unresolved extern variable "
_SILENT = ("-w", "--disable-warnings")
_RESOURCES = re.compile(r"^ptxas info .*\n(?:    .*\n)*", re.MULTILINE)


def compile_half(
    library: str,
    builtins: str,
    source: str,
    output: str,
    preprocess: str,
    options: list[str],
    headers: DeviceHeaders | None = None,
    threads: int = 1,
) -> tuple[bool, str]:
    """Compile the preprocessed `source` into the cubin `output`, or into PTX if that ends in `.ptx`.

    Args:
        preprocess: the command that has made `source`.
        headers: the precompiled headers.
        threads: the number of threads that optimise and assemble kernels. The code is the same.

    Returns:
        Whether NVRTC succeeded, and its messages.

    Raises:
        OSError: a file or a library does not exist, or the library is not NVRTC.
    """
    options, is_silent = _with_warnings(options)
    nvrtc = _load(library, builtins)
    unit = _read(source)
    is_short = short_headers.are_read(unit)
    if is_short and not short_headers.suffice(unit):
        unit, is_short = _with_whole_headers(preprocess, source), False
    done, messages, content = _compile_unit(nvrtc, unit, source, output, (library, builtins), options, headers, threads)
    if not done and is_short and short_headers.may_have_failed(unit, messages):
        unit = _with_whole_headers(preprocess, source)
        done, messages, content = _compile_unit(
            nvrtc, unit, source, output, (library, builtins), options, headers, threads
        )
    if done:
        with open(output, "wb") as file:
            file.write(content)
    return done, "".join(_RESOURCES.findall(messages)) if done and is_silent else messages


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


class PreprocessorError(Exception):
    """The preprocessor failed; `output` is its output."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


def _with_whole_headers(preprocess: str, source: str) -> str:
    """The unit, preprocessed with the C++ library's own headers.

    Raises:
        PreprocessorError: the preprocessor failed.
    """
    import shlex  # few units need it

    from kjit.engine.compile.host_compiler import run

    messages = f"{source}.messages"
    handle = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        status = run([*shlex.split(preprocess), short_headers.FULL], handle)
    finally:
        os.close(handle)
    if status != 0:
        raise PreprocessorError(_read(messages))
    return _read(source)


def _compile_unit(
    nvrtc: ctypes.CDLL,
    unit: str,
    source: str,
    output: str,
    libraries: tuple[str, str],
    options: list[str],
    headers: DeviceHeaders | None,
    threads: int,
) -> tuple[bool, str, bytes]:
    """Compile the preprocessed `unit`; see `_compile` for the result."""
    short = None if headers is None else headers.split((*libraries, source, *options), unit)
    if threads > 1:
        options = [*options, f"--split-compile={threads}"]
    if headers is not None and short is not None:
        ahead, path, rest = short
        text = f"{_INCLUDE}{halves.device_half(rest)}"
        pch = [*options, *_QUIET, f"--use-pch={path}"]
        found = _compile(nvrtc, source, text, pch, output, headers.halves[ahead])
        if found[0]:
            return found
        found = _compile(nvrtc, source, halves.device_half(unit), options, output)
        if found[0]:
            headers.refuse(ahead)
        return found
    return _compile(nvrtc, source, halves.device_half(unit), options, output)


def _with_warnings(options: list[str]) -> tuple[list[str], bool]:
    """`options` without those that disable warnings, and whether there were any: one warning is an error here."""
    kept = []
    for option in options:
        name, _, values = option.partition("=")
        left = [value for value in values.split(",") if value not in _SILENT]
        if name == "--ptxas-options" and left:
            kept.append(f"{name}={','.join(left)}")
        elif name not in ("--ptxas-options", *_SILENT):
            kept.append(option)
    return kept, kept != options


def precompile(library: str, builtins: str, source: str, ahead: str, path: str, options: list[str]) -> bool:
    """Precompile `ahead`, the device half of a prefix of `source`; return whether NVRTC did so without warnings."""
    try:
        nvrtc = _load(library, builtins)
        text = f"{_INCLUDE}#pragma nv_hdrstop\n"
        done, messages, _ = _compile(nvrtc, source, text, [*options, *_QUIET, f"--create-pch={path}"], "", ahead)
    except OSError:
        return False
    return done and "warning" not in messages and os.path.exists(path)


# The name of the precompiled prefix, which the rest of a unit includes.
_AHEAD = "kjit_ahead.h"
_QUIET = ("--pch-messages=false", "--pch-verbose=false")
_INCLUDE = f'#include "{_AHEAD}"\n'


def _load(library: str, builtins: str) -> ctypes.CDLL:
    ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(library)


def _compile(
    nvrtc: ctypes.CDLL, source: str, text: str, options: list[str], output: str, ahead: str = ""
) -> tuple[bool, str, bytes]:
    """Compile `text`.

    Args:
        ahead: the device half of the prefix that is precompiled.

    Returns:
        Whether NVRTC succeeded, its messages, and the code.
    """
    program = ctypes.c_void_p()
    content = text.encode("utf-8", "surrogateescape")
    headers = (ctypes.c_char_p * 1)(ahead.encode("utf-8", "surrogateescape"))
    names = (ctypes.c_char_p * 1)(_AHEAD.encode())
    given = (1, headers, names) if ahead else (0, None, None)
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), content, source.encode(), *given))
    try:
        words = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
        result = nvrtc.nvrtcCompileProgram(program, len(options), words)
        messages = _content(nvrtc, program, "ProgramLog").replace(b"\0", b"").decode("utf-8", "surrogateescape")
        messages = _CONTINUED.sub("    ", messages)  # as nvcc prints it
        if result != _SUCCESS:
            return False, messages if messages.strip() else f"nvrtc: error: {_words(nvrtc, result)}\n", b""
        if _HOST_VARIABLE in messages:
            return False, messages, b""
        return True, messages, _content(nvrtc, program, "PTX" if output.endswith(".ptx") else "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def architectures(library: str) -> list[int]:
    """The architectures that NVRTC compiles for: `90`.

    Raises:
        OSError: the library does not exist, or is not NVRTC.
    """
    nvrtc = ctypes.CDLL(library)
    count = ctypes.c_int()
    _check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    found = (ctypes.c_int * count.value)()
    _check(nvrtc, nvrtc.nvrtcGetSupportedArchs(found))
    return list(found)


def _content(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, content))
    return content.raw


def _check(nvrtc: ctypes.CDLL, result: int) -> None:
    if result != _SUCCESS:
        raise OSError(f"NVRTC: {_words(nvrtc, result)}")


def _words(nvrtc: ctypes.CDLL, result: int) -> str:
    describe = nvrtc.nvrtcGetErrorString
    describe.restype = ctypes.c_char_p
    return (describe(result) or b"").decode()


def main(words: list[str], log: int = 1, headers: DeviceHeaders | None = None, threads: int = 1) -> int:
    """Run the program; its output goes to the file descriptor `log`.

    Args:
        headers: the precompiled headers.
        threads: the number of threads that optimise and assemble kernels.
    """
    library, builtins, *rest = words
    if not rest:
        os.write(log, f"{' '.join(map(str, architectures(library)))}\n".encode())
        return 0
    source, output, preprocess, *options = rest
    try:
        done, messages = compile_half(library, builtins, source, output, preprocess, options, headers, threads)
    except PreprocessorError as error:
        done, messages = False, error.output
    except OSError as error:
        done, messages = False, f"nvrtc: error: {error}\n"
    with open(log, "wb", closefd=False) as file:
        file.write(messages.encode("utf-8", "surrogateescape"))
    return 0 if done else 1
