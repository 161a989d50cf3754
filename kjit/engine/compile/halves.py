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
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kjit.cpp_text import CLOSES, LITERAL, NUMBER, Token, closing, opening, pieces, place, token_at, tokens
from kjit.engine.compile import math_names

_STRING = rf"(?P<string>{LITERAL})"
_NUMBER = rf"(?P<number>{NUMBER})"
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
_OF_SYSTEM = " 3 4\n"
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


def device_half(unit: str) -> str:
    """The preprocessed `unit`, rewritten for NVRTC."""
    kept: list[str] = []
    start = 0
    own = set()
    for piece in pieces(unit):
        if not piece.is_system:
            own.add(piece.file)
            continue
        if piece.file in own:
            # A macro of a system header, as all of CUDA's annotations are. NVRTC would report no error there.
            end = piece.begin - len(_OF_SYSTEM)
            if unit.startswith(_OF_SYSTEM, end):
                kept.append(unit[start:end])
                start = piece.begin - 1
            continue
        text = unit[piece.begin : piece.end]
        if (changed := _without_clashes(piece.file, text)) is not text:
            kept += [unit[start : piece.begin], changed]
            start = piece.end
    kept.append(unit[start:])
    return _NESTING.sub(r"\1", "".join(kept))


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
    return _HostHalf(unit).text()


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
        for piece in pieces(self._unit):
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
                bracket = unit.rfind("]", 0, site.start())
                if not is_of_cuda and bracket >= 0 and _LAMBDA.match(unit, bracket):
                    raise NotUnderstoodError("only nvcc compiles __device__ lambdas", unit, site.start())
                if site["space"] == "global":
                    self._kernel(site.start())
                elif not is_of_cuda:  # CUDA's device functions are inline
                    self._device_function(site.start())

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
        words = [token.text for token in _code(unit, begin, position)]
        if words[:1] != ["template"] or words[1:2] == ["<"]:
            return
        end = position
        while (found := token_at(unit, end)) is not None and found.text != ";":
            end = _after_bracket(unit, end) if found.opens else found.end
        if _FOR_HOST.search(unit, begin, end) is None:
            self._replace(begin, end, "")

    def _kernel(self, position: int) -> None:
        found = _function(self._unit, position)
        if found is None:
            return  # a declaration
        self._clean_head(position, found.parameters)
        declared = _split(list(_code(self._unit, found.parameters + 1, found.close)))
        after = next(_code(self._unit, found.close + 1, found.body + 1), None)
        is_in_parentheses = after is not None and after.text == "("  # its name
        names = [_name_of(each) for each in declared]
        if is_in_parentheses or not all(names):
            reason = "only nvcc understands a kernel's parameter without a name, or with a declarator in parentheses"
            raise NotUnderstoodError(reason, self._unit, position)
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
        while (found := token_at(unit, end)) is not None and found.text != ">>>":
            if found.text in (";", "<<<", ")", "]", "}"):
                found = None
                break
            end = _after_bracket(unit, end) if found.opens else found.end
        before = list(_code(unit, max(self._statement, self._start), position))
        if before and before[-1].text == "operator" and found is None:
            return
        begin = _begin_of_launch(before)
        after = next(_code(unit, end + len(">>>"), len(unit)), None) if found is not None else None
        if found is None or begin is None or after is None or after.text != "(":
            raise NotUnderstoodError("only nvcc understands this launch", unit, position)
        self._kept += [
            unit[self._start : begin],
            f"(::__cudaPushCallConfiguration({unit[configuration:end]})) ? (void)0 : ",
            unit[begin:position],
        ]
        self._start = end + len(">>>")


def _code(unit: str, begin: int, end: int) -> Iterator[Token]:
    """The tokens of a part of a unit, without space and line markers."""
    return (token for token in tokens(unit, begin, end) if token.kind != "space")


class _Function(NamedTuple):
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

    parameters: int
    close: int
    body: int
    end: int
    is_member: bool
    is_for_host: bool
    is_deduced: bool


def _function(unit: str, position: int) -> _Function | None:
    """The function that the annotation at `position` applies to, if it has a body."""
    begin = max(unit.rfind(sign, 0, position) for sign in ";{}") + 1
    before = ""
    parameters = close = -1
    is_member = is_for_host = is_auto = has_result = False
    while (found := token_at(unit, position)) is not None:
        text, at, position = found.text, found.begin, found.end
        if found.kind == "space":
            continue
        if text == "(":
            position = _after_bracket(unit, at)
            if before not in _WITH_ARGUMENT and before != "operator" and parameters < 0:
                parameters, close = at, position - 1
                is_for_host = _FOR_HOST.search(unit, begin, at) is not None
            text = ")"
        elif text == "<" and parameters < 0 and before != "operator":
            position = _after_arguments(unit, at)
        elif text in (";", "=", "}") and before != "operator":
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
                is_member = before == "::" and found.kind == "name"
        elif text == "->":
            has_result = True
        before = text
    return None


