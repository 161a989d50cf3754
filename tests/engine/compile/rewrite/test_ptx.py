"""kjit.engine.compile.rewrite.ptx: C++ for PTX, and PTX without (values: tests/gpu/test_inline_ptx.py)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kjit.engine.compile.rewrite.ptx import translate


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
        ("mov.s32 %0, %laneid;", "mov((x), ::kjit_sim::lane_id());"),
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


# An example of each word in the table of docs/simulator.md.
EXAMPLES = """
ld.global.L1::no_allocate.v2.f32 {%0, %1}, [%2];
ld.volatile.global.u32 %0, [%2];
ld.relaxed.gpu.global.u32 %0, [%2];
ld.acquire.gpu.global.u32 %0, [%2];
st.release.sys.global.u32 [%2], %0;
st.shared.b32 [%2], %0;
atom.global.add.u32 %0, [%2], 1;
red.global.add.f32 [%2], %1;
cp.async.cg.shared.global.L2::128B [%0], [%2], 16;
cvta.to.shared.u64 %2, %2;
prefetch.global.L2 [%2];
add.s32 %0, %0, 1;
sub.u64 %2, %2, 1;
mul.lo.u32 %0, %0, %0;
mul.wide.u32 %2, %0, %0;
mad.lo.s32 %0, %0, %0, 1;
div.u32 %0, %0, 3;
rem.s32 %0, %0, 3;
min.s32 %0, %0, 1;
max.u32 %0, %0, 1;
abs.s32 %0, %0;
neg.s32 %0, %0;
and.b32 %0, %0, 15;
or.b64 %2, %2, 15;
xor.b32 %0, %0, 15;
not.b32 %0, %0;
shl.b32 %0, %0, 3;
shr.s32 %0, %0, 3;
popc.b32 %0, %0;
clz.b32 %0, %0;
brev.b32 %0, %0;
bfe.u32 %0, %0, 3, 5;
bfi.b32 %0, %0, %0, 3, 5;
prmt.b32 %0, %0, %0, 0x3210;
lop3.b32 %0, %0, %0, %0, 0xca;
dp4a.s32.s32 %0, %0, %0, %0;
{ .reg .pred p; setp.lt.u32 p, %0, 3; selp.b32 %0, 1, 2, p; @!p mov.u32 %0, 3; }
{ .reg .b32 low, high; mov.b64 {low, high}, %2; mov.b64 %2, {high, low}; }
add.ftz.f32 %1, %1, %1;
sub.f64 %3, %3, %3;
mul.rn.f32 %1, %1, %1;
fma.rn.f64 %3, %3, %3, %3;
div.full.f32 %1, %1, %1;
min.f32 %1, %1, %1;
max.f32 %1, %1, %1;
abs.f32 %1, %1;
neg.f64 %3, %3;
rcp.approx.ftz.f32 %1, %1;
sqrt.rn.f32 %1, %1;
rsqrt.approx.f32 %1, %1;
ex2.approx.ftz.f32 %1, %1;
lg2.approx.f32 %1, %1;
sin.approx.f32 %1, %1;
cos.approx.f32 %1, %1;
tanh.approx.f32 %1, %1;
add.f16x2 %0, %0, %0;
sub.rn.bf16x2 %0, %0, %0;
mul.f16x2 %0, %0, %0;
fma.rn.bf16x2 %0, %0, %0, %0;
min.f16 %4, %4, %4;
max.bf16 %4, %4, %4;
cvt.rn.f32.s32 %1, %0;
cvt.rzi.s32.f64 %0, %3;
cvt.rn.f16x2.f32 %0, %1, %1;
cvt.f32.bf16 %1, %4;
cvt.rn.satfinite.e4m3x2.f32 %4, %1, %1;
cvt.rn.f16x2.e5m2x2 %0, %4;
cvt.rna.tf32.f32 %0, %1;
shfl.sync.bfly.b32 %0, %0, 1, 31, -1;
vote.sync.ballot.b32 %0, 1, -1;
match.any.sync.b32 %0, %0, -1;
redux.sync.add.s32 %0, %0, -1;
{ .reg .pred p; elect.sync %0|p, -1; }
activemask.b32 %0;
bar.sync 1, 64;
bar.warp.sync -1;
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
mbarrier.init.shared::cta.b64 [%0], 32;
mbarrier.arrive.shared::cta.b64 %2, [%0];
mbarrier.arrive.expect_tx.shared::cta.b64 %2, [%0], 64;
{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 1; }
fence.proxy.async.shared::cta;
griddepcontrol.wait;
mov.u32 %0, %%laneid; mov.u32 %0, %%warpid; mov.u32 %0, %%lanemask_lt; mov.u32 %0, %%tid.x;
mov.u32 %0, %%clock; mov.u64 %2, %%globaltimer; mov.u32 %0, %%cluster_ctarank;
"""


def test_the_page_names_instructions_that_there_are() -> None:
    examples = EXAMPLES.strip().splitlines()
    unknown = [each for each in examples if translate(each, ["(u32)", "(f32)", "(u64)", "(f64)", "(u16)"]) is None]
    assert unknown == []
    page = (Path(__file__).parents[4] / "docs" / "simulator.md").read_text()
    table = page[page.index("| PTX | |") : page.index("PTX in code that")]
    words = re.findall(r"`([^`]+)`", table)
    assert len(words) > 60
    assert [word for word in words if not re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", EXAMPLES)] == []
