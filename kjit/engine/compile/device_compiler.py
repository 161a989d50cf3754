"""The compile of a unit's device half by NVRTC.

The build runs `main` of this file as a program:

    libnvrtc.so libnvrtc-builtins.so unit.sm_90a.ii unit.sm_90a.cubin folders options...

The input is preprocessed; halves.py makes the device half of it. With the two libraries as the only arguments, it
prints the architectures that they support (`90`).

It prints NVRTC's messages, which have nvcc's format and include ptxas' table of resources. NVRTC opens the library of
its builtins by name and does not find it in a wheel, so that library is loaded first.
"""

from __future__ import annotations

import ctypes
import os
import re

from kjit.engine.compile import halves, kernels_object, kind, math_names, precompiled

THREADS = "KJIT_NVRTC_THREADS"
"""The variable with the number of threads that optimise and assemble kernels."""

_SUCCESS = 0
# A host variable in a kernel, which would be another variable there, with value 0: ptxas' warning, the error of the
# optimizer if the variable is static, and NVRTC's warning. nvcc makes an error of it.
_UNRESOLVED = re.compile(r"^ptxas warning : Unresolved extern variable '(?P<symbol>\w+)'.*\n", re.MULTILINE)
_BROKEN = re.compile(r"^error: Broken module found.*\n", re.MULTILINE)
_OF_HOST = re.compile(r'warning #\d+-D: .*host (?:variable|member) "(?P<name>[^"\n]+)" cannot be .*')
_SILENT = ("-w", "--disable-warnings")
_RESOURCES = re.compile(r"^(?:ptxas info .*\n(?:    .*\n)*)", re.MULTILINE)
_CONTINUED = re.compile(r"^ptxas +\. +", re.MULTILINE)
_PREFIX = os.path.join(os.path.dirname(__file__), "..", "..", "include", "kjit_rtc", "device.h")
_FLOATS = ("32", "64", "128", "32x", "64x")
# Attributes that NVRTC does not know and that change neither the layout of a type nor the code of a kernel.
_ATTRIBUTE = re.compile(
    r'^(?P<place>.*): warning #1097-D: unknown attribute "(?P<name>[^"]+)"\n(?:.*\n){2}\n?', re.MULTILINE
)
# A warning about a type that NVRTC declares itself, at each header that names it.
_OF_BUILTIN = re.compile(r'^Warning #1444-D: class "\w+" was declared deprecated .*\n\n?', re.MULTILINE)
_REMARK = re.compile(r"^Remark: The warnings can be suppressed with .*\n\n?", re.MULTILINE)
_WITHOUT_EFFECT = re.compile(
    r"(?:gnu::)?(?:_*(?:visibility|unused|used|cold|hot|flatten|pure|const|nothrow|leaf|nonnull|malloc|format|warn_unused_"
    r"result|always_inline|noinline|gnu_inline|artificial|deprecated|no_sanitize\w*|no_instrument_function|sentinel|weak"
    r"|constructor|destructor|optimize|target|fallthrough|may_alias|returns_nonnull|alloc_size|assume_aligned|tls_model"
    r"|init_priority|abi_tag|noreturn|access|nonstring|error|warning|section|alias|externally_visible|device_builtin)_*)"
)


