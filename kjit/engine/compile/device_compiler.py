"""The compile of a unit's device half by NVRTC.

The build runs `main` of this file as a program:

    libnvrtc.so libnvrtc-builtins.so unit.sm_90a.ii unit.sm_90a.cubin options...

on what the preprocessor has made; halves.py makes the device half of it. With the two libraries alone, it prints the
architectures that they know (`90`).

It prints what NVRTC says, which is in the form of nvcc's messages, and ptxas' table of resources among them. NVRTC
opens the library of its builtins by name only and does not find it where wheels put it, so that is loaded ahead of it.

It imports little, because it starts once for every compiled unit.
"""

from __future__ import annotations

import ctypes
import os
import re

from kjit.engine.compile import halves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kjit.engine.compile.precompiled import DeviceHeaders

_SUCCESS = 0
_CONTINUED = re.compile(r"^ptxas +\. +", re.MULTILINE)
# What ptxas says if a kernel uses a variable of the host: the kernel would get another one, which is 0.
_HOST_VARIABLE = "Unresolved extern variable "


def compile_half(
    library: str,
    builtins: str,
    source: str,
    output: str,
    options: list[str],
    headers: DeviceHeaders | None = None,
    threads: int = 1,
) -> tuple[bool, str]:
    """Compile the preprocessed `source` into the cubin `output`, or PTX if that ends in `.ptx`: whether that went well,
    and what NVRTC said.

    Args:
        headers: those that are precompiled.
        threads: how many optimise and assemble the kernels. The code is the same.

    Raises:
        OSError: a file or a library is not there, or the library is no NVRTC.
    """
    nvrtc = _load(library, builtins)
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        unit = file.read()
    short = None if headers is None else headers.split((library, builtins, source, *options), unit)
    if threads > 1:
        options = [*options, f"--split-compile={threads}"]
    if headers is not None and short is not None:
        ahead, path, rest = short
        text = f"{_INCLUDE}{halves.device_half(rest)}"
        done, said, content = _compile(nvrtc, source, text, [*options, *_QUIET, f"--use-pch={path}"], output, ahead[1])
        if not done:
            done, said, content = _compile(nvrtc, source, halves.device_half(unit), options, output)
            if done:
                headers.refuse(ahead)
    else:
        done, said, content = _compile(nvrtc, source, halves.device_half(unit), options, output)
    if done:
        with open(output, "wb") as file:
            file.write(content)
    return done, said


def precompile(library: str, builtins: str, source: str, ahead: str, path: str, options: list[str]) -> bool:
    """Precompile what comes `ahead` of code in `source`, preprocessed: whether that went well, without a warning."""
    try:
        nvrtc = _load(library, builtins)
        text = f"{_INCLUDE}#pragma nv_hdrstop\n"
        done, said, _ = _compile(nvrtc, source, text, [*options, *_QUIET, f"--create-pch={path}"], "", ahead)
    except OSError:
        return False
    return done and "warning" not in said and os.path.exists(path)


# Ahead of code whose headers are precompiled.
_AHEAD = "kjit_ahead.h"
_QUIET = ("--pch-messages=false", "--pch-verbose=false")
_INCLUDE = f'#include "{_AHEAD}"\n'


def _load(library: str, builtins: str) -> ctypes.CDLL:
    ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(library)


def _compile(
    nvrtc: ctypes.CDLL, source: str, text: str, options: list[str], output: str, ahead: str = ""
) -> tuple[bool, str, bytes]:
    """Compile `text`: whether that went well, what NVRTC said, and what came out of it.

    Args:
        ahead: the preprocessed text that is precompiled.
    """
    program = ctypes.c_void_p()
    content = text.encode("utf-8", "surrogateescape")
    headers = (ctypes.c_char_p * 1)(halves.device_half(ahead).encode("utf-8", "surrogateescape"))
    names = (ctypes.c_char_p * 1)(_AHEAD.encode())
    given = (1, headers, names) if ahead else (0, None, None)
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), content, source.encode(), *given))
    try:
        words = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
        result = nvrtc.nvrtcCompileProgram(program, len(options), words)
        said = _content(nvrtc, program, "ProgramLog").replace(b"\0", b"").decode("utf-8", "surrogateescape")
        said = _CONTINUED.sub("    ", said)  # as nvcc prints it
        if result != _SUCCESS:
            return False, said if said.strip() else f"nvrtc: error: {_words(nvrtc, result)}\n", b""
        if _HOST_VARIABLE in said:
            return False, said, b""
        return True, said, _content(nvrtc, program, "PTX" if output.endswith(".ptx") else "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def architectures(library: str) -> list[int]:
    """The architectures that NVRTC builds for: `90`.

    Raises:
        OSError: the library is not there, or is no NVRTC.
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
    """Run the program, which writes to the handle `log`.

    Args:
        headers: those that are precompiled.
        threads: how many optimise and assemble the kernels.
    """
    library, builtins, *rest = words
    if not rest:
        os.write(log, f"{' '.join(map(str, architectures(library)))}\n".encode())
        return 0
    source, output, *options = rest
    try:
        done, said = compile_half(library, builtins, source, output, options, headers, threads)
    except OSError as error:
        done, said = False, f"nvrtc: error: {error}\n"
    with open(log, "wb", closefd=False) as file:
        file.write(said.encode("utf-8", "surrogateescape"))
    return 0 if done else 1
