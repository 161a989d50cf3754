"""kjit.engine.compile.rewrite.unsupported: features that need a GPU are errors with their place."""

from __future__ import annotations

import pytest
from units import rewritten, unit

from kjit.engine.compile.rewrite.rewrite import rewrite

USED = "\n__global__ void k(float* x) { x[0] = f(x[1]); }"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("__global__ void k(int* x) {\n if (x) { child<<<1, 2>>>(x); } }", "child"),
        ("__global__ void k(int* x) {\n child<T, f<2>><<<1, 2>>>(x); }", "child"),
        ("__global__ void k(int* x) {\n cudaLaunchKernel(child, 1, 2, x); }", "cudaLaunchKernel"),
    ],
)
def test_a_launch_from_a_kernel_is_refused(text: str, name: str) -> None:
    _, refusals = rewrite(unit(text))
    assert [str(refusal) for refusal in refusals] == [
        f"/op/a.cuh:2: error: the simulator cannot run a kernel that is launched by a kernel ({name})"
    ]


@pytest.mark.parametrize("declaration", ["__device__ float f(float);", "extern __device__ auto f(float) -> float;"])
def test_a_device_function_of_another_unit_is_refused_as_by_nvcc(declaration: str) -> None:
    _, refusals = rewrite(unit(f"namespace a {{ {declaration} }}{USED}"))
    assert [str(refusal) for refusal in refusals] == [
        "/op/a.cuh:1: error: code for the device calls 'f', which is not defined for the device"
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"__device__ float f(float);{USED} __device__ float f(float x) {{ return x; }}",
        f"__device__ auto f(float) -> float;{USED} __device__ auto f(float x) -> float {{ return x; }}",
        f"__host__ __device__ float f(float);{USED}",  # a function of the host, where the host calls it
        f"template <class T> __device__ T f(T);{USED}",
        "__device__ float f(float); __global__ void k(A a) { a.f(1); }",
        "struct A { __device__ float f(float); }; __global__ void k(A* a) { a->f(1); }",
        "auto f = [] __device__ (float x) { return x; }; void k() { f(1); }",
    ],
)
def test_other_device_functions_are_left_to_the_compiler(text: str) -> None:
    _, refusals = rewrite(unit(text))
    assert refusals == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('asm volatile("mov.u32 %0, "\n"%smid;" : "=r"(x));', 'inline PTX (asm "mov.u32 %0, %smid;")'),
        ('__asm__("bar.arrive 0, 64;");', 'inline PTX (asm "bar.arrive 0, 64;")'),
        ("const CUtensorMap map;", "TMA (CUtensorMap)"),
        ("wgmma_fence();", "tensor core instructions (wgmma_fence)"),
        (
            "void __cluster_dims__(2, 1, 1) k();",
            "clusters of a size that the kernel has, not the launch (__cluster_dims__)",
        ),
        ("cuda::ptx::mbarrier_init(x, 1);", "PTX (cuda::ptx)"),
        ("cub::DeviceScan::InclusiveSum(a, b, c, d, e);", "this part of CUB (cub::DeviceScan)"),
        ("float v = tex2D<float>(t, 0, 0);", "textures and surfaces (tex2D)"),
    ],
)
def test_what_needs_a_gpu_is_refused_with_its_place(text: str, what: str) -> None:
    _, refusals = rewrite(unit(f"int before;\n{text}"))
    assert [str(refusal) for refusal in refusals] == [f"/op/a.cuh:2: error: the simulator cannot run {what}"]


@pytest.mark.parametrize("text", ['asm volatile("" ::: "memory");', 'auto s = "asm(mov.u32);";', "int wmmax, tex2;"])
def test_what_only_looks_like_it_is_not_refused(text: str) -> None:
    assert rewritten(text) == text


def test_a_header_made_of_ptx_is_refused_where_it_is_included() -> None:
    text = 'int x;\n# 1 "/cuda/include/mma.h" 1 3\nint y;\n# 3 "/op/a.cuh" 2\n'
    _, (refusal,) = rewrite(unit(text))
    assert str(refusal).startswith("/op/a.cuh:2: error: the simulator cannot run tensor core instructions (<mma.h>)")


def test_system_headers_are_not_looked_at() -> None:
    text = '# 1 "/usr/include/x.h" 1 3 4\nasm("bar.arrive 0, 64;"); k<<<1, 1>>>(x);\n# 2 "/op/a.cuh" 2\nint y;'
    assert rewritten(text) == text


def test_a_macro_of_a_system_header_in_an_own_file_is_looked_at() -> None:
    text = 'void k() { extern\n# 1 "/op/a.cuh" 3\nstatic thread_local\n# 1 "/op/a.cuh"\n float s[]; }'
    assert "reinterpret_cast<float (*)[]>" in rewritten(text)


def test_empty_lines_after_a_line_marker_are_counted() -> None:
    _, refusals = rewrite(unit('#include\n# 5 "/op/a.cuh" 2\n\n\nvoid f() { asm("x;" ::: "memory"); }\n'))
    assert [(refusal.file, refusal.line) for refusal in refusals] == [("/op/a.cuh", 7)]


@pytest.mark.parametrize(
    "text",
    [
        'void f() { if constexpr (a > (b)) { asm("bar.arrive 0, 64;"); } }',
        'void f() { if constexpr (a) { } else { if (x) { asm("bar.arrive 0, 64;"); } } }',
    ],
)
def test_ptx_in_a_branch_that_may_be_discarded_is_left_to_the_compiler(text: str) -> None:
    refused = '__attribute__((error("the simulator cannot run inline PTX (asm \\"bar.arrive 0, 64;\\")")))'
    assert refused in rewritten(text)


@pytest.mark.parametrize(
    "text",
    [
        'void f() { if constexpr (a) { } asm("bar.arrive 0, 64;"); }',
        'void f() { if (a) { } else { asm("bar.arrive 0, 64;"); } }',
    ],
)
def test_ptx_beside_such_a_branch_is_refused(text: str) -> None:
    _, refusals = rewrite(unit(text))
    assert len(refusals) == 1


@pytest.mark.parametrize(
    ("header", "what"), [("cub/device/device_scan.cuh", "this part of CUB"), ("thrust/sort.h", "Thrust")]
)
def test_headers_of_device_algorithms_are_refused_where_they_are_included(header: str, what: str) -> None:
    _, (refusal,) = rewrite(unit(f'int x;\n# 1 "/cuda/include/cccl/{header}" 1 3\nint y;\n# 3 "/op/a.cuh" 2\n'))
    assert str(refusal).startswith(f"/op/a.cuh:2: error: the simulator cannot run {what}")


def test_cutlass_is_refused_where_an_op_includes_it() -> None:
    headers = "/own/include/cute/tensor.hpp", "/own/include/cute/layout.hpp", "/own/include/cute/arch/util.hpp"
    entered = "".join(f'# 1 "{header}" 1\nint y;\n' for header in headers)
    left = f'# 4 "{headers[1]}" 2\nint z;\n# 4 "{headers[0]}" 2\n# 1 "/own/include/cute/atom/copy.hpp" 1\n'
    _, refusals = rewrite(unit(f'int x;\n{entered}{left}# 3 "/op/a.cuh" 2\n'))
    assert {str(refusal) for refusal in refusals} == {"/op/a.cuh:2: error: the simulator cannot run CUTLASS"}
