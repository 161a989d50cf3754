"""kjit.engine.compile.rewrite.unsupported: features that need a GPU are errors with their place."""

from __future__ import annotations

import pytest
from units import rewritten, unit

from kjit.engine.compile.rewrite.rewrite import rewrite


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


@pytest.mark.parametrize(
    ("text", "what"),
    [
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
    _, refusals = rewrite(unit('#include\n# 5 "/op/a.cuh" 2\n\n\nvoid f() { wgmma_fence(); }\n'))
    assert [(refusal.file, refusal.line) for refusal in refusals] == [("/op/a.cuh", 7)]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('asm volatile("mov.u32 %0, "\n"%smid;" : "=r"(x));', "mov.u32 %0, %smid;"),
        ('if constexpr (a) { __asm__("bar.arrive 0, 64;"); }', "bar.arrive 0, 64;"),
        # One instruction is enough.
        (
            'asm("prmt.b32 %0, %1, %2, 1; bar.arrive 0, 64;" : "=r"(a) : "r"(b));',
            "prmt.b32 %0, %1, %2, 1; bar.arrive 0, 64;",
        ),
    ],
)
def test_ptx_without_a_stand_in_is_rejected_by_the_compiler(text: str, quoted: str) -> None:
    refused = f'__attribute__((error("the simulator cannot run inline PTX (asm \\"{quoted}\\")")))'
    result, refusals = rewrite(unit(f"void f() {{ {text} }}"))
    assert refused in result and not refusals


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
