"""The device half (for NVRTC) and the host half (for a C++ compiler) of a preprocessed CUDA unit.

nvcc preprocesses a unit twice, for the host and for a device, and rewrites both results with a front end of its own.
kjit preprocesses it with the same macros and headers; NVRTC then has the same front end, and the C++ compiler needs one
only for what is not C++: kernels, device functions and launches. The preprocessor's line markers are kept, so that
errors name the user's lines.

**The device half** is the unit itself. Its host functions instantiate the kernels that they launch, so that NVRTC puts
every kernel into the cubin without a list of names. NVRTC declares some types itself, which are removed from headers of
CUDA, and functions, which have other names in the half (math_names.py). `kjit_rtc/device.h` gives it the keywords and
builtins of GCC.

**The host half** has the unit's host code, unchanged. A kernel is a function that passes its arguments to the CUDA
runtime (`kjit_rtc/host.h`), as by nvcc; a launch in angle brackets is a call of it; device functions have no bodies.
Text is split into tokens for that: literals, comments and line markers are no code. `NotUnderstoodError` is raised for
a kernel or a launch that is not of a known form.

Few imports: it starts twice for every compiled unit.
"""

from __future__ import annotations

import re

from kjit.cpp_text import LITERAL, MARKER, NAME, NUMBER
from kjit.engine.compile import math_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# A pattern that begins with literal text is searched for much faster than others.
_MARKER = re.compile(rf"\n{MARKER}")
_STRING = rf"(?P<string>{LITERAL})"
_NUMBER = rf"(?P<number>{NUMBER})"
_TOKEN = re.compile(
    rf"""(?P<space>\s+|^\#.*$)
    |{_STRING}
    |{_NUMBER}
    |(?P<name>{NAME})
    |(?P<sign>::|->|\.\.\.|<<<|>>>|<=>|<<|<=|&&|[\s\S])""",
    re.VERBOSE | re.MULTILINE,
)
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_BRACKET = re.compile(rf"{_STRING}|(?<![\w$]){_NUMBER}|[][(){{}}]|^\#.*$", re.MULTILINE)

# What only CUDA's compilers know in the head of a function.
# (`__noinline__` cannot be a macro, as the C++ library has it in attributes.)
_OF_HEAD = re.compile(
    r"(?P<bounds>__attribute__\(\((?:launch_bounds|cluster_dims|maxnreg|block_size)\()"
    r"|(?P<noinline>(?<![\w(,])__noinline__(?![\w),]))"
)
# CUDA's annotations after preprocessing, launches, and what separates statements.
_SITE = re.compile(
    rf"{_STRING}|(?<![\w$]){_NUMBER}|^\#.*$"
    # Annotations of a deduction guide, which the C++ compiler rejects there.
    r"|(?P<guide>(?:__attribute__\(\((?:host|device)\)\)\s*)+(?=(?:explicit\s+)?\w+\s*\([^;{}]*\)\s*->))"
    r"|(?P<annotation>__attribute__\(\((?P<space>global|device|managed)\)\))"
    rf"|{_OF_HEAD.pattern}"
    r"|(?P<launch><<<)|(?P<end>[;{}])",
    re.MULTILINE,
)
_CANDIDATE = re.compile(
    r"\(\((?:global|device|managed)\)\)|\(\((?:launch_bounds|cluster_dims|maxnreg|block_size)\(|<<<"
)
_CANDIDATE_OF_CUDA = re.compile(r"\(\(global\)\)|\(\((?:launch_bounds|cluster_dims|maxnreg|block_size)\(|<<<|\)\s*->")
# Headers of the C library that only add checks to its functions, with builtins of GCC (_FORTIFY_SOURCE).
_FORTIFIED = re.compile(
    r"/bits/(?:strings?_fortified|\w+2(?:-decl)?|stdlib|unistd(?:-decl)?|syslog|error|setjmp2|wchar2(?:-decl)?)\.h$"
)
# Arrays without elements at the ends of structures in the C library's headers.
_FLEXIBLE = re.compile(r"^([ \t]+(?!(?:extern|return)\b)(?:\w+ )+\**\w+ *)\[0?\];", re.MULTILINE)
_OF_C_LIBRARY = re.compile(r"^/usr/include/(?!c\+\+/).*\.h$")
# Declarations of functions of the C++ library, without the library's `constexpr`.
_REDECLARED = re.compile(
    r"^(?:template\s*<[^;{}]*>\s*)?extern [^;{}]*__attribute__\(\(cudart_builtin\)\)[^;{}]*;", re.MULTILINE
)
_FOR_HOST = re.compile(r"__attribute__\(\(host\)\)|\bconst(?:expr|eval)\b")
# A parenthesis after one of these names does not open a list of parameters.
_WITH_ARGUMENT = frozenset(
    ("decltype", "alignas", "__attribute__", "__attribute", "explicit", "requires", "noexcept", "typeof", "__typeof__")
)
_LAMBDA = re.compile(r"\](?:\s|^\#.*$|__attribute__\(\(\w+\)\))*__attribute__\(\((?:device|host)\)\)", re.MULTILINE)
# The flags of a line marker in one of CUDA's headers, or of the C library's.
_OF_SYSTEM = " 3 4"
# The flags 1 and 2 of a line marker, for the beginning and the end of an included file. NVRTC believes them, and reads
# text twice where 30 files include each other: it makes room by closing the outermost, and opens it again.
_NESTING = re.compile(r'^(# \d+ "[^"\n]*") [12]\b', re.MULTILINE)
# Line markers and line ends: all that remains of removed text.
_LINES = re.compile(r"^\# \d.*\n|\n", re.MULTILINE)
_BEFORE_LAUNCH = frozenset(("return", "else", "do", "co_return", "throw", "case", "default", "and", "or", "not"))

