"""The functions of a C++ or CUDA file: names, parameters and bodies, read without a compiler.

Not a parser of C++: scopes, heads of functions and their parameters, which is what decides how a file can be called.
Comments, strings and lines of the preprocessor are blanked first, so that columns and lines stay what they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kjit.cpp_text import blanked

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<(?P<system>[^>\n]+)>|"(?P<own>[^"\n]+)")', re.MULTILINE)
_ATTRIBUTE = re.compile(r"\b(?:__launch_bounds__|__cluster_dims__|__attribute__|__declspec|alignas)\s*(?=\()")
_RECORD = re.compile(r"\b(?:struct|class|union)\s+(?:\[\[[^\]]*\]\]\s*)?(\w+)[^()]*$")
_NAMESPACE = re.compile(r"\bnamespace\b\s*([\w:]*)\s*$")
_MACRO_CALL = re.compile(r"^\s*[A-Z][A-Z0-9_]*\([^()]*\)\s*;?[ \t]*$", re.MULTILINE)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, or of a template: `const T* __restrict__ x` has type `const T*`."""

    type: str
    name: str
    default: str = ""

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")

    @property
    def is_const(self) -> bool:
        """Whether it is a pointer to const."""
        return self.is_pointer and re.search(r"\bconst\b", self.type) is not None

    @property
    def base(self) -> str:
        """The type without qualifiers, pointers and references: `float`, `unsigned char`, `TensorView`."""
        words = re.sub(r"\b(?:const|volatile|struct|typename)\b|[*&]", " ", self.type).split()
        return " ".join(words)


@dataclass(frozen=True)
class Function:
    """A function defined in a file.

    Args:
        name: without scopes.
        scope: the named namespaces and classes around it, outermost first.
        template: the parameters of its template.
        class_template: those of the class around it.
        parameters: in order.
        returns: the type, without `static` and the like.
        is_kernel: whether it is `__global__`.
        is_device: whether it is `__device__`: a host cannot call it, or need not.
        line: where it begins, from 1.
        bounds: the threads per block of its `__launch_bounds__`, or 0.
        body: its text, without comments.
    """

    name: str
    scope: tuple[str, ...]
    template: tuple[Parameter, ...]
    class_template: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    returns: str
    is_kernel: bool
    is_device: bool
    line: int
    bounds: int
    body: str

    @property
    def qualified(self) -> str:
        return "::".join((*self.scope, self.name))

    def __str__(self) -> str:
        head = "__global__ " if self.is_kernel else ""
        return f"{head}{self.qualified}({', '.join(f'{p.type} {p.name}'.strip() for p in self.parameters)})"


@dataclass(frozen=True)
class Source:
    """A CUDA file.

    Args:
        functions: the functions that a host can call or launch, in order.
        includes: the included files, each with its line.
        own_includes: those in quotes, which may be in its folder.
    """

    functions: tuple[Function, ...]
    includes: tuple[tuple[str, int], ...]
    own_includes: tuple[str, ...]


def read_source(text: str) -> Source:
    """Find the functions of a CUDA file that a host can call: kernels and host functions."""
    # Of definitions in several branches of an #if, the first.
    callable_ones = [f for f in read_functions(text) if not f.is_device and f.name != "main"]
    found = {(f.qualified, f.parameters): f for f in reversed(callable_ones)}
    includes = [(m["system"] or m["own"], text.count("\n", 0, m.start()) + 1) for m in _INCLUDE.finditer(text)]
    own = tuple(match["own"] for match in _INCLUDE.finditer(text) if match["own"])
    return Source(tuple(reversed(found.values())), tuple(includes), own)


def read_functions(text: str) -> list[Function]:
    """All functions that a file defines, in order, and those in the classes of it."""
    return _functions(blanked(text))


@dataclass(frozen=True)
class _Scope:
    name: str
    template: tuple[Parameter, ...] = ()


def _functions(code: str) -> list[Function]:
    found: list[Function] = []
    scopes: list[_Scope] = []
    begin = at = 0
    while at < len(code):
        character = code[at]
        if character in "([":
            at = _closed(code, at)
        elif character == ";":
            begin = at + 1
        elif character == "}":
            if scopes:
                scopes.pop()
            begin = at + 1
        elif character == "{":
            head = code[begin:at]
            scope = _scope(head)
            if scope is not None:
                scopes.append(scope)
                begin = at + 1
            else:
                end = _closed(code, at)
                function = _function(code, begin, at, end, scopes)
                if function is not None:
                    found.append(function)
                if function is not None or _is_function(head):
                    begin = end + 1
                at = end
        at += 1
    return found


