"""The device half (for NVRTC) and the host half (for a C++ compiler) of a preprocessed CUDA unit.

Both halves are the whole unit, rewritten; nvcc does the same with programs of its own. The preprocessor's line markers
are kept, so that errors name the user's lines.

**The device half** keeps host functions, because their launches instantiate the kernels: NVRTC puts every kernel into
the cubin without a list of names. NVRTC accepts host functions in system headers only, so every line is marked as part
of one, except the bodies of the op's own device code. `constexpr` functions become `__host__ __device__`, since kernels
may call them (nvcc's `--expt-relaxed-constexpr`).

**The host half** only declares kernels and device functions. A launch takes the kernel's address, which is an undefined
symbol of the object; kernels_object.py defines it. A launch in angle brackets becomes a call.

Few imports: it starts twice for every compiled unit.
"""

from __future__ import annotations

import bisect
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A pattern that begins with literal text is searched for much faster than others.
_MARKER = re.compile(r'\n(# \d+ "(?:\\.|[^"\\])*").*')
_CONSTEXPR = re.compile(r"const(?:expr|eval)(?!\w)")
_STRING = (
    r"""(?P<string>(?:u8|[uUL])?(?:R"(?P<fence>[^()\\\s]{0,16})\([\s\S]*?\)(?P=fence)"|"(?:\\.|[^"\\\n])*"|"""
    r"""'(?:\\.|[^'\\\n])+'))"""
)
_PIECE = re.compile(
    rf"""(?P<space>\s+|^\#.*$)
    |{_STRING}
    |(?P<number>\.?\d(?:[eEpP][+-]|'[\w]|[\w.])*)
    |(?P<name>[^\x00-\x23%-@\[-^`\x7b-\x7f][\w$]*)
    |(?P<sign>::|->|<<<|>>>|<=>|<<|<=|[\s\S])""",
    re.VERBOSE | re.MULTILINE,
)
_BRACKET = re.compile(rf"{_STRING}|[][(){{}}]|^\#.*$", re.MULTILINE)
_ANNOTATION = re.compile(r"__(?:global|device)__")
_KERNEL = re.compile(r"__global__")
_TEMPLATE = re.compile(r"\btemplate\s*<")
_WITH_PARENTHESES = re.compile(r"\b__\w+\s*\((?:[^()]|\([^()]*\))*\)")  # `__launch_bounds__(128)`
_NO_RESULT = re.compile(r"\b(?:void|auto)\b")
_FIRST = re.compile(r"\s*(.)")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
# A parenthesis after one of these names does not open a list of parameters.
_WITH_ARGUMENT = frozenset(
    ("decltype", "alignas", "__attribute__", "__attribute", "explicit", "requires", "noexcept", "typeof", "__typeof__")
)
# CUDA's annotations after preprocessing.
_SPACE = re.compile(r"__attribute__\(\((?:global|device)\)\)")
_FOR_HOST = re.compile(r"__attribute__\(\(host\)\)|\bconst(?:expr|eval)\b")
_ATTRIBUTE = re.compile(
    r"__attribute__\(\((?:global|device|host|shared|constant|managed|device_builtin|device_builtin_texture_type|"
    r"device_builtin_surface_type|cudart_builtin|nv_pure|grid_constant)\)\)"
)
_BOUNDS = re.compile(
    r"__attribute__\(\((?:launch_bounds|cluster_dims|maxnreg|block_size)"
    r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)\)"
)
# A keyword of CUDA, but not in `[[__gnu__::__noinline__]]` and `__attribute__((__noinline__))`.
_NOINLINE = re.compile(r"__noinline__(?<![:(\w]__noinline__)(?<!, __noinline__)(?!\w)")
# Only nvcc supports these: managed variables, runtime functions that take a variable by name, and device lambdas.
_MANAGED = "__attribute__((managed))"
_BY_SYMBOL = re.compile(r"cuda(?:Memcpy(?:To|From)Symbol\w*|GetSymbol(?:Address|Size))(?=\s*[<(])")
_DEVICE_LAMBDA = re.compile(r"\](?:\s|^\#.*$)*__attribute__\(\(device\)\)", re.MULTILINE)
_LAST_MARKER = re.compile(r'\n?(# \d+ "(?:\\.|[^"\\])*").*')
# Line markers and line ends: all that remains of a removed body.
_LINES = re.compile(r"^\# \d.*\n|\n", re.MULTILINE)
_INSTANTIATED = re.compile(r"(?:\s|^\#.*$)*(?:extern\s+)?template(?:\s|^\#.*$|__attribute__\(\(\w+\)\))*", re.MULTILINE)
_LAUNCH = re.compile(_STRING + r"|(?P<launch><<<)")
_ANONYMOUS = re.compile(_STRING + r"|\bnamespace(?P<space>(?:\s|^\#.*$)*)\{", re.MULTILINE)
# The head of a generic lambda: one with `auto` or `<typename T>`.
_GENERIC = re.compile(
    _STRING
    + r"|(?P<lambda>\[[^][;{}]*\]\s*(?:<\s*(?:typename|class|auto)\b|\((?:[^(){};]|\([^(){};]*\))*?\bauto\b)[^{;]*)"
)
_BOTH = "__host__ __device__ "