_VECTOR = re.compile(
    r"^(?:struct\s(?:(?![{;]).)*?\b\w+\s*\{.*?\};|typedef\s(?:(?!;).)*?\b\w+\s*;)", re.MULTILINE | re.DOTALL
)
_DIM3 = re.compile(r"\bdim3\b")
_PACK = re.compile(r"(\w+)<(?:(\w+), *)?__integer_pack\(((?:[^()]|\([^()]*\))*)\)\.\.\.>")
_COMPLEX = re.compile(r"__complex__\s+(float|double|long double)\b")
# Values of enumerations in GCC 15's <ios>, with an attribute that NVRTC rejects there; GCC's type of a literal.
_UNUSED_VALUE = re.compile(r"(_S_\w+) __attribute__\(\(__unused__\)\) =")
_BFLOAT = re.compile(r"(?:__)?decltype\(0\.0bf16\)")
# The numbers of GCC's own types, with literals that NVRTC does not read.
_LIMITS = re.compile(r"^(__extension__ template<> struct numeric_limits<(_Float\d+x?)>) .*", re.MULTILINE)
_OF_LIBRARY = re.compile(r"/c\+\+/|/cuda/std/")
# Friends by names that a using-declaration brings into Thrust's namespace.
_FRIEND = re.compile(r"\bfriend class (thrust::\w+;)")
# In GCC's <ranges>, a default member initializer of an inner class that NVRTC rejects.
_OF_ITSELF = "_OuterIter _M_i = _OuterIter();"


class NotUnderstoodError(Exception):
    """Code that only nvcc can be trusted with.

    Attributes:
        file: of the code, as the line markers name it.
        line: from one.
    """

    def __init__(self, text: str, unit: str, position: int) -> None:
        super().__init__(text)
        self.file, self.line = place(unit, position)


def place(unit: str, position: int) -> tuple[str, int]:
    """The file and the line of a position in a preprocessed unit."""
    for marker in _markers_before(unit, position):
        file = re.sub(r"\\(.)", r"\1", marker["file"])
        return file, int(marker["line"]) + unit.count("\n", marker.end(), position) - 1
    return "", 1


def _markers_before(unit: str, position: int) -> Iterator[re.Match[str]]:
    at = position
    while (at := unit.rfind("\n# ", 0, at)) >= 0:
        if (marker := _MARKER.match(unit, at)) is not None:
            yield marker


class _Piece:
    """The text between a line marker and the next one: `unit[begin:end]`."""

    __slots__ = ("begin", "end", "file", "is_system")

    def __init__(self, begin: int, end: int, file: str, is_system: bool) -> None:
        self.begin = begin
        self.end = end
        self.file = file
        self.is_system = is_system


def _pieces(unit: str) -> Iterator[_Piece]:
    """All of a unit that begins with a line end, in order."""
    begin, file, is_system = 0, "", False
    for marker in _MARKER.finditer(unit):
        yield _Piece(begin, marker.start(), file, is_system)
        begin, file, is_system = marker.end(), marker["file"], " 3" in marker["flags"]
    yield _Piece(begin, len(unit), file, is_system)


