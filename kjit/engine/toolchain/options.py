"""The table of compiler options: how g++, clang and nvcc spell each, and what it does to a build.

Everything that depends on options reads this table: flags taken apart (`parse`), keys (key/flags.py), what is refused
(compile/refusals.py), NVRTC's options (nvrtc.py), and what clangd must not see (kjit/editor.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

Dialect = str
"""The program that reads the flags, a name in `OPTIONS`: g++ or clang, compiling or linking, or nvcc."""

PLAIN_FOR_CXX = re.compile(r'[^"\n]+')
"""The paths that g++ and clang accept: C++ cannot escape a quote in the name of an include."""

PLAIN_FOR_NVCC = re.compile(r"[\w./+-]+")
"""The paths that nvcc accepts, and writes unchanged in its list of dependencies."""

Meaning = Literal[
    "headers",  # a folder to search for headers
    "prefix",  # the beginning of the folders of `suffix`
    "suffix",
    "libraries",  # a folder to search for libraries
    "library",
    "header",  # a file that is read before the source
    "macro",
    "options",  # a file of further options
    "list",  # flags for another compiler, in one value
    "passed on",  # one word for another compiler
    "for a part",  # words for one of nvcc's parts, or the linker
    "host compiler",
    "standard",
    "architecture",
    "forwarding",  # unknown options go to another compiler
    "",
]

Refused = Literal["", "output", "file", "device link", "no link", "no library"]
"""Why an op may not give it: it makes something else than an object (`output`), names the output (`file`), or asks for
device linking; in a link, it makes something else than a library, also as a word for the linker (`no library`)."""


class Option(NamedTuple):
    """An option of compilers, with all its names.

    Attributes:
        names: separated by spaces; the first is that of g++ and clang, if they have it too.
        value: where its value may be: `n`, in the next word; `=` or `,`, after that sign; `+`, directly after the name.
            Empty if it has none, or none that matters here.
        nvrtc: NVRTC's name for an option of nvcc: `same` for the long name of nvcc, `none` if it does not change a
            cubin, empty if NVRTC does not have it.
        macro: what nvcc defines for it.
        in_cmake: whether build systems give it to nvcc, and clang does not have it.
    """

    names: str
    value: str = ""
    meaning: Meaning = ""
    nvrtc: str = ""
    macro: str = ""
    refused: Refused = ""
    in_cmake: bool = False

    def long(self, name: str) -> str:
        """The long form of one of its names, which come in pairs."""
        names = self.names.split()
        return names[names.index(name) | 1]


_JOINED, _EQUALS = "n+", "n="

_OF_CXX = (
    Option("-I -iquote -isystem -idirafter -cxx-isystem -iwithsysroot", _JOINED, "headers"),
    Option("--include-directory --include-directory-after", _EQUALS, "headers"),
    Option("-iprefix", _JOINED, "prefix"),
    Option("--include-prefix", _EQUALS, "prefix"),
    Option("-iwithprefix -iwithprefixbefore", _JOINED, "suffix"),
    Option(
        "--include-with-prefix --include-with-prefix-before --include-with-prefix-after",
        _EQUALS,
        "suffix",
    ),
    Option("-include -imacros", _JOINED, "header"),
    Option("--include --imacros", _EQUALS, "header"),
    Option("-include-pch", "n", "header"),
    Option("-L", _JOINED, "libraries"),
    Option("--library-directory", _EQUALS, "libraries"),
    Option("-l", _JOINED, "library"),
    Option("-D -U", _JOINED, "macro"),
    Option("--define-macro --undefine-macro", _EQUALS, "macro"),
    Option("@", "+", "options"),
    Option("-Wp", ",", "list"),
    Option("-Xpreprocessor -Xclang", "n", "passed on"),
    Option("-Xlinker", "n", "for a part"),
    Option("-Xassembler -ivfsoverlay -aux-info", "n"),
    Option("-B -T -isysroot -x", _JOINED),
    Option("--sysroot --prefix --config", _EQUALS),
    # They begin like one of those.
    Option("-I- -Bstatic -Bdynamic -Bsymbolic -Ttext -Tdata -Tbss"),
    Option("-o --output", _JOINED, refused="file"),
    Option("-E -S -M -MM -fsyntax-only -### --preprocess --assemble --dependencies --user-dependencies -emit-llvm "
           "-emit-ast --analyze --precompile --help --version -dumpversion -dumpmachine", refused="output"),
    Option("-c -static -static-pie", refused="no link"),
    Option("-r -i --relocatable -pie --pie", refused="no library"),
)  # fmt: skip

_OF_NVCC = (
    Option("-I --include-path", "n=+", "headers"),
    Option("-isystem --system-include", _EQUALS, "headers"),
    Option("-include --pre-include", _EQUALS, "header"),
    Option("-L --library-path", "n=+", "libraries"),
    Option("-l --library", "n=+", "library"),
    Option("-D --define-macro", "n=+", "macro"),
    Option("-U --undefine-macro", "n=+", "macro"),
    Option("-optf --options-file", _EQUALS, "options", in_cmake=True),
    Option("-Xcompiler --compiler-options", _EQUALS, "list", in_cmake=True),
    Option("-Xptxas --ptxas-options", _EQUALS, "for a part", nvrtc="same", in_cmake=True),
    Option("-Xcudafe --cudafe-options -Xnvlink --nvlink-options -Xlinker --linker-options -Xarchive --archive-options "
           "-Xfatbin --fatbin-options -Xnvprune --nvprune-options -Xtileiras --tileiras-options -Xcicc --cicc-options",
           _EQUALS, "for a part", in_cmake=True),
    Option("-ccbin --compiler-bindir", _EQUALS, "host compiler", in_cmake=True),
    Option("-std --std", _EQUALS, "standard", nvrtc="same"),
    Option("-gencode --generate-code -arch --gpu-architecture -code --gpu-code", _EQUALS, "architecture",
           in_cmake=True),
    Option("-rdc --relocatable-device-code", _EQUALS, nvrtc="none", refused="device link", in_cmake=True),
    Option("-dc --device-c -dw --device-w -dlink --device-link -dlto --dlink-time-opt -lto --lto -gen-opt-lto "
           "--gen-opt-lto -ewp --extensible-whole-program", refused="device link"),
    Option("-o --output-file", _EQUALS, refused="file"),
    Option("-E --preprocess -M --generate-dependencies -MM --generate-nonsystem-dependencies -ptx --ptx -cubin --cubin "
           "-fatbin --fatbin -cuda --cuda -optix-ir --optix-ir -ltoir --ltoir -tilebc --tilebc -tilecubin --tilecubin "
           "-tilefatbin --tilefatbin -lib --lib -link --link -run --run -dryrun --dryrun -clean --clean-targets -h "
           "--help -V --version -code-ls --list-gpu-code -arch-ls --list-gpu-arch", refused="output"),
    Option("-t --threads", _EQUALS, nvrtc="none", in_cmake=True),
    Option("-maxrregcount --maxrregcount", _EQUALS, nvrtc="same"),
    Option("-diag-suppress --diag-suppress -diag-warn --diag-warn -diag-error --diag-error", _EQUALS, nvrtc="same"),
    Option("-x --x", _EQUALS),
    Option("-use_fast_math --use_fast_math", nvrtc="same", in_cmake=True),
    Option("-fmad --fmad -ftz --ftz -prec-div --prec-div -prec-sqrt --prec-sqrt -restrict --restrict "
           "-extra-device-vectorization --extra-device-vectorization", nvrtc="same"),
    Option("-w --disable-warnings", nvrtc="--disable-warnings"),
    Option("-lineinfo --generate-line-info", nvrtc="-lineinfo", in_cmake=True),
    Option("-G --device-debug", nvrtc="-G", macro="__CUDACC_DEBUG__"),
    Option("-extended-lambda --extended-lambda -expt-extended-lambda --expt-extended-lambda", nvrtc="none",
           macro="__CUDACC_EXTENDED_LAMBDA__", in_cmake=True),
    Option("-expt-relaxed-constexpr --expt-relaxed-constexpr -res-usage --resource-usage", nvrtc="none", in_cmake=True),
    Option("-O --optimize -g --debug -m --machine -m64 --m64 -no-compress --no-compress -compress-mode --compress-mode "
           "-err-no --display-error-number -no-err-no --no-display-error-number -Wreorder --Wreorder "
           "-Wmissing-launch-bounds --Wmissing-launch-bounds -Wno-deprecated-gpu-targets --Wno-deprecated-gpu-targets "
           "-Wno-deprecated-declarations --Wno-deprecated-declarations -split-compile --split-compile", nvrtc="none"),
    Option("-forward-unknown-to-host-compiler --forward-unknown-to-host-compiler -forward-unknown-opts "
           "--forward-unknown-opts -forward-unknown-to-host-linker --forward-unknown-to-host-linker",
           meaning="forwarding", in_cmake=True),
)  # fmt: skip


def _by_name(options: Iterable[Option]) -> dict[str, Option]:
    return {name: option for option in options for name in option.names.split()}


OPTIONS: dict[Dialect, dict[str, Option]] = {"c++": _by_name(_OF_CXX), "nvcc": _by_name(_OF_NVCC)}
"""The options by name."""

_UNKNOWN = Option("")
_BY_NAME = {**OPTIONS["nvcc"], **OPTIONS["c++"]}
# Single-dash options that may have their value directly after the name, longest first: `-isystem` before `-I`.
_JOINED_NAMES = {
    dialect: sorted(
        (name for name, option in options.items() if "+" in option.value and not name.startswith("--")),
        key=len,
        reverse=True,
    )
    for dialect, options in OPTIONS.items()
}
# nvcc's other options with a number directly after the name.
_WITH_NUMBER = re.compile(r"(-[Omt])\d+")

_WORD = r"""(?:\\.|'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?|[^%s'"\\])+"""
_WORD_OF_FILE = re.compile(_WORD % r"\s", re.DOTALL)
_WORD_OF_LIST = re.compile(_WORD % r"\s,", re.DOTALL)
_QUOTED = re.compile(r"""\\(.)|'((?:\\.|[^'\\])*)'?|"((?:\\.|[^"\\])*)"?""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class Flag(NamedTuple):
    """A flag with its value.

    Attributes:
        name: `-I`; empty for a word that is not an option with a value.
        value: of that option, or the whole word.
        between: the separator: empty, `=` or `,`; None if the value is a separate word.
    """

    name: str
    value: str
    between: str | None = ""

    @property
    def meaning(self) -> Meaning:
        return _BY_NAME.get(self.name, _UNKNOWN).meaning

    def option(self, dialect: Dialect) -> Option:
        """The option; one without a name if it is none that the table has."""
        name = self.name or self.value.partition("=")[0]
        if dialect == "nvcc" and (numbered := _WITH_NUMBER.fullmatch(name)) is not None:
            name = numbered[1]
        return OPTIONS[dialect].get(name, _UNKNOWN)

    def words(self) -> tuple[str, ...]:
        """The flag as words of a command."""
        return (self.name, self.value) if self.between is None else (f"{self.name}{self.between}{self.value}",)

    def values(self, dialect: Dialect) -> list[str]:
        """Its folders or files: nvcc takes several, separated by commas."""
        several = dialect == "nvcc" and self.meaning in ("headers", "libraries", "header", "options")
        return self.value.split(",") if several else [self.value]

    def listed(self) -> list[str]:
        """The flags in a list, separated by commas, and for nvcc, which starts a shell, by spaces too."""
        return self.value.split(",") if self.between == "," else _split(self.value, _WORD_OF_LIST)


def parse(words: Iterable[str], dialect: Dialect = "c++") -> Iterator[Flag]:
    """The flags in a command's words; their words, joined, are `words` again."""
    rest = iter(words)
    for word in rest:
        flag = _parse_word(word, dialect)
        if flag.between is None:
            following = next(rest, None)
            # The compiler reports a missing value.
            yield Flag("", word) if following is None else flag._replace(value=following)
        else:
            yield flag


def _parse_word(word: str, dialect: Dialect) -> Flag:
    """A flag; `between` is None if its value is the next word."""
    options = OPTIONS[dialect]
    if word in options and "n" in options[word].value:
        return Flag(word, "", None)
    for sign in "=,":
        name, found, value = word.partition(sign)
        if found and sign in options.get(name, _UNKNOWN).value:
            return Flag(name, value, sign)
    name = word.partition("=")[0]
    if name not in options or options[name].value:
        for name in _JOINED_NAMES[dialect]:
            if word.startswith(name):
                return Flag(name, word[len(name) :])
    return Flag("", word)


def expand(words: Iterable[str], dialect: Dialect = "c++") -> Iterator[tuple[Flag, Dialect]]:
    """All flags for a compiler and its subprograms: those from an options file follow the flag that names the file,
    those passed on to a subprogram follow the flag that passes them."""
    yield from _expand(words, dialect, ())


def _expand(words: Iterable[str], dialect: Dialect, inside: tuple[str, ...]) -> Iterator[tuple[Flag, Dialect]]:
    passed_on: list[str] = []
    for flag in parse(words, dialect):
        yield flag, dialect
        if flag.meaning == "list":
            yield from _expand(flag.listed(), "c++", inside)
        elif flag.meaning == "passed on":
            passed_on.append(flag.value)
        elif flag.meaning == "options":
            for path in flag.values(dialect):
                if path not in inside:
                    yield from _expand(words_of_file(path), dialect, (*inside, path))
    if passed_on:
        yield from _expand(passed_on, "c++", inside)


def words_of_file(path: str) -> list[str]:
    """The words in an options file; none if it cannot be read, which the compiler reports."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return _split(file.read(), _WORD_OF_FILE)
    except OSError:
        return []


def _split(text: str, word: re.Pattern[str]) -> list[str]:
    """The words in a text, with quotes and backslashes."""

    def unquoted(match: re.Match[str]) -> str:
        return match[1] if match[1] is not None else _ESCAPED.sub(r"\1", match[2] if match[2] is not None else match[3])

    return [_QUOTED.sub(unquoted, each) for each in word.findall(text)]


def is_off(flag: Flag) -> bool:
    """Whether a flag turns something off: `-rdc=false`."""
    return (flag.value if flag.name else flag.value.partition("=")[2]) == "false"


def options_for_clangd_to_remove() -> list[str]:
    """The options that build systems give to nvcc and clang does not have, in clangd's patterns."""
    every = [(name, option) for option in _OF_NVCC if option.in_cmake for name in option.names.split()]
    return sorted(word for name, option in every for word in ([name, f"{name}=*"] if option.value else [name]))
