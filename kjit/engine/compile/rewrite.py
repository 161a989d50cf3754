"""CUDA syntax that no macro can express, and CUDA features that the simulator does not support.

The build runs this file as a program between the preprocessor and the compiler of a simulated unit:

    python rewrite.py unit.ii unit.sim.ii g++ -E unit.cu

Only the op's own files are looked at; the preprocessor's line markers say which those are (kjit's, CUDA's and the
system's headers are marked), and they stay where they are, so that errors, debuggers and the checks name the lines that
the user wrote. No line is added or removed. Seven things are rewritten:

    kernel<T><<<grid, block, smem>>>(x, n);  ->  kernel<T> ->*::kjit_sim::grid(grid, block, smem)(x, n);
    extern __shared__ float tile[];          ->  float (&tile)[] = *reinterpret_cast<float (*)[]>(dynamic_shared());
    __shared__ alignas(16) float tile[32];   ->  alignas(16) __shared__ float tile[32];
    __global__ __launch_bounds__(n) void f() {  ->  void f() { ::kjit_sim::launch_bounds(n);
    asm("prmt.b32 %0, %1, %2, 7;" : "=r"(x) : "r"(a), "r"(b));  ->  { ::kjit_sim::ptx::prmt((x), (a), (b), 7); };
    while (*flag == 0);                      ->  while (*flag == 0) ::kjit_sim::looked();
    struct A { using t = t<int>; };  ->  template <typename B> using u = t<B>; struct A { using t = u<int>; };

The alias is what nvcc takes and g++ does not: a name that means something else in a class than it did there before.
After the preprocessor there are no comments, no macros and no dead branches, so what a `#if KJIT_SIM` keeps away is not
seen here. What is left and needs a GPU (inline PTX, TMA, tensor cores, launches from kernels) is an error in a
compiler's form, and so is a device function that another unit defines, which nvcc does not link. `__global__`,
`__device__`, `__host__` and `__launch_bounds__` are left by the preprocessor, and go from every file.

What a source keeps for the GPU by `__CUDA_ARCH__` is put in ahead of that (device_branches.py). Of kjit it imports
tokens.py and what imports no more than that, because it starts once for every compiled unit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

if not __package__:  # as a program
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from kjit.engine.compile.device_branches import mentions_architecture, merge
from kjit.engine.compile.ptx import translate
from kjit.engine.compile.tokens import CLOSE, OPEN, Token, end_of_template, matching, pieces, scope, split

_ASM = ("asm", "__asm__", "__asm")
_SIDES = ("__global__", "__device__", "__host__")
_SIDE = re.compile(r"\b__(?:global|device|host)__\b")
_PTX = re.compile(r"\w\.\w|;|%%?(?:laneid|warpid|smid|clock)")

_LONGEST_QUOTE = 60

ARCHITECTURE = 900
"""`__CUDA_ARCH__` in functions of the device, and what KJIT_CUDA_ARCH is."""

DYNAMIC = "kjit_dynamic_"
"""Ahead of the names of dynamic shared memory where it is declared once more, for the compiler to compare its types."""

_LAUNCH = re.compile(r"cuda(?:Launch|GetParameterBuffer)\w*")

# Names that stand for what the simulator does not have.
_UNKNOWN_NAMES = (
    (re.compile(r"CUtensorMap\w*|cuTensorMap\w+|cp_async_bulk\w*|make_tma_\w+"), "TMA"),
    (re.compile(r"wgmma\w*|nvcuda|wmma|tcgen05\w*"), "tensor core instructions"),
    (re.compile(r"__cluster_dims__"), "clusters of a size that the kernel has, not the launch"),
    (re.compile(r"tex[123]D\w*|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t"), "textures and surfaces"),
)
# Headers of CUDA whose contents are made of PTX.
_UNKNOWN_HEADERS = (
    (re.compile(r".*/(?:crt/)?mma\.h"), "tensor core instructions (<mma.h>)"),
    (re.compile(r".*/cuda/(?:std/)?(?:ptx|barrier|pipeline)"), "the PTX behind <cuda/ptx>, <cuda/barrier> and others"),
    (re.compile(r".*/cuda_pipeline(?:_primitives)?\.h"), "asynchronous copies (<cuda_pipeline.h>)"),
    (re.compile(r".*/cute?(?:lass)?/(?:arch|atom)/.*"), "CUTLASS"),
    (re.compile(r".*/cub/.*"), "this part of CUB"),
    (re.compile(r".*/thrust/.*"), "Thrust (<thrust/...>)"),
)
# What there is of CUB (kjit_sim/cuda/cub/); `<cub/cub.cuh>` brings no more.
_CUB = re.compile(
    r"Block(?:Exchange|Load|RadixSort|Reduce|Scan|Store)(?:Algorithm)?|BLOCK_(?:LOAD|REDUCE|SCAN|STORE)_\w+"
    r"|Warp(?:Reduce|Scan)|NullType|KeyValuePair|Uninitialized|Arg(?:Max|Min)"
    r"|Sum|Difference|Division|Max|Min|Equality|Inequality"
)


@dataclass(frozen=True)
class Refusal:
    """Something in an op's own file that the simulator cannot run."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: error: {self.text}"