def device_half(unit: str) -> str:
    """The preprocessed `unit`, rewritten for NVRTC."""
    unit = f"\n{unit}"
    kept: list[str] = []
    start = 0
    own = set()
    for piece in _pieces(unit):
        if not piece.is_system:
            own.add(piece.file)
            continue
        if piece.file in own:
            # A macro of a system header, as all of CUDA's annotations are. NVRTC would report no error there.
            end = piece.begin - len(_OF_SYSTEM)
            if unit.startswith(_OF_SYSTEM, end):
                kept.append(unit[start:end])
                start = piece.begin
            continue
        text = unit[piece.begin : piece.end]
        if (changed := _without_clashes(piece.file, text)) is not text:
            kept += [unit[start : piece.begin], changed]
            start = piece.end
    kept.append(unit[start:])
    return _NESTING.sub(r"\1", "".join(kept)[1:])


def _without_clashes(file: str, text: str) -> str:
    """The text of a header without what NVRTC declares itself, and without GCC's keywords that no macro can replace."""
    if file.endswith("/crt/math_functions.h"):
        return math_names.without_builtins(text)
    if file.endswith("/vector_types.h"):
        return _VECTOR.sub(lambda match: match[0] if _DIM3.search(match[0]) else "\n" * match[0].count("\n"), text)
    if _FORTIFIED.search(file):
        return "\n" * text.count("\n")
    if "__integer_pack" in text and _OF_LIBRARY.search(file):
        text = _PACK.sub(_sequence, text)
    if "__complex__" in text and _OF_LIBRARY.search(file):
        text = _COMPLEX.sub(lambda match: f"::kjit_rtc::complex_{match[1].replace(' ', '_')}", text)
    if "__unused__)) =" in text and _OF_LIBRARY.search(file):
        text = _UNUSED_VALUE.sub(r"\1 =", text)
    if "0.0bf16" in text:
        text = _BFLOAT.sub("::kjit_rtc::Bfloat", text)
    if "numeric_limits<_Float" in text and _OF_LIBRARY.search(file):
        text = _LIMITS.sub(r"\1 : numeric_limits<\2::type> {};", text)
    if "/thrust/" in file:
        text = _FRIEND.sub(r"friend \1", text)
    if _OF_C_LIBRARY.match(file):
        text = _FLEXIBLE.sub(r"\1[1];", text)
    return text.replace(_OF_ITSELF, "type_identity_t<_OuterIter> _M_i{};") if _OF_ITSELF in text else text


def _sequence(match: re.Match[str]) -> str:
    name, type_, count = match.groups()
    if type_ is None:
        return f"::kjit_rtc::sequence<{name}, {count}>"
    return f"::kjit_rtc::typed_sequence<{name}, {type_}, {count}>"


def host_half(unit: str) -> str:
    """The preprocessed `unit`, rewritten for a C++ compiler.

    Raises:
        NotUnderstoodError: it has code that only nvcc compiles, or a kernel or a launch of an unknown form.
    """
    return _HostHalf(f"\n{unit}").text()[1:]


