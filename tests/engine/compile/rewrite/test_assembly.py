"""kjit.engine.compile.rewrite.assembly: inline PTX becomes calls."""

from __future__ import annotations

import pytest
from units import rewritten


@pytest.mark.parametrize(
    ("assembly", "becomes"),
    [
        (
            'asm("prmt.b32 %0, %1, %2, 0x12;" : "=r"(a[1]) : "r"(b), "r"(f(c, 1)))',
            "prmt((a[1]), (b), (f(c, 1)), 0x12);",
        ),
        (
            'asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2+8];\\n" : "=r"(a), "=r"(b) : "l"(p))',
            "load<std::uint32_t>((p), 8, (a), (b));",
        ),
        (
            'asm volatile("st.global.cs.v2.f32 " "[%0], {%1, %2};" :: "l"(p), "f"(x), "f"(y + 1))',
            "store<float>((p), 0, (x), (y + 1));",
        ),
        (
            'asm("ld.global.L2::cache_hint.b64 %0, [%1], %2;" : "=l"(a) : "l"(p), "l"(policy))',
            "load<std::uint64_t>((p), 0, (a));",
        ),
        ('asm("mov.u32 %0, %1;" : "=r"(a) : "r"(b >> (c == 2) << 1))', "mov((a), (b >> (c == 2) << 1));"),
        ('asm("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(s), "l"(p))', "copy_async((s), 0, (p), 0, 16);"),
        (
            'asm("redux.sync.max.s32 %0, %1, %2;" : "=r"(a) : "r"(b), "r"(m))',
            "redux<::kjit_sim::WarpOp::kMaxSigned>((a), (b), (m));",
        ),
    ],
)
def test_an_instruction_with_a_stand_in_becomes_a_call(assembly: str, becomes: str) -> None:
    expected = "void f() { { ::kjit_sim::ptx::" + becomes + " }; }"
    assert "".join(rewritten(f"void f() {{ {assembly}; }}").split()) == "".join(expected.split())


def test_operands_with_names_and_registers_are_found() -> None:
    text = 'void f() { asm("lop3.b32 %[out], %%tid.x, %[b], %[a], 1;" : [out] "=r"(x) : [a] "r"(c), [b] "r"(d)); }'
    expected = "voidf(){{::kjit_sim::ptx::lop3((x),::threadIdx.x,(d),(c),1);};}"
    assert "".join(rewritten(text).split()) == expected


def test_what_only_a_gpu_waits_for_is_nothing() -> None:
    text = 'void f() { asm volatile("griddepcontrol.wait; cp.async.commit_group;" ::: "memory"); }'
    nothing = "::kjit_sim::ptx::nothing();"
    assert "".join(rewritten(text).split()) == f"voidf(){{{{{nothing}{nothing}}};}}"