def rewrite(unit: str) -> tuple[str, list[Refusal]]:
    """The preprocessed `unit` as the C++ compiler takes it, and what in it the simulator cannot run."""
    refusals = list(_refuse_headers(unit))
    if refusals:
        return unit, refusals  # the rest is long, and mostly theirs
    tokens = list(_tokens(unit))
    own = [token for token in tokens if token.is_code]
    refusals += _refuse_undefined(own)
    bounds = _take_kernels(own)
    _take_bounds([token for token in tokens if token.kind == "other"])
    code = [token for token in tokens if token.is_code and token.text]
    refusals += _refuse(code)
    _rewrite_launches(code)
    _rewrite_shared_memory(code)
    _rewrite_own_names(code)
    _rewrite_empty_loops(code)
    for brace, text in bounds:
        brace.text += f" ::kjit_sim::launch_bounds({text});"
    return "".join(token.text for token in tokens), refusals


def _refuse_headers(unit: str) -> Iterator[Refusal]:
    was_own, own_place = False, ("", 0)
    for piece in pieces(unit):
        if was_own and "1" in piece.flags and "/kjit_sim/" not in piece.file:
            for pattern, what in _UNKNOWN_HEADERS:
                if pattern.fullmatch(piece.file):
                    yield _refusal(*own_place, what)
        was_own = piece.is_own
        if piece.is_own:
            own_place = (piece.file, piece.line + piece.text.count("\n"))


def _tokens(unit: str) -> Iterator[Token]:
    """All of `unit` in pieces; the op's own files in tokens."""
    for piece in pieces(unit):
        if piece.marker:
            yield Token("other", piece.marker)
        if piece.is_own:
            yield from split(piece.text, piece.file, piece.line)
        elif piece.text:
            yield Token("other", piece.text)


def _text(code: list[Token]) -> str:
    """Tokens as they were written, with one space where there was any."""
    return "".join(f" {token.text}" if token.is_apart else token.text for token in code).strip()


def _take_kernels(code: list[Token]) -> list[tuple[Token, str]]:
    """Take `__global__`, `__device__`, `__host__` and `__launch_bounds__` away, and mark what is in a kernel.

    Returns:
        For each kernel with launch bounds the brace that opens it, and the bounds.
    """
    found = []
    is_kernel, bounds = False, ""
    index = 0
    while index < len(code):
        token = code[index]
        if token.text in _SIDES:
            is_kernel |= token.text == "__global__"
            token.text = ""
        elif token.text == "__launch_bounds__" and code[index + 1 : index + 2] and code[index + 1].text == "(":
            end = matching(code, index + 1)
            bounds = _text(code[index + 2 : end])
            for each in code[index : end + 1]:
                each.text = ""
            index = end
        elif token.text == "(" and token.kind == "sign" and is_kernel:
            index = matching(code, index)
        elif token.text in (";", "{", "}") and token.kind == "sign":
            if token.text == "{" and is_kernel:
                end = matching(code, index)
                for each in code[index : end + 1]:
                    each.in_kernel = True
                if bounds:
                    found.append((token, bounds))
                index = end
            is_kernel, bounds = False, ""
        index += 1
    return found