def _closed(code: str, at: int) -> int:
    """The position where the bracket at `at` is closed; the end of the text if it is not."""
    opening, closing, depth = code[at], _CLOSING[code[at]], 0
    for place in range(at, len(code)):
        depth += (code[place] == opening) - (code[place] == closing)
        if depth == 0:
            return place
    return len(code) - 1


def _scope(head: str) -> _Scope | None:
    """The namespace or class that is opened after `head`."""
    namespace = _NAMESPACE.search(head)
    if namespace is not None:
        return _Scope(namespace[1])
    if head.strip() == "extern":  # "C"
        return _Scope("")
    template, rest = _template_of(head)
    record = _RECORD.search(rest)
    if record is not None and "=" not in rest[record.start() :]:
        return _Scope(record[1], template)
    return None


def _is_function(head: str) -> bool:
    return re.search(r"\)\s*(?:const|noexcept|override|final|->[^=]*)*\s*$", head) is not None


def _template_of(head: str) -> tuple[tuple[Parameter, ...], str]:
    """The parameters of a template, and what follows them."""
    match = re.search(r"\btemplate\s*<", head)
    if match is None:
        return (), head
    depth = 0
    for place in range(match.end() - 1, len(head)):
        depth += (head[place] in "<([{") - (head[place] in ">)]}")
        if depth == 0:
            parts = split_arguments(head[match.end() : place])
            return tuple(_template_parameter(part) for part in parts), head[place + 1 :]
    return (), head


def _template_parameter(text: str) -> Parameter:
    declared, _, default = text.partition("=")
    words = declared.split()
    return Parameter(" ".join(words[:-1]) or "typename", words[-1] if words else "", default.strip())


def split_arguments(text: str) -> list[str]:
    """The arguments of a list, split at commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "<([{") - (character in ">)]}" and text[place - 1 : place + 1] != "->")
        if character == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def _function(code: str, begin: int, brace: int, end: int, scopes: list[_Scope]) -> Function | None:
    """The function whose body begins at `brace`; None if that is no function, or a constructor."""
    template, rest = _template_of(_MACRO_CALL.sub("", code[begin:brace]))
    bounds = re.search(r"__launch_bounds__\s*\(\s*(\d+)", rest)
    while (attribute := _ATTRIBUTE.search(rest)) is not None:
        rest = rest[: attribute.start()] + rest[_closed(rest, attribute.end()) + 1 :]
    rest = re.sub(r"\[\[.*?\]\]", " ", rest)
    head = re.search(r"(?P<before>[\w:<>,*&\s]*?)(?P<name>\w+)\s*\($", rest[: rest.find("(") + 1])
    if head is None:
        return None
    before = set(head["before"].replace("*", " ").replace("&", " ").split())
    is_kernel = "__global__" in before
    if head["name"] in ("if", "for", "while", "switch", "operator"):
        return None
    opened = rest.find("(")
    parameters = [_parameter(text) for text in split_arguments(rest[opened + 1 : _closed(rest, opened)])]
    qualifiers = (
        r"\b(?:static|inline|extern|constexpr|__global__|__host__|__device__|__forceinline__|__noinline__|KJIT_\w+)\b"
    )
    returns = " ".join(re.sub(qualifiers, " ", head["before"]).split())
    if not returns:  # a constructor, or a macro
        return None
    first = begin + len(code[begin:brace]) - len(code[begin:brace].lstrip())
    return Function(
        head["name"],
        tuple(scope.name for scope in scopes if scope.name),
        template,
        tuple(parameter for scope in scopes for parameter in scope.template),
        tuple(parameter for parameter in parameters if parameter.type != "void" or parameter.name),
        returns,
        is_kernel,
        "__device__" in before,
        code.count("\n", 0, first) + 1,
        int(bounds[1]) if bounds is not None else 0,
        code[brace + 1 : end],
    )


def _parameter(text: str) -> Parameter:
    declared, _, default = text.partition("=")
    declared = re.sub(r"\b__restrict(?:__)?\b|\brestrict\b|\b__grid_constant__\b|\[\[.*?\]\]", " ", declared)
    array = re.search(r"\[[^\]]*\]\s*$", declared)
    declared = declared[: array.start()] if array is not None else declared
    match = re.fullmatch(r"\s*(?P<type>.*?[\s*&>])(?P<name>[A-Za-z_]\w*)\s*", declared, re.DOTALL)
    type_, name = (match["type"], match["name"]) if match is not None else (declared, "")
    type_ = re.sub(r"\s*([*&])\s*(?:const\b)?", r"\1", " ".join(type_.split())).strip()
    return Parameter(f"{type_}{'*' if array is not None else ''}", name, default.strip())
