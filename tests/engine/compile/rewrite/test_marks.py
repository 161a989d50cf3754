"""kjit.engine.compile.rewrite.marks: marks of functions for the GPU are removed."""

from __future__ import annotations

import pytest
from units import rewritten

from kjit.engine.compile.rewrite.rewrite import rewrite


@pytest.mark.parametrize(
    ("kernel", "becomes"),
    [
        ("__global__ void k(int x = f({1})) { g(); }", "void k(int x = f({1})) { g(); }"),
        ("__global__ void k();\nvoid f() { g(); }", "void k(); void f() { g(); }"),
        (
            "template <int N> __global__ void __launch_bounds__(N, f<N>(2)) k(T* x) { g(); }",
            "template <int N> void k(T* x) { ::kjit_sim::launch_bounds(N, f < N > (2)); g(); }",
        ),
        ("__launch_bounds__(64) __global__ void k() {}", "void k() { ::kjit_sim::launch_bounds(64);}"),
        (
            "__launch_bounds__(N >= 2 ? 64 : 32) __global__ void k() {}",
            "void k() { ::kjit_sim::launch_bounds(N >= 2 ? 64 : 32);}",
        ),
        ("__launch_bounds__(64) __global__ void k();\nvoid f() {}", "void k(); void f() {}"),
    ],
)
def test_launch_bounds_are_looked_at_where_a_kernel_begins(kernel: str, becomes: str) -> None:
    assert "".join(rewritten(kernel).split()) == "".join(becomes.split())


def test_noinline_is_removed_except_from_attributes_of_the_library() -> None:
    attributes = "[[__gnu__::__noinline__]] void f();\n__attribute__((__noinline__)) void g();\n"
    system = f"{attributes}__noinline__ void h();\n"
    own = "static __noinline__ __device__ void i() {}\n[[gnu::__noinline__]] void j();\n"
    result, refusals = rewrite(f'# 1 "/sys/a.h" 1 3\n{system}# 1 "/op/a.cuh" 1\n{own}')
    assert refusals == []
    kept = "".join(line for line in result.splitlines() if not line.startswith("# "))
    expected = "[[__gnu__::__noinline__]] void f(); __attribute__(()) void g(); void h();"
    assert "".join(kept.split()) == "".join(f"{expected} static void i() {{}} [[gnu::__noinline__]] void j();".split())


def test_the_marks_of_kernels_in_other_files_are_taken_out() -> None:
    system = """__global__ void
__launch_bounds__(f(1,
  2)) k() { g(); }
# 7 "/sys/a.h" 3
__launch_bounds__(
# 8 "/sys/a.h" 3
  3) __global__ void l();
"""
    result, refusals = rewrite(f'# 1 "/sys/sim.h" 1 3\n{system}# 1 "/op/a.cuh" 1\n')
    assert refusals == []
    assert result.count("\n") == system.count("\n") + 2
    kept = [line for line in result.splitlines() if not line.startswith("# ")]
    assert "".join("".join(kept).split()) == "voidk(){g();}voidl();"