class _HostHalf:
    """The rewriter of one unit."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._kept: list[str] = []
        self._start = 0  # of the text that has not been copied
        self._statement = 0

    def text(self) -> str:
        cuda = ""
        # With kjit's stand-ins, what CUDA's device functions call is not declared for the C++ compiler.
        is_whole = "/kjit_rtc/cuda/crt/" not in self._unit
        for piece in _pieces(self._unit):
            if is_whole and not cuda and piece.file.endswith("/cuda_runtime.h"):
                cuda = piece.file.removesuffix("cuda_runtime.h")
            is_of_cuda = bool(cuda) and piece.file.startswith(cuda)
            if is_of_cuda and piece.file.endswith("/crt/math_functions.h"):
                for match in _REDECLARED.finditer(self._unit, piece.begin, piece.end):
                    self._replace(match.start(), match.end(), "")
                continue
            candidate = _CANDIDATE_OF_CUDA if is_of_cuda else _CANDIDATE
            # In the op's own files, every statement is looked at; in others, those with something of CUDA.
            if not piece.is_system or candidate.search(self._unit, piece.begin, piece.end):
                self._look(max(piece.begin, self._start), piece.end, is_of_cuda=is_of_cuda)
        self._kept.append(self._unit[self._start :])
        return "".join(self._kept)

    def _look(self, begin: int, end: int, *, is_of_cuda: bool) -> None:
        unit = self._unit
        for site in _SITE.finditer(unit, begin, end):
            if site.start() < self._start:
                continue
            if site["end"]:
                self._statement = site.end()
            elif site["launch"]:
                self._launch(site.start())
            elif site["guide"] or site["noinline"]:
                self._replace(site.start(), site.end(), "")
            elif site["bounds"]:
                self._remove_attribute(site.start())
            elif site["annotation"]:
                if site["space"] == "managed":
                    raise NotUnderstoodError("only nvcc registers __managed__ variables", unit, site.start())
                if not is_of_cuda and self._is_lambda(site.start()):
                    raise NotUnderstoodError("only nvcc compiles __device__ lambdas", unit, site.start())
                if site["space"] == "global":
                    self._kernel(site.start())
                elif not is_of_cuda:  # CUDA's device functions are inline
                    self._device_function(site.start())

    def _is_lambda(self, position: int) -> bool:
        bracket = self._unit.rfind("]", 0, position)
        return bracket >= 0 and _LAMBDA.match(self._unit, bracket) is not None

    def _remove_attribute(self, position: int) -> None:
        self._replace(position, _after_bracket(self._unit, position + len("__attribute__")), "")

    def _replace(self, begin: int, end: int, text: str) -> None:
        """Replace text by `text` and the lines that it had."""
        lines = _LINES.findall(self._unit, begin, end)
        self._kept += [self._unit[self._start : begin], text, *lines]
        self._start = end

    def _device_function(self, position: int) -> None:
        found = _function(self._unit, position)
        if found is None:
            self._instantiation(position)
            return
        if found.is_for_host or found.is_deduced:
            return
        # A member that is defined outside its class cannot be declared there again.
        begin = max(self._statement, self._start) if found.is_member else found.body
        self._clean_head(position, begin)
        self._replace(begin, found.end, ";")

    def _clean_head(self, begin: int, end: int) -> None:
        """Remove what only CUDA's compilers know from the head of a function."""
        for found in _OF_HEAD.finditer(self._unit, begin, end):
            if found["bounds"]:
                self._remove_attribute(found.start())
            else:
                self._replace(found.start(), found.end(), "")

    def _instantiation(self, position: int) -> None:
        """Remove an explicit instantiation of a device function, which has no definition."""
        unit = self._unit
        begin = max(self._statement, self._start)
        words = [text for _, text, _, _ in _tokens(unit, begin, position)]
        if words[:1] != ["template"] or words[1:2] == ["<"]:
            return
        end = position
        while (found := _TOKEN.match(unit, end)) is not None and found[0] != ";":
            end = _after_bracket(unit, end) if found[0] in _CLOSES else found.end()
        if _FOR_HOST.search(unit, begin, end) is None:
            self._replace(begin, end, "")

    def _kernel(self, position: int) -> None:
        found = _function(self._unit, position)
        if found is None:
            return  # a declaration
        self._clean_head(position, found.parameters)
        tokens = list(_tokens(self._unit, found.parameters + 1, found.close))
        after = next(_tokens(self._unit, found.close + 1, found.body + 1), None)
        is_in_parentheses = after is not None and after[1] == "("  # its name
        names: list[str] = []
        for parameter in _split(tokens):
            name, is_missing = _name_of(parameter)
            if name is None or is_in_parentheses:
                raise NotUnderstoodError("only nvcc understands the parameters of this kernel", self._unit, position)
            if is_missing:
                name = f"kjit_parameter{len(names)}"
                at = _end_of_type(parameter)
                self._kept += [self._unit[self._start : at], f" {name}"]
                self._start = at
            names.append(f"{name}..." if any(token[1] == "..." for token in parameter) else name)
        types = ", ".join(
            f"decltype({name.removesuffix('...')}){name[len(name.removesuffix('...')) :]}" for name in names
        )
        arguments = ", ".join(["&kjit_kernel", *names])
        body = (
            f"{{ __attribute__((used)) static ::kjit_rtc::Kernel<{types}> kjit_kernel; "
            f"::kjit_rtc::launch({arguments}); }}"
        )
        self._replace(found.body, found.end, body)

    def _launch(self, position: int) -> None:
        """Turn `kernel<<<configuration>>>(arguments)` into what nvcc makes of it: the configuration is pushed, and the
        kernel's function, which pops it, is called."""
        unit = self._unit
        configuration = position + len("<<<")
        end = configuration
        while (found := _TOKEN.match(unit, end)) is not None and found[0] != ">>>":
            if found[0] in (";", "<<<", ")", "]", "}"):
                found = None
                break
            end = _after_bracket(unit, end) if found[0] in _CLOSES else found.end()
        tokens = list(_tokens(unit, max(self._statement, self._start), position))
        if tokens and tokens[-1][1] == "operator" and found is None:
            return
        begin = _begin_of_launch(tokens)
        after = next(_tokens(unit, end + len(">>>"), len(unit)), None) if found is not None else None
        if found is None or begin is None or after is None or after[1] != "(":
            raise NotUnderstoodError("only nvcc understands this launch", unit, position)
        self._kept += [
            unit[self._start : begin],
            f"(::__cudaPushCallConfiguration({unit[configuration:end]})) ? (void)0 : ",
            unit[begin:position],
        ]
        self._start = end + len(">>>")


