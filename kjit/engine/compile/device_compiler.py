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

_SUCCESS = 0
_CONTINUED = re.compile(r"^ptxas +\. +", re.MULTILINE)


def compile_half(library: str, builtins: str, source: str, output: str, options: list[str]) -> tuple[bool, str]:
    """Compile the preprocessed `source` into the cubin `output`, or PTX if that ends in `.ptx`: whether that went well,
    and what NVRTC said.

    Raises:
        OSError: a file or a library is not there, or the library is no NVRTC.
    """
    ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(library)
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        text = halves.device_half(file.read()).encode("utf-8", "surrogateescape")
    program = ctypes.c_void_p()
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 0, None, None))
    try:
        words = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
        result = nvrtc.nvrtcCompileProgram(program, len(options), words)
        said = _content(nvrtc, program, "ProgramLog").replace(b"\0", b"").decode("utf-8", "surrogateescape")
        said = _CONTINUED.sub("    ", said)  # as nvcc prints it
        if result == _SUCCESS:
            with open(output, "wb") as file:
                file.write(_content(nvrtc, program, "PTX" if output.endswith(".ptx") else "CUBIN"))
        elif not said.strip():
            said = f"nvrtc: error: {_words(nvrtc, result)}\n"
        return result == _SUCCESS, said
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


def main(words: list[str], log: int = 1) -> int:
    """Run the program, which writes to the handle `log`."""
    library, builtins, *rest = words
    if not rest:
        os.write(log, f"{' '.join(map(str, architectures(library)))}\n".encode())
        return 0
    source, output, *options = rest
    try:
        done, said = compile_half(library, builtins, source, output, options)
    except OSError as error:
        done, said = False, f"nvrtc: error: {error}\n"
    content = said.encode("utf-8", "surrogateescape")
    while content:
        content = content[os.write(log, content) :]
    return 0 if done else 1