# Assembler names of functions in the C library, and assembler directives in GCC's.
_FOR_ASSEMBLER = re.compile(r'__asm__ ?\("" "\w+"\)|__asm \("\.globl \w+"\)')
# Values of enumerations in GCC 15's <ios>, with an attribute that NVRTC rejects there.
_UNUSED_VALUE = re.compile(r"(_S_\w+) __attribute__\(\(__unused__\)\) =")
# In GCC's <ranges>, a default member initializer of an inner class that NVRTC rejects.
_OF_ITSELF = "_OuterIter _M_i = _OuterIter();"
# Declarations of templates of `std` in CUDA's C++ library, which expects no other C++ library under NVRTC.
_TUPLES = re.compile(
    r"template\s*<(?:size_t _Ip, )?class\.\.\. _Tp>(\s*)struct (?:tuple_size|tuple_element);(?=[^{}]*template)"
)

# Pragmas that nvcc passes on to GCC, and NVRTC would warn about. Of `unroll` nvcc warns too.
_OF_GCC = re.compile(r"\n#pragma GCC (?!unroll)[^\n]*")


def device_half(unit: str) -> str:
    """The preprocessed `unit`, rewritten for NVRTC."""
    unit = _OF_GCC.sub("\n", unit)
    unit = _FOR_ASSEMBLER.sub("", unit).replace(_OF_ITSELF, "type_identity_t<_OuterIter> _M_i{};")
    if "_S_noreplace" in unit:
        unit = _UNUSED_VALUE.sub(r"\1 =", unit)
    if "tuple_size;" in unit:
        unit = _TUPLES.sub(r"\1", unit)
    pieces = []
    start = 0
    for match in _CONSTEXPR.finditer(unit):
        if not _is_part(unit[match.start() - 1 : match.start()]) and _is_function(unit, match.end()):
            pieces += [unit[start : match.start()], _BOTH]
            start = match.start()
    pieces.append(unit[start:])
    return _marked("".join(["\n", *pieces]))[1:]


def _marked(unit: str) -> str:
    """`unit` with every line marked as part of a system header, except the bodies of the op's own kernels and device
    functions: there NVRTC prints warnings, and rejects calls of host functions."""
    markers = list(_MARKER.finditer(unit))
    places = [marker.end() for marker in markers]
    bodies = [part for body in _bodies(unit, markers, places, _is_own) for part in _around_heads(unit, *body)]
    pieces = []
    start = 0

    def copy(to: int, *, is_in_body: bool) -> None:
        text = unit[start:to]
        pieces.append(text if is_in_body else _MARKER.sub(r"\n\1 3", text))

    for begin, end in bodies:
        copy(begin, is_in_body=False)
        start = begin
        pieces.append(_marker_at(unit, markers, places, begin))
        copy(end, is_in_body=True)
        start = end
        pieces.append(_marker_at(unit, markers, places, end).replace('"\n', '" 3\n'))
    copy(len(unit), is_in_body=False)
    return "".join(pieces)