# A token: its kind (a group of `_TOKEN`), its text, and its begin and end in the unit.
_Token = tuple[str, str, int, int]


def _tokens(unit: str, begin: int, end: int) -> Iterator[_Token]:
    """The tokens of a part of a unit, without space and line markers."""
    for match in _TOKEN.finditer(unit, begin, end):
        kind = "string" if match.lastgroup == "fence" else str(match.lastgroup)
        if kind != "space":
            yield kind, match[0], match.start(), match.end()


class _Function:
    """A function that is defined.

    Attributes:
        parameters: the position of the parenthesis that opens its parameters.
        close: that of the one that closes them.
        body: that of its opening brace, or of the colon before it.
        end: the position after its closing brace.
        is_member: it is a member, defined outside its class.
        is_for_host: host code may call it, or evaluate it at compile time (`constexpr`).
        is_deduced: its result type is that of its body (`auto`).
    """

    __slots__ = ("body", "close", "end", "is_deduced", "is_for_host", "is_member", "parameters")

    def __init__(
        self, parameters: int, close: int, body: int, end: int, is_member: bool, is_for_host: bool, is_deduced: bool
    ) -> None:
        self.parameters = parameters
        self.close = close
        self.body = body
        self.end = end
        self.is_member = is_member
        self.is_for_host = is_for_host
        self.is_deduced = is_deduced


def _function(unit: str, position: int) -> _Function | None:
    """The function that the annotation at `position` applies to, if it has a body."""
    begin = max(unit.rfind(sign, 0, position) for sign in ";{}") + 1
    before = ""
    parameters = close = -1
    is_member = is_for_host = is_auto = has_result = False
    while (found := _TOKEN.match(unit, position)) is not None:
        text, at, position = found[0], found.start(), found.end()
        if found.lastgroup == "space":
            continue
        if text == "(" and found.lastgroup == "sign":
            position = _after_bracket(unit, at)
            if before not in _WITH_ARGUMENT and before != "operator" and parameters < 0:
                parameters, close = at, position - 1
                is_for_host = _FOR_HOST.search(unit, begin, at) is not None
            text = ")"
        elif text == "<" and parameters < 0 and before != "operator":
            position = _after_arguments(unit, at)
        elif text in (";", "=", "}") and found.lastgroup == "sign" and before != "operator":
            return None
        elif text == "{" or (text == ":" and parameters >= 0):
            if parameters < 0:
                return None
            brace = at if text == "{" else _after_initializers(unit, position)
            end = _after_bracket(unit, brace)
            return _Function(parameters, close, at, end, is_member, is_for_host, is_auto and not has_result)
        elif parameters < 0:
            is_auto = is_auto or text == "auto"
            if text != "::":
                is_member = before == "::" and found.lastgroup == "name"
        elif text == "->":
            has_result = True
        before = text
    return None


def _after_initializers(unit: str, position: int) -> int:
    """The position of the brace that opens a constructor's body; `position` is after the colon."""
    before = ""
    while (found := _TOKEN.match(unit, position)) is not None:
        text, at, position = found[0], found.start(), found.end()
        if found.lastgroup == "space":
            continue
        if text == "{" and before in (")", "}"):
            return at
        if text in ("(", "{"):
            position = _after_bracket(unit, at)
            text = _CLOSES[text]
        before = text
    return len(unit)