def compile_half(
    library: str, builtins: str, source: str, output: str, options: list[str], threads: int = 1
) -> tuple[bool, str]:
    """Compile the preprocessed `source` into the cubin `output`, or into PTX if that ends in `.ptx`.

    Args:
        threads: the number of threads that optimise and assemble kernels. The code is the same.

    Returns:
        Whether NVRTC succeeded, and its messages.

    Raises:
        OSError: a file or a library does not exist, or the library is not NVRTC.
    """
    options, is_silent = _with_warnings(options)
    done, messages, content = _compile_unit(source, output, (library, builtins), options, threads)
    messages, refused = _without_attributes(messages)
    if refused:
        return False, refused
    if (misused := _without_host_variables(messages)) is not messages:
        return False, misused
    if done:
        if output.endswith(".ptx"):
            content = math_names.restored(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        else:
            content = kernels_object.with_own_names(content)
        with open(output, "wb") as file:
            file.write(content)
    return done, "".join(_RESOURCES.findall(messages)) if done and is_silent else messages


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


def _without_host_variables(messages: str) -> str:
    """NVRTC's messages with nvcc's errors about host variables in device code, if there are any."""
    symbols = [match["symbol"] for match in _UNRESOLVED.finditer(messages)]
    if not symbols and (_BROKEN.search(messages) is None or _OF_HOST.search(messages) is None):
        return messages
    shown: set[str] = set()

    def error(match: re.Match[str]) -> str:
        name = match["name"].rpartition("::")[2]
        of_it = [each for each in symbols if each == name or f"{len(name)}{name}" in each]
        if symbols and not of_it:
            return match[0]
        shown.update(of_it)
        return f'error: identifier "{name}" is undefined in device code'

    messages = _OF_HOST.sub(error, _BROKEN.sub("", _UNRESOLVED.sub("", messages)))
    others = "".join(
        f'error: identifier "{each}" is undefined in device code\n' for each in symbols if each not in shown
    )
    return f"{messages}{others}"


def _without_attributes(messages: str) -> tuple[str, str]:
    """NVRTC's messages without warnings about attributes that have no effect there, and errors about the others."""
    found = [(match["place"], match["name"]) for match in _ATTRIBUTE.finditer(messages)]
    refused = [
        f'{place}: error: {kind.ONLY_NVCC}NVRTC does not know the attribute "{name}"\n\n'
        for place, name in found
        if not _WITHOUT_EFFECT.fullmatch(name)
    ]
    if found or "Warning #1444-D" in messages:
        messages = _OF_BUILTIN.sub("", _ATTRIBUTE.sub("", messages))
        if "warning" not in _REMARK.sub("", messages):
            messages = _REMARK.sub("", messages)
    return messages, "".join(refused)


def prefix(unit: str) -> str:
    """The text before the device half of a preprocessed `unit`."""
    # From 13 on, g++ has all of these types; before, the C library defines those of 32 and more bits.
    floats = ("16",) if "typedef float _Float32;" in unit else ("16", *_FLOATS)
    types = "".join(f"#define _Float{each} ::kjit_rtc::Float{each}\n" for each in floats)
    return f'# 1 "kjit_rtc/device.h" 3\n{_read(_PREFIX)}{types}{math_names.definitions()}'


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _compile_unit(
    source: str, output: str, libraries: tuple[str, str], options: list[str], threads: int
) -> tuple[bool, str, bytes]:
    """Compile the preprocessed `source`; see `_compile` for the result."""
    nvrtc = _load(*libraries)
    unit = _read(source)
    short = precompiled.find((*libraries, source, *options), unit)
    if threads > 1:
        options = [*options, f"--split-compile={threads}"]
    if short is not None:
        path, rest = short
        text = f"{_INCLUDE}{halves.device_half(rest)}"
        pch = [*options, *_QUIET, f"--use-pch={path}"]
        found = _compile(nvrtc, source, text, pch, output, _read(_half_of(path)))
        if found[0]:
            return found  # mistakes are reported without it
    return _compile(nvrtc, source, f"{prefix(unit)}{halves.device_half(unit)}", options, output)


def precompile(path: str, words: tuple[str, ...], ahead: str) -> bool:
    """Have NVRTC precompile the prefix `ahead` into the file `path`; return whether it did so without warnings.

    Args:
        words: NVRTC's library, that of its builtins, the name of the unit, and the options.
    """
    library, builtins, source, *options = words
    half = f"{prefix(ahead)}{halves.device_half(ahead)}"
    with open(_half_of(path), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(half)
    text = f"{_INCLUDE}#pragma nv_hdrstop\n"
    pch = [*options, *_QUIET, f"--create-pch={path}"]
    done, messages, _ = _compile(_load(library, builtins), source, text, pch, "", half)
    return done and "warning" not in _without_attributes(messages)[0] and os.path.exists(path)


def reserve(path: str, library: str, builtins: str) -> None:
    """Have NVRTC take its memory for precompiled headers, so that it has the same addresses in all forks.

    Raises:
        OSError: NVRTC cannot be loaded.
    """
    text = f"{_INCLUDE}#pragma nv_hdrstop\n"
    _compile(_load(library, builtins), "empty.cu", text, [*_QUIET, f"--create-pch={path}"], "", "int empty;\n")


def _half_of(path: str) -> str:
    """The file with the device half of a precompiled prefix, which NVRTC compares."""
    return os.path.join(os.path.dirname(path), "half.h")


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
        messages = math_names.restored(_CONTINUED.sub("    ", messages))  # as nvcc prints it
        if result != _SUCCESS:
            return False, messages if messages.strip() else f"nvrtc: error: {_words(nvrtc, result)}\n", b""
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


def main(words: list[str], log: int = 1) -> int:
    """Run the program; its output goes to the file descriptor `log`."""
    library, builtins, *rest = words
    if not rest:
        os.write(log, f"{' '.join(map(str, architectures(library)))}\n".encode())
        return 0
    source, output, folders, *options = rest
    try:
        if reason := kind.refusal(_read(source), folders):
            os.write(log, f"error: {kind.ONLY_NVCC}{reason}\n".encode(errors="surrogateescape"))
            return 1
        threads = int(os.environ.get(THREADS, 1))
        done, messages = compile_half(library, builtins, source, output, options, threads)
    except OSError as error:
        done, messages = False, f"nvrtc: error: {error}\n"
    with open(log, "wb", closefd=False) as file:
        file.write(messages.encode("utf-8", "surrogateescape"))
    return 0 if done else 1