def _bodies(
    unit: str, markers: list[re.Match[str]], places: list[int], is_own: Callable[[re.Match[str]], bool]
) -> list[tuple[int, int]]:
    """The bodies of kernels and device functions in files whose line markers satisfy `is_own`."""
    bodies: list[tuple[int, int]] = []
    end = 0
    for match in _ANNOTATION.finditer(unit):
        marker = markers[bisect.bisect(places, match.start()) - 1] if places else None
        if marker is None or match.start() < end or not is_own(marker):
            continue
        function = _device_function(unit, match.start())
        if function is not None:
            bodies.append((function.body, function.end))
            end = function.end
    return bodies


def device_lines(unit: str, is_own: Callable[[str], bool] | None = None) -> Iterator[tuple[str, int, str]]:
    """The lines of kernels and device functions in the device half of a preprocessed unit, each as file, number, text.

    Args:
        is_own: whether to include the file of this name; None for the op's own files.
    """

    def is_included(marker: re.Match[str]) -> bool:
        return _is_own(marker) if is_own is None else is_own(_place_of(marker)[0])

    unit = f"\n{unit}"
    markers = list(_MARKER.finditer(unit))
    places = [marker.end() for marker in markers]
    for begin, end in _bodies(unit, markers, places, is_included):
        marker = markers[bisect.bisect(places, begin) - 1]
        file, line = _place_of(marker)
        line += unit.count("\n", marker.end(), begin) - 1
        for text in unit[begin:end].split("\n"):
            if (inner := _MARKER.match(f"\n{text}")) is not None:
                file, line = _place_of(inner)
                continue
            yield file, line, text
            line += 1


def kernels_with_results(unit: str) -> Iterator[tuple[str, int]]:
    """The kernels in the op's own files whose return type is not void, each as file and line."""
    unit = f"\n{unit}"
    markers = list(_MARKER.finditer(unit))
    places = [marker.end() for marker in markers]
    for match in _KERNEL.finditer(unit):
        marker = markers[bisect.bisect(places, match.start()) - 1] if places else None
        function = _device_function(unit, match.start())
        if marker is None or function is None or not _is_own(marker):
            continue
        head = unit[function.begin : function.body]
        if (template := _TEMPLATE.search(head)) is not None:
            head = head[_after_arguments(head, template.end() - 1) :]
        if _NO_RESULT.search(_WITH_PARENTHESES.sub("", head).partition("(")[0]) is None:
            file, line = _place_of(marker)
            yield file, line + unit.count("\n", marker.end(), match.start()) - 1


def by_file(unit: str) -> Iterator[tuple[str, str]]:
    """The parts of a preprocessed unit, each with the name of its file."""
    unit = f"\n{unit}"
    markers = list(_MARKER.finditer(unit))
    for marker, following in zip(markers, [*markers[1:], None], strict=True):
        end = len(unit) if following is None else following.start()
        yield _place_of(marker)[0], unit[marker.end() : end]


def _place_of(marker: re.Match[str]) -> tuple[str, int]:
    """The file and the number of the line after a line marker."""
    _, number, name = marker[1].split(" ", 2)
    return re.sub(r"\\(.)", r"\1", name[1:-1]), int(number)


