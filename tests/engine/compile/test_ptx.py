"""kjit.engine.compile.ptx: the C++ that stands for PTX, and what has none (values: tests/gpu/test_inline_ptx.py)."""

from __future__ import annotations

import pytest

from kjit.engine.compile.ptx import translate


def translated(assembly: str, *operands: str) -> str:
    text = translate(assembly, list(operands))
    assert text is not None
    return text.replace("::kjit_sim::ptx::", "").replace("kjit_register_", "").replace("kjit_label_", "")


@pytest.mark.parametrize(
    ("assembly", "becomes"),
    [
        ("add.u32 %0, %1, -3;", "add<std::uint32_t>((x), (y), -3);"),
        ("fma.rn.ftz.f32 %0, %1, 0f3F800000, %1;", "fma<float>((x), (y), get<float>(0x3F800000u), (y));"),
        ("ld.shared::cta.v2.f32 {%0, %1}, [%0+-8];", "load<float>(shared((x)), -8, (x), (y));"),
        ("ld.acquire.gpu.global.u32 %0, [%1 + 4];", "load_ordered<std::uint32_t>((y), 4, (x));"),
        ("mov.b64 {%0, _}, %1;", "unpack((y), (x), Nowhere());"),
        ("mov.u32 %0, %%tid.x;", "mov((x), ::threadIdx.x);"),
        ("shfl.sync.idx.b32 %0|p, %1, 0, 31, -1;", None),
        ("bar.sync 0", "wait_at_barrier(0);"),
        (
            "atom.acq_rel.gpu.global.inc.u32 %0, [%1], 7;",
            "atomic<std::uint32_t>([](auto... v) { return ::atomicInc(v...); }, (y), 0, (x), 7);",
        ),
        ("fma.rn.bf16x2 %0, %1, %1, %1;", "halves<Bf16, 2>(fma_of<Bf16>, (x), (y), (y), (y));"),
    ],
)
def test_an_instruction_is_a_call(assembly: str, becomes: str | None) -> None:
    if becomes is None:
        assert translate(assembly, ["(x)", "(y)"]) is None
    else:
        assert translated(assembly, "(x)", "(y)") == becomes


def test_registers_are_variables_and_predicates_conditions() -> None:
    text = "{ .reg .pred %%p; .reg .b16 h<2>; setp.ne.b32 %%p, %0, 0; @!%%p trap; mov.b32 {h0, h1}, %0; }"
    assert translated(text, "(x)") == (
        "bool p{}; std::uint16_t h0{}; std::uint16_t h1{}; "
        "p = get<std::uint32_t>((x)) != get<std::uint32_t>(0); if (!p) { ::__trap(); } unpack((x), h0, h1);"
    )


@pytest.mark.parametrize(
    "loop",
    [
        "{ .reg .pred p; AGAIN_%=: WAIT p, [%0+8], %1; @!p bra AGAIN_%=; }",
        "{ .reg .pred p; AGAIN: WAIT p, [%0+8], %1; @p bra.uni DONE; bra.uni AGAIN; DONE: }",
    ],
)
def test_branches_are_jumps_to_labels_of_the_statement(loop: str) -> None:
    text = translated(loop.replace("WAIT", "mbarrier.try_wait.parity.shared::cta.b64"), "(place)", "(phase)")
    assert text.startswith("__label__ AGAIN")
    assert "mbarrier_tested(p, (place), 8, (phase));" in text
    assert "goto AGAIN" in text


@pytest.mark.parametrize(
    "assembly",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0}, {%0}, {%0}, {%0};",
        "add.u32 %0, %1, r;",  # a register that is declared nowhere
        "add.u32 %0, %9, 1;",
        "bra nowhere;",
        "add.sat.s32 %0, %0, 1;",
        "mov.u32 %0, %%smid;",
        "{ .reg .b32 r; { .reg .f32 r; } }",  # one name, two types
    ],
)
def test_what_is_not_known_makes_all_of_a_statement_unknown(assembly: str) -> None:
    assert translate(f"trap; {assembly}", ["(x)", "(y)"]) is None