def _after_bracket(unit: str, position: int) -> int:
    """The position after the bracket that closes the one at `position`."""
    expected: list[str] = []
    for match in _BRACKET.finditer(unit, position):
        text = match[0]
        if text in _CLOSES:
            expected.append(_CLOSES[text])
        elif expected and text == expected[-1]:
            expected.pop()
            if not expected:
                return match.end()
    return len(unit)


def _after_arguments(unit: str, position: int) -> int:
    """The position after the template arguments that begin with the `<` at `position`."""
    depth = 0
    while (match := _TOKEN.match(unit, position)) is not None:
        text = match[0]
        if text in _CLOSES and match.lastgroup == "sign":
            position = _after_bracket(unit, position)
            continue
        position = match.end()
        if text == "<":
            depth += 1
        elif text in (">", ">>>"):
            depth -= len(text)
            if depth <= 0:
                return position
        elif text in (";", "}"):
            return position  # it was not a list of arguments
    return len(unit)


_FUNDAMENTAL = frozenset(
    (
        *("void", "bool", "char", "wchar_t", "char8_t", "char16_t", "char32_t", "short", "int", "long", "signed"),
        *("unsigned", "float", "double", "auto", "__int128", "__int128_t", "_Float16", "__bf16"),
    )
)
_QUALIFIERS = frozenset(
    (
        *("const", "volatile", "__restrict__", "__restrict", "restrict", "typename", "register"),
        *("struct", "class", "union", "enum"),
    )
)


def _split(tokens: list[_Token]) -> list[list[_Token]]:
    """The parameters of a function, each without its default value; empty for `(void)`. One without tokens stands for
    parameters that are not understood."""
    found: list[list[_Token]] = [[]]
    depth = angles = 0
    is_default = False
    for token in tokens:
        text = token[1]
        if token[0] == "sign":
            depth += (text in _CLOSES) - (text in ")]}")
            if depth == 0 and text == "<":
                angles += 1
            elif depth == 0 and text in (">", ">>>"):
                angles = max(angles - len(text), 0)
            elif depth == angles == 0 and text == ",":
                found.append([])
                is_default = False
                continue
            elif depth == angles == 0 and text == "=":
                is_default = True
        if not is_default:
            found[-1].append(token)
    if angles > 0:
        return [[]]  # `int x = a < b, int y`
    return [] if [token[1] for each in found for token in each] in ([], ["void"]) else found


def _name_of(parameter: list[_Token]) -> tuple[str | None, bool]:
    """The name of a parameter, and whether it has none; None if its declaration is not understood."""
    words = _without_attributes(parameter)
    if (place := _declarator(words)) >= 0:
        # A pointer to a function or an array: `void (*name)(int)`.
        inner = words[place + 1 : _closing(words, place)]
        names = [each for each in inner if each[1] not in _QUALIFIERS and each[1] not in ("*", "&", "&&")]
        is_pointer = bool(inner) and inner[0][1] in ("*", "&", "&&")
        return (names[0][1] if is_pointer and len(names) == 1 and names[0][0] == "name" else None), False
    is_array = bool(words) and words[-1][1] == "]"
    while words and words[-1][1] == "]":
        words = words[: _opening(words, len(words) - 1)]
    if not words:
        return None, False
    kind, text, _, _ = words[-1]
    types = [each for each in words[:-1] if each[1] not in _QUALIFIERS and each[1] != "..."]
    is_elaborated = len(words) > 1 and words[-2][1] in ("struct", "class", "union", "enum", "typename", "::")
    if kind == "name" and text not in _FUNDAMENTAL | _QUALIFIERS and types and not is_elaborated:
        return text, False
    is_type = not is_array and (kind == "name" or text in (">", "*", "&", "&&", "...", ")"))
    return ("" if is_type else None), True


def _declarator(words: list[_Token]) -> int:
    """The index of the parenthesis of a declarator in a parameter; -1 if there is none."""
    index = angles = 0
    while index < len(words):
        kind, text, _, _ = words[index]
        if kind == "sign" and text in _CLOSES:
            if angles == 0 and text == "(" and (index == 0 or words[index - 1][1] not in _WITH_ARGUMENT):
                return index
            index = _closing(words, index)
        elif kind == "sign":
            angles += (text == "<") - (len(text) if text in (">", ">>>") else 0)
        index += 1
    return -1


