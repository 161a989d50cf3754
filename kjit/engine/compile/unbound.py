"""Stubs for the undefined functions of a library whose flags allow them: a call raises an error.

With lazy binding, an undefined function fails at its first call, where the loader ends the process. This program runs
the link of a build. If the linker reports undefined functions, it writes and compiles a unit that defines them, and
links again. For each function, the unit has a jump to the function of that name in the process, or, if there is none
when the library is loaded, to code that throws an exception with the name. So `-Wl,-z,undefs` works as documented, and
a call is an error like any other.

Only called functions get stubs. For variables, and functions whose address is taken, the loader must find the symbol.
"""

# It runs as a file, without kjit's package: it imports the standard library only.
from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Sequence

_UNDEFINED = re.compile(r"undefined (?:hidden )?(?:reference to|symbol:) [`']?(?P<name>[\w.$@]+)")
# The relocation type of a function called through the PLT, by machine: x86-64 and aarch64.
_JUMP_SLOTS = {62: 7, 183: 1026}
_RELA, _DYNSYM = 4, 11
# Last in a link, so that they take precedence: report undefined symbols, and link anyway.
_REPORT = ("-Wl,-z,defs", "-Wl,--warn-unresolved-symbols", "-Wl,--no-demangle")
_FLAGS = ("-fPIC", "-fvisibility=hidden", "-std=c++17", "-O1")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ENTRY = struct.Struct("<QQq")

_UNIT = """\
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

[[noreturn]] void refuse(const char* symbol) {
  int status = 0;
  char* readable = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const std::string name = readable != nullptr ? readable : symbol;
  std::free(readable);
  throw std::runtime_error("undefined function: " + name +
                           " was called; no source and no library of the module defines it");
}

void* find(const char* symbol, void (*otherwise)()) {
  void* found = dlsym(RTLD_DEFAULT, symbol);
  return found != nullptr ? found : reinterpret_cast<void*>(otherwise);
}

}  // namespace

#if defined(__aarch64__)
#define KJIT_JUMP(Slot) "adrp x16, " Slot "\\nldr x16, [x16, :lo12:" Slot "]\\nbr x16\\n"
#else
#define KJIT_JUMP(Slot) "jmp *" Slot "(%rip)\\n"
#endif

#define KJIT_UNBOUND(Index, Symbol)                                                                        \\
  extern "C" __attribute__((visibility("hidden"))) void* kjit_unbound_##Index;                             \\
  void* kjit_unbound_##Index = find(Symbol, [] { refuse(Symbol); });                                       \\
  asm(".pushsection .text\\n.globl " Symbol "\\n.hidden " Symbol "\\n.type " Symbol ", %function\\n" Symbol ":\\n" \\
      KJIT_JUMP("kjit_unbound_" #Index) ".size " Symbol ", . - " Symbol "\\n.popsection\\n");

"""


def called(library: bytes) -> set[str]:
    """The symbols of the functions that a shared library calls through its PLT."""
    (machine,) = struct.unpack_from("<H", library, 18)
    (sections_at,) = struct.unpack_from("<Q", library, 40)
    size, count = struct.unpack_from("<HH", library, 58)
    sections = [_SECTION.unpack_from(library, sections_at + index * size) for index in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind != _RELA or link >= count or sections[link][1] != _DYNSYM:
            continue
        symbols_at, strings_at = sections[link][4], sections[sections[link][6]][4]
        for at in range(offset, offset + length, _ENTRY.size):
            _, info, _ = _ENTRY.unpack_from(library, at)
            if info & 0xFFFFFFFF == _JUMP_SLOTS.get(machine):
                (name,) = struct.unpack_from("<I", library, symbols_at + (info >> 32) * 24)
                begin = strings_at + name
                found.add(library[begin : library.index(b"\0", begin)].decode(errors="replace"))
    return found


def unit(symbols: Sequence[str]) -> str:
    """The C++ that defines functions of these symbols."""
    return _UNIT + "".join(f'KJIT_UNBOUND({index}, "{symbol}")\n' for index, symbol in enumerate(symbols))


def asks(flags: Sequence[str]) -> bool:
    """Whether the flags of a link allow undefined functions, and do not require binding all of them at load."""
    words = [word for flag in flags if flag != "-Xlinker" for word in flag.removeprefix("-Wl,").split(",")]
    chosen = [words[index + 1] for index, word in enumerate(words[:-1]) if word == "-z"]
    return ("undefs" in chosen or "lazy" in chosen) and "now" not in chosen


def main(name: str, position: str, *link: str) -> int:
    """Run the command `link`, with stubs for undefined functions if there are some.

    Args:
        name: the prefix of the files of the stubs.
        position: the place in `link` for their object.
    """
    printed = _run(*link, *_REPORT)
    symbols = dict.fromkeys(match["name"] for match in _UNDEFINED.finditer(printed))
    if not symbols:
        sys.stderr.write(printed)
        return 0
    library, source, stubs = f"{name}.so", f"{name}.cpp", f"{name}.o"
    _run(*link, "-o", library, "-Wl,-z,lazy", *_REPORT)
    with open(library, "rb") as file:
        found = called(file.read())
    with open(source, "w", encoding="utf-8") as file:
        file.write(unit([symbol for symbol in symbols if symbol in found]))
    _run(link[0], *_FLAGS, "-c", source, "-o", stubs)
    sys.stderr.write(_run(*link[: int(position)], stubs, *link[int(position) :]))
    return 0


def _run(*command: str) -> str:
    """The output of a command. If it fails, this program prints that, and ends with its status."""
    done = subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", check=False)
    printed = done.stdout + done.stderr
    if done.returncode != 0:
        sys.stderr.write(printed)
        sys.exit(done.returncode)
    return printed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