def _around_heads(unit: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a body without the heads of generic lambdas: outside system headers, NVRTC treats the bodies of
    such lambdas as host code."""
    for match in _GENERIC.finditer(unit, begin, end):
        if match["lambda"] is not None:
            yield begin, match.start()
            begin = match.end()
    yield begin, end


def _is_own(marker: re.Match[str]) -> bool:
    """Whether the lines after a line marker are the op's own."""
    name = marker[1].partition('"')[2]
    return not name.startswith("<") and "3" not in marker[0][len(marker[1]) + 1 :].split()


def _marker_at(unit: str, markers: list[re.Match[str]], places: list[int], position: int) -> str:
    """A line marker for the line that contains `position`."""
    marker = markers[bisect.bisect(places, position) - 1]
    hash_sign, number, name = marker[1].split(" ", 2)
    line = int(number) + unit.count("\n", marker.end(), position) - 1
    return f"\n{hash_sign} {max(line, 0)} {name}\n"


def _is_part(character: str) -> bool:
    """Whether a character can be part of a name."""
    return character.isalnum() or character == "_"


def _is_function(unit: str, position: int) -> bool:
    """Whether the declaration at `position`, after `constexpr`, is that of a function."""
    before = ""
    is_qualified = False
    while (match := _PIECE.match(unit, position)) is not None:
        text, position = match[0], match.end()
        if match.lastgroup == "space":
            continue
        if match.lastgroup == "name":
            if text == "operator":
                return True
        elif text == "(":
            if before in _WITH_ARGUMENT:
                position = _after_bracket(unit, position - 1)
            elif is_qualified and _follows(unit, _after_bracket(unit, position - 1)) == ";":
                return False  # a class's constant: `constexpr Order Order::less(1);`
            else:
                # A star begins the name of a pointer: `int (*table[])(int)`.
                first = _follows(unit, position)
                return before != "" and first not in "*&" and not first.isdigit()
        elif text == "<" and before not in ("", "operator"):
            position = _after_arguments(unit, position - 1)
            text = "name"
        elif text == "[" and unit.startswith("[", position):
            position = _after_bracket(unit, position - 1)
            continue
        elif text not in ("::", "*", "&", "~", "..."):
            return False
        is_qualified = before == "::" if match.lastgroup == "name" else is_qualified
        before = text
    return False


def _follows(unit: str, position: int) -> str:
    """The first character at or after `position` that is not a space."""
    match = _FIRST.match(unit, position)
    return "" if match is None else match[1]


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
    while (match := _PIECE.match(unit, position)) is not None:
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


def host_half(unit: str, *, is_for_clang: bool = False) -> str:
    """The preprocessed `unit`, rewritten for a C++ compiler: kernels and device functions without bodies.

    clang rejects an undefined function in an anonymous namespace if a type of such a namespace is in its signature. For
    clang, these namespaces therefore get the name that compilers give them in symbols.
    """
    pieces = []
    start = 0
    for match in _SPACE.finditer(unit):
        if match.start() < start:
            continue
        begin = max(unit.rfind(sign, 0, match.start()) for sign in ";{}") + 1
        if _INSTANTIATED.fullmatch(unit, begin, match.start()) is not None:
            # An explicit instantiation: without bodies there is nothing to instantiate.
            end = unit.find(";", match.end())
            pieces += [unit[start:begin], *_LINES.findall(unit, begin, end)]
            start = end
            continue
        function = _device_function(unit, match.start())
        if function is None or function.is_for_host:
            continue
        # A member that is defined outside its class cannot be declared there again.
        begin = function.begin if function.is_member else function.body
        pieces += [unit[start:begin], ";", *_LINES.findall(unit, begin, function.end)]
        start = function.end
    pieces.append(unit[start:])
    unit = _BOUNDS.sub("", _ATTRIBUTE.sub("", "".join(pieces)))
    unit = _NOINLINE.sub("__attribute__((noinline))", unit)
    if is_for_clang:
        unit = _ANONYMOUS.sub(
            lambda match: match[0] if match["string"] else f"inline namespace _GLOBAL__N_1{match['space']}{{", unit
        )
    return _launches(unit) if "<<<" in unit else unit


class _Function:
    """A device function or a kernel.

    Attributes:
        begin: the position of its declaration.
        body: that of its opening brace, or of the colon before it.
        end: the position after its closing brace.
        is_member: it is a member, defined outside its class.
        is_for_host: host code may call it, or evaluate it at compile time (`constexpr`).
    """

    __slots__ = ("begin", "body", "end", "is_for_host", "is_member")

    def __init__(self, begin: int, body: int, end: int, is_member: bool, is_for_host: bool) -> None:
        self.begin, self.body, self.end = begin, body, end
        self.is_member, self.is_for_host = is_member, is_for_host


def _device_function(unit: str, position: int) -> _Function | None:
    """The function that the annotation at `position` applies to, if it has a body."""
    begin = max(unit.rfind(sign, 0, position) for sign in ";{}") + 1
    before = ""
    has_parameters = is_member = is_for_host = False
    while (found := _PIECE.match(unit, position)) is not None:
        text, place, position = found[0], position, found.end()
        if found.lastgroup == "space":
            continue
        if text == "(" and found.lastgroup == "sign":
            if before not in _WITH_ARGUMENT and before != "operator" and not has_parameters:
                has_parameters = True
                is_for_host = _FOR_HOST.search(unit, begin, place) is not None
            position = _after_bracket(unit, place)
            text = ")"
        elif text in (";", "=", "}") and found.lastgroup == "sign" and before != "operator":
            return None
        elif text == "{" or (text == ":" and has_parameters):
            brace = place if text == "{" else _after_initializers(unit, position)
            return (
                _Function(begin, place, _after_bracket(unit, brace), is_member, is_for_host) if has_parameters else None
            )
        elif not has_parameters and text != "::":
            is_member = before == "::" and found.lastgroup == "name"
        before = text
    return None


def _after_initializers(unit: str, position: int) -> int:
    """The position of the brace that opens a constructor's body; `position` is after the colon."""
    before = ""
    while (found := _PIECE.match(unit, position)) is not None:
        text, place, position = found[0], position, found.end()
        if found.lastgroup == "space":
            continue
        if text == "{" and before in (")", "}"):
            return place
        if text in ("(", "{"):
            position = _after_bracket(unit, place)
            text = _CLOSES[text]
        before = text
    return len(unit)


def _launches(unit: str) -> str:
    """`unit` with calls in place of launches in angle brackets."""
    pieces = []
    start = 0
    while (match := _LAUNCH.search(unit, start)) is not None:
        pieces.append(unit[start : match.start()])
        if match["launch"] is None:
            pieces.append(match[0])
            start = match.end()
            continue
        end = position = match.end()
        while (found := _PIECE.match(unit, position)) is not None and found[0] != ">>>":
            position = _after_bracket(unit, position) if found[0] in _CLOSES else found.end()
        if found is None:
            pieces.append(match[0])
            start = match.end()
            continue
        pieces.append(f" ->*::kjit_rtc::grid({unit[end:position]})")
        start = position + len(">>>")
    pieces.append(unit[start:])
    return "".join(pieces)


def for_nvcc(unit: str) -> str:
    """Why only nvcc compiles the op's own code in a preprocessed unit, as a sentence; empty if NVRTC does too."""
    if _MANAGED in unit:
        return "only nvcc registers __managed__ variables"
    # One pattern with all of them takes ten times as long: it does not begin with fixed text.
    for match in _BY_SYMBOL.finditer(unit):
        if not _is_part(unit[match.start() - 1 : match.start()]) and _is_in_own_code(unit, match.start()):
            return f"only nvcc registers the symbols that {match[0]} takes"
    if any(_is_in_own_code(unit, match.start()) for match in _DEVICE_LAMBDA.finditer(unit)):
        return "only nvcc compiles __device__ lambdas"
    return ""


def _is_in_own_code(unit: str, position: int) -> bool:
    """Whether `position` is in one of the op's own files, by the line marker before it."""
    marker = _LAST_MARKER.search(unit, max(unit.rfind("\n# ", 0, position), 0))
    return marker is not None and _is_own(marker)