def _closing(tokens: list[_Token], index: int) -> int:
    """The index of the bracket that closes the one at `index`; the number of tokens if there is none."""
    depth = 0
    for at in range(index, len(tokens)):
        if tokens[at][0] == "sign":
            depth += (tokens[at][1] in _CLOSES) - (tokens[at][1] in ")]}")
            if depth == 0:
                return at
    return len(tokens)


def _without_attributes(tokens: list[_Token]) -> list[_Token]:
    kept: list[_Token] = []
    index = 0
    while index < len(tokens):
        text = tokens[index][1]
        if text in ("__attribute__", "alignas", "__attribute") or (
            text == "[" and tokens[index + 1 : index + 2] and tokens[index + 1][1] == "["
        ):
            depth = 0
            while index < len(tokens):
                depth += (tokens[index][1] in _CLOSES) - (tokens[index][1] in ")]}")
                index += 1
                if depth == 0 and tokens[index - 1][1] in ")]}":
                    break
            continue
        kept.append(tokens[index])
        index += 1
    return kept


def _end_of_type(parameter: list[_Token]) -> int:
    return _without_attributes(parameter)[-1][3]


def _begin_of_launch(tokens: list[_Token]) -> int | None:
    """The position of a launch of the expression that ends with the last of `tokens`; None if that is not clear."""
    begin = _begin_of_callee(tokens)
    before = [token for token in tokens if begin is None or token[2] < begin]
    words = [text for _, text, _, _ in before]
    if begin is None or words[-1:] == ["<"]:
        return None  # `k<a < b><<<...>>>`
    return before[-3][2] if words[-3:] == ["(", "void", ")"] else begin


def _begin_of_callee(tokens: list[_Token]) -> int | None:
    """The position of the expression that ends with the last of `tokens` and is called; None if that is not clear."""
    index = len(tokens) - 1
    while index >= 0:
        kind, text, _, _ = tokens[index]
        if text in (">", ">>>") and kind == "sign":
            index = _opening_angle(tokens, index) - 1
            if index < 0 or tokens[index][0] != "name":
                return None
            continue
        if text in (")", "]") and kind == "sign":
            index = _opening(tokens, index)
            if index < 0:
                return None
            before = tokens[index - 1] if index > 0 else None
            if before is not None and before[1] == ")":
                return None  # `if (x) (kernel)<<<...>>>`, or a cast
            is_operand = before is not None and (
                before[1] in ("]", ">") or (before[0] == "name" and before[1] not in _BEFORE_LAUNCH)
            )
            if is_operand:
                index -= 1
                continue
            return tokens[index][2]
        if kind != "name" or text in _BEFORE_LAUNCH:
            return None
        before = tokens[index - 1] if index > 0 else None
        if before is not None and before[1] == "template" and index > 1 and tokens[index - 2][1] in (".", "->", "::"):
            index -= 1
            before = tokens[index - 1]
        if before is None or before[1] not in (".", "->", "::"):
            return tokens[index][2]
        if before[1] == "::" and (index < 2 or not (tokens[index - 2][0] == "name" or tokens[index - 2][1] == ">")):
            return before[2]
        if before[1] == "::" and tokens[index - 2][1] in _BEFORE_LAUNCH:
            return before[2]
        index -= 2
    return None


def _opening(tokens: list[_Token], index: int) -> int:
    """The index of the bracket that the one at `index` closes; -1 if there is none."""
    depth = 0
    for at in range(index, -1, -1):
        if tokens[at][0] == "sign":
            depth += (tokens[at][1] in ")]}") - (tokens[at][1] in _CLOSES)
            if depth == 0:
                return at
    return -1


def _opening_angle(tokens: list[_Token], index: int) -> int:
    """The index of the `<` of the template arguments that end at `index`; -1 if there is none."""
    depth = 0
    at = index
    while at >= 0:
        kind, text, _, _ = tokens[at]
        if kind == "sign" and text in ")]}":
            at = _opening(tokens, at) - 1
            continue
        if kind == "sign" and text in (">", ">>>"):
            depth += len(text)
        elif kind == "sign" and text == "<":
            depth -= 1
            if depth == 0:
                return at
        elif kind == "sign" and text in (";", "{", "<<"):
            return -1
        at -= 1
    return -1
