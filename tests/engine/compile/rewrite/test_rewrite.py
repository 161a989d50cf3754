"""kjit.engine.compile.rewrite.rewrite: what it and its parts change in a unit, leave and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.rewrite.rewrite import main, rewrite


def unit(text: str) -> str:
    """As a preprocessor writes it: a system header, then an op's file that `text` is."""
    return f'# 1 "/sys/sim.h" 1 3\nsystem<<<1, 1>>>(x);\n# 1 "/op/a.cuh" 1\n{text}'


def rewritten(text: str) -> str:
    result, refusals = rewrite(unit(text))
    assert refusals == []
    assert result.startswith(unit(""))
    assert result.count("\n") == unit(text).count("\n")
    return result[len(unit("")) :]


@pytest.mark.parametrize(
    ("launch", "becomes"),
    [
        ("k<<<1, 32>>>(x);", "k ->*::kjit_sim::grid(1, 32)(x);"),
        ("ns::k<T, 4> <<< g, b, n * 4, s >>> ();", "ns::k<T, 4>  ->*::kjit_sim::grid( g, b, n * 4, s ) ();"),
        ("k<<<f<g<int>>(1), (a >> 2)>>>(x);", "k ->*::kjit_sim::grid(f<g<int>>(1), (a >> 2))(x);"),
        ("table[i]<<<1,\n1>>>(x);", "table[i] ->*::kjit_sim::grid(1,\n1)(x);"),
        ("(*k)<<<dim3{1, 2}, 1>>>(x);", "(*k) ->*::kjit_sim::grid(dim3{1, 2}, 1)(x);"),
    ],
)
def test_a_launch_becomes_a_call(launch: str, becomes: str) -> None:
    assert rewritten(launch) == becomes


@pytest.mark.parametrize(
    "text",
    [
        'auto s = "k<<<1, 1>>>(x)";',
        'auto s = R"(k<<<1, 1>>>(x))";',
        "x = a << b; y = a < b; z = f<g<h<int>>>(1);",
        "x << operator<<<T>(y);",
        "char c = '\"'; int n = 1'000;",
    ],
)
def test_what_is_no_launch_stays(text: str) -> None:
    assert rewritten(text) == text


def test_a_kernel_template_deduces_its_arguments() -> None:
    text = "template <typename T, int kN = f<2>()> __global__ void k(T* x);\nvoid f() { ns::k<<<1, 2>>>(x); }"
    call = "::kjit_sim::deduced([&](auto&... kjit_args) { ns::k(kjit_args...); })"
    assert rewritten(text).splitlines()[1] == f"void f() {{ {call} ->*::kjit_sim::grid(1, 2)(x); }}"


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


USED = "\n__global__ void k(float* x) { x[0] = f(x[1]); }"


@pytest.mark.parametrize("declaration", ["__device__ float f(float);", "extern __device__ auto f(float) -> float;"])
def test_a_device_function_of_another_unit_is_refused_as_by_nvcc(declaration: str) -> None:
    _, refusals = rewrite(unit(f"namespace a {{ {declaration} }}{USED}"))
    assert [str(refusal) for refusal in refusals] == ["/op/a.cuh:1: error: Unresolved extern function 'f'"]


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
    ("loop", "becomes"),
    [
        ("while (*flag == (0));", "while(*flag==(0))::kjit_sim::looked();"),
        ("if (a) { b(); } while (*flag) { }", "if(a){b();}while(*flag){::kjit_sim::looked();}"),
        ("do { f(); } while (*flag);", "do{f();}while(*flag);"),
        ("do f(); while (*flag);", "dof();while(*flag);"),
        ("while (i < n) f();", "while(i<n)f();"),
    ],
)
def test_a_loop_that_only_waits_lets_others_run(loop: str, becomes: str) -> None:
    assert "".join(rewritten(f"void k() {{ {loop} }}").split()) == f"voidk(){{{becomes}}}"


@pytest.mark.parametrize("shared", ["__shared__", "static thread_local"])
@pytest.mark.parametrize(
    ("declaration", "type_", "rest"),
    [
        ("extern SHARED float s[];", "float", ""),
        ("extern SHARED __attribute__((aligned(16))) unsigned char s[];", "unsigned char", ""),
        ("alignas(16) extern SHARED T s[][32];", "T", "[32]"),
    ],
)
def test_dynamic_shared_memory_in_a_function_is_a_reference(
    shared: str, declaration: str, type_: str, rest: str
) -> None:
    text = rewritten(f"void k() {{ {declaration.replace('SHARED', shared)} }}")
    once = f"extern {type_} kjit_dynamic_s[]{rest} __attribute__((unused));"
    reference = f"{type_} (&s)[]{rest} = *reinterpret_cast<{type_} (*)[]{rest}>(::kjit_sim::dynamic_shared());"
    alignment = "alignas(16)" if declaration.startswith("alignas") else ""
    assert "".join(text.split()) == "".join(f"void k() {{ {alignment} {once} {reference} }}".split())


