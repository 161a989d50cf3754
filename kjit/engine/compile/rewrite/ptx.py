"""The translation of an `asm` statement of PTX to the C++ that the simulator runs.

    translate("prmt.b32 %0, %1, %2, 7;", ["(x)", "(a)", "(b)"])   # "::kjit_sim::ptx::prmt((x), (a), (b), 7);"
    translate("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p trap; }", ["(x)"])

Each instruction becomes a call of a function in kjit_sim/ptx.h, each register a variable, a predicate before an
instruction an `if`, a branch a `goto`. If one instruction is not in the table, the whole statement is not translated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SPACE = "::kjit_sim::ptx::"

_TYPES = {
    **{f"{kind}{bits}": f"std::uint{bits}_t" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"std::int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"{kind}16": "std::uint16_t" for kind in ("f", "bf")},
    **{f"{kind}16x2": "std::uint32_t" for kind in ("f", "bf")},
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
_FORMATS = {"f16": "F16", "bf16": "Bf16", "e4m3": "E4m3", "e5m2": "E5m2"}
_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_REDUX = {
    **{f"{op}.b32": f"k{op.title()}" for op in ("and", "or", "xor")},
    **{
        f"{op}.{kind}32": f"k{op.title()}{'Signed' if kind == 's' else 'Unsigned'}"
        for op in ("min", "max")
        for kind in "su"
    },
    **{f"add.{kind}32": "kAddUnsigned" for kind in "su"},
}
_VOTES = {"any": "kAny", "all": "kAll", "uni": "kUni", "ballot": "kBallot"}
_ATOMICS = {
    **{op: op.title() for op in ("add", "min", "max", "and", "or", "xor", "inc", "dec")},
    "exch": "Exch",
    "cas": "CAS",
}
_REGISTERS = {
    "laneid": "::kjit_sim::lane_id()",
    "warpid": f"{_SPACE}warp_id()",
    "clock": "static_cast<unsigned>(::clock64())",
    "clock64": "::clock64()",
    "globaltimer": "::globaltimer()",
    "cluster_ctarank": "::kjit_sim::cluster_rank()",
    "dynamic_smem_size": "static_cast<unsigned>(::kjit_sim::dynamic_shared_size())",
    **{
        f"{register}.{axis}": f"{name}.{axis}"
        for register, name in (
            ("tid", "::threadIdx"),
            ("ntid", "::blockDim"),
            ("ctaid", "::blockIdx"),
            ("nctaid", "::gridDim"),
        )
        for axis in "xyz"
    },
    "lanemask_eq": "(1u << ::kjit_sim::lane_id())",
    "lanemask_lt": "((1u << ::kjit_sim::lane_id()) - 1)",
    "lanemask_le": "((2u << ::kjit_sim::lane_id()) - 1)",
    "lanemask_gt": "~((2u << ::kjit_sim::lane_id()) - 1)",
    "lanemask_ge": "~((1u << ::kjit_sim::lane_id()) - 1)",
}

_HINTS = r"(?:\.(?:ca|cg|cs|cv|lu|wb|wt|nc|weak|L1::\w+|L2::\w+))*"
_ORDER = r"(?:\.(?:volatile|relaxed|acquire|release|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?"
_PLACE = r"(?:\.(?P<space>global|shared)(?:::cta)?)?"
_INTEGER = r"(?P<type>[us](?:16|32|64))"
_NUMBER = r"(?P<type>[us](?:16|32|64)|f32|f64)"
_REAL = r"(?:\.ftz)?\.(?P<type>f32|f64)"
_HALVES = r"(?:\.rn)?(?:\.ftz)?\.(?P<format>b?f16)(?P<pair>x2)?"
_SHARED_WORD = r"\.shared(?:::cta)?\.b64"

# The call for each instruction: `{all}` are its operands in order, `{address}` those in brackets, with an offset, and
# `{values}` the others; other words in braces are groups of the pattern, translated by the tables above.
_INSTRUCTIONS = (
    (rf"ld{_PLACE}{_HINTS}(?:\.v[248])?\.(?P<type>[busf]\d+)", "load<{type}>({address}, {values})"),
    (rf"st{_PLACE}{_HINTS}(?:\.v[248])?\.(?P<type>[busf]\d+)", "store<{type}>({address}, {values})"),
    (rf"ld{_ORDER}{_PLACE}{_HINTS}\.(?P<type>[busf]\d+)", "load_ordered<{type}>({address}, {values})"),
    (rf"st{_ORDER}{_PLACE}{_HINTS}\.(?P<type>[busf]\d+)", "store_ordered<{type}>({address}, {values})"),
    (rf"ld{_ORDER}{_PLACE}{_HINTS}\.v[248]\.(?P<type>[busf]\d+)", "load<{type}>({address}, {values})"),
    (rf"st{_ORDER}{_PLACE}{_HINTS}\.v[248]\.(?P<type>[busf]\d+)", "store<{type}>({address}, {values})"),
    (
        rf"atom{_ORDER}{_PLACE}\.(?P<atomic>\w+)\.(?P<type>[busf]\d+)",
        "atomic<{type}>([](auto... v) {{ return ::atomic{atomic}(v...); }}, {address}, {values})",
    ),
    (
        rf"red{_ORDER}{_PLACE}\.(?P<atomic>\w+)\.(?P<type>[busf]\d+)",
        "reduce<{type}>([](auto... v) {{ return ::atomic{atomic}(v...); }}, {address}, {values})",
    ),
    (r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\w+)*", "copy_async({all})"),
    (r"cvta\.to\.shared\.u(?:32|64)", "to_shared({all})"),
    (r"cvta\.shared\.u(?:32|64)", "from_shared({all})"),
    (r"cvta(?:\.to)?\.global\.u(?:32|64)", "mov({all})"),
    # Integers and bits.
    (rf"(?P<op>add|sub|min|max){_REAL}", "{op}<{type}>({all})"),
    (rf"(?P<op>add|sub|mul)\.rn{_REAL}", "{op}<{type}>({all})"),
    (rf"(?P<op>add|sub|min|max|rem|div|abs|neg)\.{_INTEGER}", "{op}<{type}>({all})"),
    (rf"(?P<op>mul|mad)\.(?P<part>lo|hi|wide)\.{_INTEGER}", "{op}_{part}<{type}>({all})"),
    (r"(?P<op>and|or|xor|not)\.(?P<type>b16|b32|b64|pred)", "bit_{op}<{type}>({all})"),
    (r"(?P<op>shl|shr)\.(?P<type>[bus](?:16|32|64))", "{op}<{type}>({all})"),
    (r"(?P<op>popc|clz|brev)\.(?P<type>b(?:32|64))", "{op}<{type}>({all})"),
    (r"bfe\.(?P<type>[us](?:32|64))", "bfe<{type}>({all})"),
    (r"bfi\.(?P<type>b(?:32|64))", "bfi<{type}>({all})"),
    (r"prmt\.b32", "prmt({all})"),
    (r"lop3\.b32", "lop3({all})"),
    (r"dp4a\.(?P<type>[us]32)\.(?P=type)", "dp4a<{type}>({all})"),
    (r"setp\.(?P<comparison>\w+)(?:\.ftz)?\.(?P<type>[busf](?:16|32|64))", "{compared}"),
    (r"selp\.(?P<type>[busf](?:16|32|64))", "select<{type}>({all})"),
    (r"mov\.(?P<type>[busf](?:16|32|64)|pred)", "{moved}"),
    # Floating point.
    (rf"mul{_REAL}", "mul<{type}>({all})"),
    (rf"(?:fma\.rn|mad){_REAL}", "fma<{type}>({all})"),
    (rf"div(?:\.(?:rn|full|approx)){_REAL}", "div<{type}>({all})"),
    (rf"(?P<op>abs|neg){_REAL}", "{op}<{type}>({all})"),
    (rf"(?P<op>rcp|sqrt)\.(?:rn|approx){_REAL}", "{op}<{type}>({all})"),
    (r"(?P<op>ex2|lg2|rsqrt|sin|cos|tanh)\.approx(?:\.ftz)?\.f32", "{op}<float>({all})"),
    (rf"(?P<op>add|sub|mul|min|max){_HALVES}", "halves<{format}, {count}>({op}_of, {all})"),
    (rf"fma{_HALVES}", "halves<{format}, {count}>(::kjit_sim::ptx::fma_of<{format}>, {all})"),
    (r"cvt(?:\.rn)?\.(?P<to>f32|f64)\.(?P<type>[us](?:8|16|32|64)|f32|f64)", "convert<{to}, {type}>({all})"),
    (r"cvt\.(?P<to>[us](?:8|16|32|64))\.(?P<type>[us](?:8|16|32|64))", "convert<{to}, {type}>({all})"),
    (
        r"cvt\.r(?P<round>[nzmp])i(?:\.ftz)?\.(?P<to>[us](?:32|64)|f32|f64)\.(?P<type>f32|f64)",
        "round<{to}, {type}, '{round}'>({all})",
    ),
    (r"cvt\.rn\.(?P<format>b?f16)x2\.f32", "narrow_pair<{format}, false>({all})"),
    (r"cvt\.rn\.(?P<format>b?f16)\.f32", "narrow_one<{format}>({all})"),
    (r"cvt\.f32\.(?P<format>b?f16)", "widen_one<{format}>({all})"),
    (r"cvt\.rn\.satfinite\.(?P<format>e4m3|e5m2)x2\.f32", "narrow_pair<{format}, true>({all})"),
    (r"cvt\.rn\.satfinite\.(?P<format>e4m3|e5m2)x2\.f16x2", "narrow_halves<{format}>({all})"),
    (r"cvt\.rn\.f16x2\.(?P<format>e4m3|e5m2)x2", "widen_pair<{format}>({all})"),
    (r"cvt\.rna\.tf32\.f32", "to_tf32({all})"),
    # Lanes, barriers and time.
    (r"redux\.sync\.(?P<redux>\w+\.\w+)", "redux<::kjit_sim::WarpOp::{redux}>({all})"),
    (r"shfl\.sync\.(?P<shuffle>up|down|bfly|idx)\.b32", "shuffle_{shuffle}({all})"),
    (r"vote\.sync\.(?P<vote>any|all|uni|ballot)\.(?:pred|b32)", "vote<::kjit_sim::WarpOp::{vote}>({all})"),
    (r"match\.any\.sync\.(?P<type>b(?:32|64))", "match_any<{type}>({all})"),
    (r"activemask\.b32", "mov({all}, ::kjit_sim::active_mask())"),
    (r"elect\.sync", "elect({all})"),
    (r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", "wait_at_barrier({all})"),
    (r"bar\.warp\.sync", "wait_for_lanes({all})"),
    (
        r"barrier\.cluster\.arrive(?P<relaxed>(?:\.relaxed)?)(?:\.release)?(?:\.aligned)?",
        "arrive_at_cluster({relaxed})",
    ),
    (r"barrier\.cluster\.wait(?:\.acquire)?(?:\.aligned)?", "wait_for_cluster()"),
    (rf"mbarrier\.init{_SHARED_WORD}", "mbarrier_start({all})"),
    (rf"mbarrier\.arrive{_ORDER}{_SHARED_WORD}", "mbarrier_arrived({all})"),
    (rf"mbarrier\.arrive\.expect_tx{_ORDER}{_SHARED_WORD}", "mbarrier_expects({all})"),
    (rf"mbarrier\.(?:try|test)_wait\.parity{_ORDER}{_SHARED_WORD}", "mbarrier_tested({all})"),
    (r"mbarrier\.inval\S*", "nothing()"),
    (r"membar\.\w+|fence\.(?:acq_rel|sc|release|acquire)\S*|fence\.proxy\.\S+|fence\.mbarrier_init\.\S+", "fence()"),
    (r"nanosleep\.u32", "::kjit_sim::yield()"),
    (r"trap", "::__trap()"),
    (r"createpolicy\.\S+", "mov({first}, 0)"),
    (r"cp\.async\.(?:commit_group|wait_group|wait_all)|griddepcontrol\.\w+|prefetch\S*", "nothing()"),
)
_OPERAND = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|[^,]+")
# At the start of a statement a brace opens or closes a scope; braces around operands come after a name.
_STATEMENT = re.compile(r"\s*(?:(?P<brace>[{}])|(?P<label>[\w$%=]+)\s*:(?!:)|(?P<text>[^;]*);)")
_GUARDED = re.compile(r"@(?P<not>!?)(?P<predicate>%{0,2}\w+)\s+(?P<rest>.*)", re.DOTALL)
_DECLARED = re.compile(r"\.reg\s+\.(?P<type>\w+)\s+(?P<names>.*)", re.DOTALL)


class UnknownError(Exception):
    """An instruction that cannot be translated."""


def translate(assembly: str, operands: list[str]) -> str | None:
    """The C++ statements for PTX; None if one of its instructions is unknown.

    Args:
        assembly: the instructions, with `%0` and so on for the operands.
        operands: C++ expressions.
    """
    try:
        return _Translation(operands).of(assembly)
    except UnknownError:
        return None


class _Translation:
    """The translation of one `asm`, with the registers and labels declared so far."""

    def __init__(self, operands: list[str]) -> None:
        self._operands = operands
        self._registers: dict[str, str] = {}
        self._declarations: dict[str, str] = {}

    def of(self, assembly: str) -> str:
        labels = {
            match["label"]: _identifier("label", match["label"]) for match in _statements(assembly) if match["label"]
        }
        calls = [self._statement(match, labels) for match in _statements(assembly)]
        declared = [f"__label__ {', '.join(labels.values())};"] if labels else []
        declared += [f"{type_} {name}{{}};" for name, type_ in self._declarations.items()]
        return " ".join(filter(None, (*declared, *calls)))

    def _statement(self, match: re.Match[str], labels: dict[str, str]) -> str:
        if match["brace"]:
            return ""
        if match["label"]:
            return f"{labels[match['label']]}:;"
        text = match["text"].strip()
        guarded = _GUARDED.fullmatch(text)
        if guarded is not None:
            condition = f"{guarded['not']}{self._one(guarded['predicate'])}"
            return f"if ({condition}) {{ {self._instruction(guarded['rest'].strip(), labels)} }}"
        return self._instruction(text, labels)

    def _instruction(self, text: str, labels: dict[str, str]) -> str:
        if not text:
            return ""
        declared = _DECLARED.fullmatch(text)
        if declared is not None:
            self._declare(declared["type"], declared["names"])
            return ""
        name, _, rest = text.partition(" ")
        if re.fullmatch(r"bra(?:\.uni)?", name):
            if rest.strip() not in labels:
                raise UnknownError
            return f"goto {labels[rest.strip()]};"
        for pattern, call in _INSTRUCTIONS:
            found = re.fullmatch(pattern, name)
            if found is not None:
                return self._call(name, found.groupdict(), call, rest.replace(" ", ""))
        raise UnknownError

    def _declare(self, type_: str, names: str) -> None:
        if type_ not in _TYPES:
            raise UnknownError
        for name in names.replace(" ", "").replace("%%", "%").split(","):
            many = re.fullmatch(r"(.*)<(\d+)>", name)
            for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                variable = self._registers[each] = _identifier("register", each)
                if self._declarations.setdefault(variable, _TYPES[type_]) != _TYPES[type_]:
                    raise UnknownError  # one name with two types, in separate scopes

    def _call(self, name: str, groups: dict[str, str | None], call: str, rest: str) -> str:
        pieces = _OPERAND.findall(rest)
        found = [self._operand(piece, groups.get("space")) for piece in pieces]
        in_brackets = [piece.startswith("[") for piece in pieces]
        every = [argument for each in found for argument in each]
        others = [
            argument for each, is_address in zip(found, in_brackets, strict=True) if not is_address for argument in each
        ]
        if "cache_hint" in name and others:  # a cache policy, which does not affect values
            others.pop()
        words: dict[str, str | None] = {
            "all": ", ".join(every),
            "address": ", ".join(
                argument for each, is_address in zip(found, in_brackets, strict=True) if is_address for argument in each
            ),
            "values": ", ".join(others),
            "first": every[0] if every else "",
            "op": groups.get("op"),
            "part": groups.get("part"),
            "round": groups.get("round"),
            "shuffle": groups.get("shuffle"),
            "relaxed": "false" if groups.get("relaxed") else "true",
            "count": "2" if groups.get("pair") else "1",
        }
        for key, table in (("type", _TYPES), ("to", _TYPES), ("atomic", _ATOMICS), ("redux", _REDUX), ("vote", _VOTES)):
            words[key] = table.get(groups.get(key) or "")
        words["format"] = _SPACE + _FORMATS[str(groups["format"])] if groups.get("format") else None
        if call == "{compared}":
            comparison = _COMPARISONS.get(str(groups["comparison"]))
            if comparison is None or len(every) != 3 or words["type"] is None:
                raise UnknownError
            first, second = (f"{_SPACE}get<{words['type']}>({each})" for each in every[1:])
            return f"{every[0]} = {first} {comparison} {second};"
        if call == "{moved}":
            vectors = [piece.startswith("{") for piece in pieces]
            call = "unpack({all})" if vectors[:1] == [True] else "pack({all})" if True in vectors else "mov({all})"
            if vectors[:1] == [True]:
                words["all"] = ", ".join([*found[1], *found[0]])
        if call.startswith("halves") and words["op"]:
            words["op"] = f"{_SPACE}{words['op']}"
        needed = re.findall(r"(?<!\{)\{(\w+)\}", call)
        if any(words[each] is None for each in needed):
            raise UnknownError
        text = call.format(**words)
        return f"{text};" if text.startswith("::") else f"{_SPACE}{text};"

    def _operand(self, text: str, space: str | None) -> list[str]:
        """The arguments for an operand: `{a, b}` and `a|b` are two, `[a+4]` is an address and an offset."""
        if text.startswith("{"):
            return [self._one(part) for part in text[1:-1].split(",")]
        if text.startswith("["):
            place, sign, offset = re.fullmatch(r"\[([^+-]*)([+-]?)(.*)\]", text).groups()  # type: ignore[union-attr]
            address = self._one(place)
            where = f"{_SPACE}shared({address})" if space == "shared" else address
            return [where, f"{'-' if sign == '-' else ''}{offset or '0'}"]
        return [self._one(part) for part in text.split("|")]

    def _one(self, text: str) -> str:
        name = text.replace("%%", "%")
        if name in self._registers:
            return self._registers[name]
        if name == "_":
            return f"{_SPACE}Nowhere()"
        if name.startswith("%") and name[1:] in _REGISTERS:
            return _REGISTERS[name[1:]]
        number = re.fullmatch(r"%(\d+)", text)
        if number and int(number[1]) < len(self._operands):
            return self._operands[int(number[1])]
        bits = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text)
        if bits:
            return f"{_SPACE}get<float>(0x{bits[1]}u)"
        if re.fullmatch(r"-?(?:\d+|0[xX][0-9a-fA-F]+)U?|-?\d+\.\d*(?:[eE][+-]?\d+)?", text):
            return text
        raise UnknownError


def _statements(assembly: str) -> Iterator[re.Match[str]]:
    """The instructions, labels and braces of a text; a brace at the beginning of a statement belongs to a scope."""
    position = 0
    text = assembly.strip()
    if text and not text.endswith((";", "}", ":")):
        text += ";"
    while position < len(text):
        match = _STATEMENT.match(text, position)
        if match is None:
            raise UnknownError
        yield match
        position = match.end()


def _identifier(kind: str, name: str) -> str:
    """A C++ name for a register or a label."""
    return f"kjit_{kind}_" + re.sub(r"\W", "_", name.replace("%=", "").replace("%", "").replace("$", "d"))