def _after_initializers(unit: str, position: int) -> int:
    """The position of the brace that opens a constructor's body; `position` is after the colon."""
    before = ""
    while (found := token_at(unit, position)) is not None:
        text, at, position = found.text, found.begin, found.end
        if found.kind == "space":
            continue
        if text == "{" and before in (")", "}"):
            return at
        if text in ("(", "{"):
            position = _after_bracket(unit, at)
            text = CLOSES[text]
        before = text
    return len(unit)


def _after_bracket(unit: str, position: int) -> int:
    """The position after the bracket that closes the one at `position`."""
    expected: list[str] = []
    for match in _BRACKET.finditer(unit, position):
        text = match[0]
        if text in CLOSES:
            expected.append(CLOSES[text])
        elif expected and text == expected[-1]:
            expected.pop()
            if not expected:
                return match.end()
    return len(unit)


def _after_arguments(unit: str, position: int) -> int:
    """The position after the template arguments that begin with the `<` at `position`."""
    depth = 0
    while (found := token_at(unit, position)) is not None:
        text = found.text
        if found.opens:
            position = _after_bracket(unit, position)
            continue
        position = found.end
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


def _split(code: list[Token]) -> list[list[Token]]:
    """The parameters of a function, each without its default value; empty for `(void)`. One without tokens stands for
    parameters that are not understood."""
    found: list[list[Token]] = [[]]
    depth = angles = 0
    is_default = False
    for token in code:
        text = token.text
        if token.kind == "sign":
            depth += token.opens - token.closes
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
    return [] if [token.text for each in found for token in each] in ([], ["void"]) else found


def _name_of(parameter: list[Token]) -> str:
    """The name of a parameter, with dots for a pack; empty if it has none, or a declaration of another form."""
    words = _without_attributes(parameter)
    while words and words[-1].text == "]":
        words = words[: opening(words, len(words) - 1)]
    texts = [token.text for token in words]
    types = [text for text in texts[:-1] if text not in _QUALIFIERS and text != "..."]
    if not types or words[-1].kind != "name" or texts[-1] in _FUNDAMENTAL | _QUALIFIERS:
        return ""
    if texts[-2] in ("struct", "class", "union", "enum", "typename", "::"):
        return ""
    return f"{texts[-1]}{'...' if '...' in texts else ''}"


def _without_attributes(code: list[Token]) -> list[Token]:
    kept: list[Token] = []
    index = 0
    while index < len(code):
        if code[index].text in ("alignas", "__attribute__", "__attribute"):
            index = closing(code, index + 1)
        elif [token.text for token in code[index : index + 2]] == ["[", "["]:
            index = closing(code, index)
        else:
            kept.append(code[index])
        index += 1
    return kept


def _begin_of_launch(code: list[Token]) -> int | None:
    """The position of a launch of the kernel that the last tokens of `code` name; None if it is not clear."""
    index = len(code) - 1
    while True:
        if index >= 0 and code[index].text in (">", ">>>"):
            index = _opening_angle(code, index) - 1
        if index < 0 or code[index].kind != "name" or code[index].text in _BEFORE_LAUNCH:
            return None
        before = code[index - 1].text if index > 0 else ""
        if before != "::":
            break
        outer = code[index - 2] if index > 1 else None
        if outer is None or outer.text in _BEFORE_LAUNCH or not (outer.kind == "name" or outer.text in (">", ">>>")):
            index -= 1  # `::kernel`
            break
        index -= 2
    words = [token.text for token in code[:index]]
    if words[-1:] and words[-1] in (".", "->", "template", "<"):
        return None  # `k<a < b><<<...>>>`, and members of objects
    return code[index - 3 if words[-3:] == ["(", "void", ")"] else index].begin


def _opening_angle(code: list[Token], index: int) -> int:
    """The index of the `<` of the template arguments that end at `index`; -1 if there is none."""
    depth = 0
    at = index
    while at >= 0:
        text = code[at].text
        if code[at].closes:
            at = opening(code, at) - 1
            continue
        if text in (">", ">>>"):
            depth += len(text)
        elif text == "<":
            depth -= 1
            if depth == 0:
                return at
        elif text in (";", "{", "<<"):
            return -1
        at -= 1
    return -1