def _refuse_undefined(code: list[Token]) -> Iterator[Refusal]:
    """Functions of the device that a unit calls and does not define, in kjit's words for nvcc's error."""
    declared: dict[str, Token] = {}
    defined: set[str] = set()
    called: set[str] = set()
    scopes: list[str] = []
    statement = 0
    for index, token in enumerate(code[:-1]):
        if token.kind == "sign" and token.text in (";", "{", "}"):
            if token.text == "{":
                scopes.append(scope(code[statement:index]))
            elif token.text == "}" and scopes:
                scopes.pop()
            statement = index + 1
        if token.kind != "name" or code[index + 1].text != "(" or token.text in _SIDES or _is_specifier(token):
            continue
        words = {each.text for each in code[statement:index]}
        end = _end_of_declarator(code, index + 1)
        if code[end : end + 1] and code[end].text == "{":
            defined.add(token.text)
        elif "__device__" not in words:
            if code[index - 1].text not in (".", "->"):
                called.add(token.text)
        elif (
            code[end : end + 1]
            and code[end].text == ";"
            and {*scopes} <= {"namespace"}
            and words.isdisjoint(("__host__", "template", "="))
        ):
            declared.setdefault(token.text, token)
    for name, token in declared.items():
        if name in called and name not in defined:
            yield Refusal(token.file, token.line, f"Unresolved extern function '{name}'")


def _end_of_declarator(code: list[Token], index: int) -> int:
    """The index behind the parameters that begin at `index`, and what may follow them ahead of `{` or `;`."""
    end = matching(code, index) + 1
    while code[end : end + 1] and code[end].text in ("const", "noexcept", "override", "final", "&", "->"):
        if code[end].text == "->":
            while code[end : end + 1] and code[end].text not in (";", "{", "}"):
                end += 1
            return end
        end += 1
    return end


def _take_bounds(others: list[Token]) -> None:
    """Take `__global__` and its like and `__launch_bounds__(...)` out of files that are not the op's own."""
    depth = 0
    is_open = False
    for token in others:
        if token.text.startswith("# "):
            continue
        token.text = _SIDE.sub("", token.text)
        if not (is_open or "__launch_b" in token.text):
            continue
        kept = []
        for piece in re.split(r"(\b__launch_bounds__\b|[()])", token.text):
            if piece == "__launch_bounds__":
                is_open, depth = True, 0
            elif not is_open:
                kept.append(piece)
            else:
                depth += {"(": 1, ")": -1}.get(piece, 0)
                kept.append("\n" * piece.count("\n"))
                is_open = depth > 0 or piece != ")"
        token.text = "".join(kept)


def _refuse(code: list[Token]) -> Iterator[Refusal]:
    for index, token in enumerate(code):
        if token.in_kernel and (_is_launch(code, index) or _LAUNCH.fullmatch(token.text)):
            name = _launched(code, index) if token.text == "<" else token.text
            yield _refusal(token.file, token.line, f"a kernel that is launched by a kernel ({name})")
        if token.kind != "name":
            continue
        if token.text in _ASM:
            assembly = _assembly(code, index + 1)
            if _rewrite_assembly(code, index, assembly):
                continue
            if _PTX.search(assembly):
                short = assembly if len(assembly) <= _LONGEST_QUOTE else f"{assembly[:_LONGEST_QUOTE]}..."
                refusal = _refusal(token.file, token.line, f'inline PTX (asm "{short}")')
                if _may_be_discarded(code, index):
                    _refuse_if_called(code, index, refusal.text)
                else:
                    yield refusal
            continue
        qualifier = [each.text for each in code[max(index - 2, 0) : index]]
        if token.text == "ptx" and qualifier == ["cuda", "::"]:
            yield _refusal(token.file, token.line, "PTX (cuda::ptx)")
            continue
        if qualifier == ["cub", "::"] and not _CUB.fullmatch(token.text):
            yield _refusal(token.file, token.line, f"this part of CUB (cub::{token.text})")
            continue
        for pattern, what in _UNKNOWN_NAMES:
            if pattern.fullmatch(token.text):
                yield _refusal(token.file, token.line, f"{what} ({token.text})")