def test_dynamic_shared_memory_outside_functions_is_replaced_where_it_is_used() -> None:
    text = "namespace { extern __shared__ float s[]; void k() { s[1] = x.s + p->s + a::s; } } void f() { s(); }"
    value = "(*reinterpret_cast<float (*)[]>(::kjit_sim::dynamic_shared()))"
    expected = f"namespace {{ ; void k() {{ {value}[1] = x.s + p->s + a::s; }} }} void f() {{ s(); }}"
    assert "".join(rewritten(text).split()) == "".join(expected.split())


def test_dynamic_shared_memory_in_a_lambda_is_replaced_where_it_is_used() -> None:
    text = (
        "void k() { extern __shared__ float s[]; auto f = [=] (int i) { return t[s[i]] + x.s; }; s[0] = f(1);"
        " for_each([] { s[1] = 2; }); [[maybe_unused]] int v = s[2]; } void g() { s(); }"
    )
    value = "(*reinterpret_cast<float (*)[]>(::kjit_sim::dynamic_shared()))"
    _, _, body = rewritten(text).partition("dynamic_shared())")
    assert body.lstrip(" ;") == (
        f"auto f = [=] (int i) {{ return t[{value}[i]] + x.s; }}; s[0] = f(1);"
        f" for_each([] {{ {value}[1] = 2; }}); [[maybe_unused]] int v = s[2]; }} void g() {{ s(); }}"
    )


def test_an_alignment_goes_ahead_of_shared() -> None:
    text = rewritten("static thread_local alignas(16) int s[4];\nstatic thread_local int t;")
    assert text.splitlines()[0].split() == ["alignas(16)", "static", "thread_local", "int", "s[4];"]
    assert text.splitlines()[1] == "static thread_local int t;"


@pytest.mark.parametrize("text", ["extern int s[];", "extern thread_local int s;", 'extern "C" { void f(); }'])
def test_other_declarations_stay(text: str) -> None:
    assert rewritten(text) == text


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


def test_as_a_program_it_writes_the_file_or_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a.ii", tmp_path / "a.sim.ii"
    source.write_text(unit("k<<<1, 1>>>(x);"))
    assert main(str(source), str(target)) == 0
    assert target.read_text() == unit("k ->*::kjit_sim::grid(1, 1)(x);")
    source.write_text(unit('asm("bar.arrive 0, 64;");'))
    assert main(str(source), str(tmp_path / "none")) == 1
    assert capsys.readouterr().err.startswith("/op/a.cuh:1: error: the simulator cannot run inline PTX")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (
            "namespace a { template <class T> struct K : B<T> { int x; using p = p<T>; p y; }; }",
            (
                "namespace a { template <typename kjit_0> using kjit_outer0_p = p<kjit_0>; "
                "template <class T> struct K : B<T> { int x; using p = kjit_outer0_p<T>; p y; }; }"
            ),
        ),
        (
            "struct K { struct L { using v = typename v<f<int, 2>, 4>; }; };",
            (
                "template <typename kjit_0, auto kjit_1> using kjit_outer0_v = v<kjit_0, kjit_1>; "
                "struct K { struct L { using v = typename kjit_outer0_v<f<int, 2>, 4>; }; };"
            ),
        ),
    ],
)
def test_a_name_may_mean_something_else_in_a_class(text: str, becomes: str) -> None:
    assert "".join(rewritten(text).split()) == "".join(becomes.split())


@pytest.mark.parametrize(
    "text",
    [
        "using p = p<int>;",
        "struct K { using p = a::p<int>; using q = p<int>; using r = r<int>::t; };",
        "struct S f() { using p = p<int>; }",
        "void f() { struct K { using p = p<int>; }; }",
    ],
)
def test_other_names_stay(text: str) -> None:
    assert rewritten(text) == text


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


def test_what_only_a_gpu_waits_for_is_nothing() -> None:
    text = 'void f() { asm volatile("griddepcontrol.wait; cp.async.commit_group;" ::: "memory"); }'
    nothing = "::kjit_sim::ptx::nothing();"
    assert "".join(rewritten(text).split()) == f"voidf(){{{{{nothing}{nothing}}};}}"


def test_one_unknown_instruction_refuses_all_of_a_statement() -> None:
    text = 'void f() { asm("prmt.b32 %0, %1, %2, 1; bar.arrive 0, 64;" : "=r"(a) : "r"(b), "r"(c)); }'
    _, refusals = rewrite(unit(text))
    assert [refusal.line for refusal in refusals] == [1]
    assert "inline PTX" in refusals[0].text