def _may_be_discarded(code: list[Token], index: int) -> bool:
    """Whether what is at `index` is in a branch of an `if constexpr`, which only the compiler can choose."""
    depth = 0
    for position in range(index - 1, 0, -1):
        text = code[position].text
        if code[position].kind == "sign" and text in ("}", "{"):
            depth += 1 if text == "}" else -1
        if depth >= 0:
            continue
        depth = 0  # in the block that opens here
        if code[position - 1].text == ")":
            opened = _opening(code, position - 1)
            if [each.text for each in code[max(opened - 2, 0) : opened]] == ["if", "constexpr"]:
                return True
        if code[position - 1].text == "else":
            return _is_behind_constexpr(code, position - 1)
    return False


def _is_behind_constexpr(code: list[Token], index: int) -> bool:
    """Whether the `else` at `index` belongs to an `if constexpr`."""
    if code[index - 1].text != "}":
        return False
    opened = _opening(code, index - 1)
    if code[opened - 1].text == "else":
        return False
    condition = _opening(code, opened - 1)
    return [each.text for each in code[max(condition - 2, 0) : condition]] == ["if", "constexpr"]


def _opening(code: list[Token], index: int) -> int:
    """The index of the bracket that the one at `index` closes."""
    depth = 0
    for position in range(index, -1, -1):
        if code[position].kind == "sign" and code[position].text in CLOSE:
            depth += 1
        elif code[position].kind == "sign" and code[position].text in OPEN:
            depth -= 1
            if depth == 0:
                return position
    return 0


def _refuse_if_called(code: list[Token], index: int, text: str) -> None:
    """Put a call in place of the `asm` at `index` that the compiler refuses with `text` unless it is discarded."""
    begin = index + 1
    while begin < len(code) and code[begin].kind == "name":
        begin += 1
    end = matching(code, begin)
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    name = f"kjit_refused_{index}"
    code[index].text = f'{{ __attribute__((error("{quoted}"))) void {name}(); {name}(); }}'
    for token in code[index + 1 : end + 1]:
        token.text, token.kind = "", "other"


def _refusal(file: str, line: int, what: str) -> Refusal:
    return Refusal(file, line, f"the simulator cannot run {what}")


def _assembly(code: list[Token], index: int) -> str:
    """The instructions of an `asm` statement: its first strings, as one."""
    while index < len(code) and code[index].text != "(" and code[index].kind == "name":
        index += 1
    text = ""
    for token in code[index + 1 :]:
        if token.kind != "string":
            break
        raw = re.fullmatch(r'\w*R"(?P<fence>[^(]*)\((?P<text>.*)\)(?P=fence)"', token.text, re.DOTALL)
        text += raw["text"] if raw else token.text[token.text.find('"') + 1 : -1]
    text = re.sub(r"//.*?(?:\\n|\n|$)|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"(?:\\[nt]|\s)+", " ", text).strip()


def _rewrite_assembly(code: list[Token], index: int, assembly: str) -> bool:
    """Put calls in place of the PTX at `index`; False where there is an instruction that has no stand-in."""
    begin = index + 1
    while begin < len(code) and code[begin].kind == "name":
        begin += 1
    end = matching(code, begin)
    operands, names = _operands(code[begin + 1 : end])
    for name, place in names.items():
        assembly = assembly.replace(f"%[{name}]", f"%{place}")
    calls = translate(assembly, operands)
    if not calls:
        return False
    code[index].text = f"{{ {calls} }}"
    for token in code[index + 1 : end + 1]:
        token.text, token.kind = "", "other"
    return True


def _operands(words: list[Token]) -> tuple[list[str], dict[str, int]]:
    """The expressions of an `asm` statement's outputs and inputs, and the places of those that have a name."""
    found: list[str] = []
    names: dict[str, int] = {}
    depth = colons = 0
    expression: list[Token] = []
    for index, token in enumerate(words):
        is_sign = token.kind == "sign"
        if is_sign and token.text in CLOSE:
            depth -= 1
            if depth == 0 and 1 <= colons <= 2:
                if token.text == ")":
                    found.append(f"({_text(expression)})")
                else:
                    names[words[index - 1].text] = len(found)
        if depth > 0:
            expression.append(token)
        elif is_sign and token.text in (":", "::"):
            colons += len(token.text)
        if is_sign and token.text in OPEN:
            if depth == 0:
                expression = []
            depth += 1
    return found, names


def _rewrite_launches(code: list[Token]) -> None:
    """`kernel<<<...>>>(...)`: a kernel's name is followed by three signs, which nothing else in C++ is."""
    templates = _template_names(code)
    index = 0
    while index + 2 < len(code):
        if not _is_run(code, index, "<") or index == 0 or code[index - 1].text == "operator":
            index += 1
            continue
        end = _end_of_configuration(code, index + 3)
        if end is None:
            index += 1
            continue
        name = code[index - 1]
        if name.kind == "name" and name.text in templates:
            _deduce(code, index - 1)
        code[index].text = " ->*::kjit_sim::grid("
        code[index + 1].text = code[index + 2].text = ""
        code[end].text = ")"
        code[end + 1].text = code[end + 2].text = ""
        index = end + 3


def _is_launch(code: list[Token], index: int) -> bool:
    """Whether the `<<<` of a launch begins here."""
    is_one = index > 0 and _is_run(code, index, "<") and code[index - 1].text != "operator"
    return is_one and _end_of_configuration(code, index + 3) is not None


def _launched(code: list[Token], index: int) -> str:
    """What the `<<<` at `index` launches, without template arguments."""
    depth = 0
    for token in reversed(code[:index]):
        depth += {">": 1, "<": -1}.get(token.text, 0)
        if depth == 0 and token.kind == "name":
            return token.text
    return "?"


def _is_run(code: list[Token], index: int, sign: str) -> bool:
    return [token.text for token in code[index : index + 3]] == [sign] * 3


def _end_of_configuration(code: list[Token], index: int) -> int | None:
    """Where the `>>>` of a launch begins whose configuration begins at `index`."""
    depth = 0
    for position in range(index, len(code) - 3):
        text = code[position].text
        if code[position].kind == "sign" and text in OPEN:
            depth += 1
        elif code[position].kind == "sign" and text in CLOSE:
            depth -= 1
        elif text == ";" or depth < 0:
            return None
        if depth == 0 and _is_run(code, position, ">") and code[position + 3].text == "(":
            return position
    return None


def _template_names(code: list[Token]) -> set[str]:
    """The names of the function templates in the op's own files: a launch may leave their arguments to be deduced."""
    names = set()
    for index, token in enumerate(code):
        if token.text != "template" or index + 1 >= len(code) or code[index + 1].text != "<":
            continue
        for position in range(end_of_template(code, index + 1), len(code) - 1):
            if code[position].text in ("{", ";", "="):
                break
            if code[position + 1].text == "(" and code[position].kind == "name" and not _is_specifier(code[position]):
                names.add(code[position].text)
                break
    return names


def _is_specifier(token: Token) -> bool:
    return token.text in ("__attribute__", "alignas", "requires", "decltype", "noexcept", "explicit", "__declspec")


def _deduce(code: list[Token], index: int) -> None:
    """A kernel template without arguments becomes a function that deduces them from those of the launch."""
    first = index
    while first >= 2 and code[first - 1].text == "::" and code[first - 2].kind == "name":
        first -= 2
    if first >= 1 and code[first - 1].text == "::":
        first -= 1
    name = "".join(token.text for token in code[first : index + 1])
    for token in code[first:index]:
        token.text = ""
    code[index].text = f"::kjit_sim::deduced([&](auto&... kjit_args) {{ {name}(kjit_args...); }})"


def _rewrite_shared_memory(code: list[Token]) -> None:
    """`extern __shared__ T name[]`: in a function a reference; outside one, and in a lambda, every use of the name."""
    in_function: list[bool] = []
    statement = end_of_lambda = 0
    everywhere: dict[str, tuple[str, int]] = {}
    in_lambdas: dict[str, tuple[str, int]] = {}  # which cannot capture a copy
    index = 0
    while index < len(code):
        token = code[index]
        if token.text == "{" and token.kind == "sign":
            words = [each.text for each in code[statement:index]]
            is_namespace = "namespace" in words[:3] or (words[:1] == ["extern"] and len(words) == 2)
            in_function.append(not is_namespace)
            statement = index + 1
        elif token.text == "}" and token.kind == "sign":
            if in_function:
                in_function.pop()
            everywhere = {name: use for name, use in everywhere.items() if use[1] <= len(in_function)}
            in_lambdas = {name: use for name, use in in_lambdas.items() if use[1] <= len(in_function)}
            statement = index + 1
        elif token.text == ";":
            statement = index + 1
        elif token.text in ("extern", "__shared__", "static"):
            declared = _shared_declaration(code, index)
            if declared is not None:
                end, name, type_, rest = declared
                value = f"*reinterpret_cast<{type_} (*)[]{rest}>(::kjit_sim::dynamic_shared())"
                if any(in_function):
                    # Declared as well, so that the compiler refuses one name with two types, as nvcc does.
                    declared_once = f"extern {type_} {DYNAMIC}{name}[]{rest} __attribute__((unused));"
                    code[index].text = f"{declared_once} {type_} (&{name})[]{rest} = {value}"
                    everywhere.pop(name, None)
                    in_lambdas[name] = f"({value})", len(in_function)
                else:
                    code[index].text = ""
                    everywhere[name] = f"({value})", len(in_function)
                for each in code[index + 1 : end]:
                    each.text = ""
                index = end
                continue
            if [each.text for each in code[index : index + 3]] == ["static", "thread_local", "alignas"]:
                end = matching(code, index + 3)
                alignment = _text(code[index + 2 : end + 1])
                token.text = f"{alignment} static"
                for each in code[index + 2 : end + 1]:
                    each.text = ""
        elif token.text == "[" and in_lambdas and _is_lambda(code, index):
            end_of_lambda = max(end_of_lambda, _end_of_lambda(code, index))
        elif token.kind == "name" and (
            token.text in everywhere or (index < end_of_lambda and token.text in in_lambdas)
        ):
            before = code[index - 1].text if index else ""
            if before not in (".", "->") and not (before == "::" and index > 1 and code[index - 2].kind == "name"):
                token.text = (everywhere.get(token.text) or in_lambdas[token.text])[0]
        index += 1


def _is_lambda(code: list[Token], index: int) -> bool:
    """Whether the `[` at `index` begins a lambda, and is no subscript, bound or attribute."""
    before = code[index - 1]
    is_operand = before.text in (")", "]", "[") or (before.kind != "sign" and before.text != "return")
    return not is_operand and code[index + 1 : index + 2] != [] and code[index + 1].text != "["


def _end_of_lambda(code: list[Token], index: int) -> int:
    """The index of the brace that closes the body of the lambda that begins at `index`."""
    position = matching(code, index) + 1
    while position < len(code) and code[position].text not in ("{", ";", ",", ")"):
        position = matching(code, position) + 1 if code[position].text == "(" else position + 1
    return matching(code, position) if code[position : position + 1] and code[position].text == "{" else index


def _shared_declaration(code: list[Token], index: int) -> tuple[int, str, str, str] | None:
    """Read a declaration of dynamic shared memory that begins at `index`; the memory has more than any alignment.

    Returns:
        The index of its `;`, its name, the type of its elements, and what follows the empty brackets. None where it is
        another declaration.
    """
    end = index
    while end < len(code) and code[end].text not in (";", "{", "}", "=", "("):
        if code[end].text in ("alignas", "__attribute__", "__align__") and end + 1 < len(code):
            end = matching(code, end + 1)
        end += 1
    words = code[index:end]
    texts = [token.text for token in words]
    if end >= len(code) or code[end].text != ";" or "extern" not in texts:
        return None
    if not {"thread_local", "__shared__"} & set(texts):
        return None
    type_: list[Token] = []
    position = 0
    while position < len(words) and not (texts[position] == "[" and texts[position + 1 : position + 2] == ["]"]):
        if texts[position] in ("alignas", "__attribute__", "__align__"):
            position = matching(words, position + 1)
        elif texts[position] == "[" and texts[position + 1 : position + 2] == ["["]:
            position = matching(words, position)
        elif texts[position] not in ("extern", "static", "thread_local", "__shared__", "inline"):
            type_.append(words[position])
        position += 1
    if position == len(words) or len(type_) < 2:
        return None
    name = type_.pop().text
    return end, name, _text(type_), _text(words[position + 2 :])


def _rewrite_own_names(code: list[Token]) -> None:
    """`using name = name<...>;` in a class: the template of that name gets another one ahead of the class."""
    scopes: list[str] = []
    statement = head = count = 0
    for index, token in enumerate(code):
        if token.kind != "sign" and token.text != "using":
            continue
        if token.text == "{":
            scopes.append(scope(code[statement:index]))
            if scopes[-1] == "class" and "class" not in scopes[:-1]:
                head = statement
        elif token.text == "}" and scopes:
            scopes.pop()
        elif token.text == "using" and scopes[-1:] == ["class"] and "other" not in scopes:
            parameters = _parameters_of_own_name(code, index)
            if parameters is not None:
                position = index + 4 if code[index + 3].text == "typename" else index + 3
                name, outer = code[position].text, f"kjit_outer{count}_{code[position].text}"
                count += 1
                names = ", ".join(f"kjit_{i}" for i in range(len(parameters)))
                declared = ", ".join(f"{kind} kjit_{i}" for i, kind in enumerate(parameters))
                code[head].text = f"template <{declared}> using {outer} = {name}<{names}>; {code[head].text}"
                code[position].text = outer
        if token.text in (";", "{", "}"):
            statement = index + 1


def _parameters_of_own_name(code: list[Token], index: int) -> list[str] | None:
    """For `using name = name<...>;` at `index`: how the template's parameters are declared. Else None."""
    texts = [token.text for token in code[index : index + 6]]
    if len(texts) == 6 and texts[3] == "typename":
        del texts[3]
    if len(texts) < 5 or texts[1] != texts[3] or texts[2] != "=" or texts[4] != "<":
        return None
    begin = index + 4 if code[index + 3].text != "typename" else index + 5
    end = end_of_template(code, begin)
    if code[end : end + 1] and code[end].text != ";":
        return None
    kinds, depth, first = [], 0, begin + 1
    for position in range(begin, end):
        text = code[position].text
        depth += (text in ("<", *OPEN)) - (text in (">", *CLOSE))
        if (text == "," and depth == 1) or position == end - 1:
            is_number = position - first == 1 and (
                code[first].kind == "number" or code[first].text in ("true", "false")
            )
            kinds.append("auto" if is_number else "typename")
            first = position + 1
    return kinds


def _rewrite_empty_loops(code: list[Token]) -> None:
    """`while (*flag == 0);` waits for another thread, which has to run for that."""
    for index, token in enumerate(code[:-1]):
        if token.text != "while" or code[index + 1].text != "(" or _ends_do(code, index):
            continue
        end = matching(code, index + 1)
        body = [each.text for each in code[end + 1 : end + 3]]
        if body[:1] == [";"]:
            code[end + 1].text = "::kjit_sim::looked();"
        elif body == ["{", "}"]:
            code[end + 1].text = "{ ::kjit_sim::looked();"


def _ends_do(code: list[Token], index: int) -> bool:
    """Whether the `while` at `index` is that of a `do`."""
    if index == 0:
        return False
    if code[index - 1].text == "}":
        opened = _opening(code, index - 1)
        return opened > 0 and code[opened - 1].text == "do"
    for position in range(index - 2, -1, -1):
        if code[position].text in (";", "{", "}"):
            return False
        if code[position].text == "do":
            return True
    return False


def main(source: str, target: str, *preprocess: str) -> int:
    """Rewrite the file `source` into `target`; refusals go to stderr, as a compiler writes its errors.

    Args:
        preprocess: the command that made `source`, without what it writes. It is run once more, for the device, where
            a file of the op's own mentions `__CUDA_ARCH__`; what it reads then is told in `target`.d.
    """
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        unit = file.read()
    if preprocess:
        listing = f"{target}.d"
        if mentions_architecture(unit) and not any(_refuse_headers(unit)):
            told = ("-MD", "-MF", listing, "-MT", target, "-o", f"{target}.device")
            status = subprocess.run([*preprocess, f"-D__CUDA_ARCH__={ARCHITECTURE}", *told], check=False).returncode
            if status != 0:
                return status
            with open(f"{target}.device", encoding="utf-8", errors="surrogateescape") as file:
                unit = merge(unit, file.read())
        else:
            with open(listing, "w", encoding="utf-8") as file:
                file.write(f"{target}:\n")
    text, refusals = rewrite(unit)
    for refusal in dict.fromkeys(refusals):
        sys.stderr.write(f"{refusal}\n")
    if refusals:
        return 1
    with open(target, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
