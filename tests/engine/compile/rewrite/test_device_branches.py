"""kjit.engine.compile.rewrite.device_branches: the lines of device code, and their places in the host's unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.rewrite.device_branches import mentions_architecture, merge


def sides(source: str) -> tuple[str, str]:
    """A source as it is for the host and for the device, after a preprocessor that knows `#ifdef __CUDA_ARCH__`."""
    kept = {True: "", False: ""}
    branch: bool | None = None
    for line in source.splitlines():
        if line.startswith("#"):
            branch = {"#ifdef __CUDA_ARCH__": True, "#ifndef __CUDA_ARCH__": False, "#endif": None}.get(
                line, not branch
            )
        for side in kept:
            kept[side] += "\n" if line.startswith("#") or branch is (not side) else f"{line}\n"
    head = '# 1 "/sys/s.h" 1 3\nint s;\n# 1 "/op/a.cuh"\n'
    return head + kept[False], head + kept[True]


def merged(source: str) -> list[str]:
    """The lines that are left of a source, without those that are empty."""
    lines = merge(*sides(source)).splitlines()
    return [line for line in lines if line and not line.startswith(("# ", "int s;"))]


BRANCHES = """#ifdef __CUDA_ARCH__
  a();
#else
  b();
#endif"""


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        ("__global__ void k() {", "}"),
        ("template <class T>\n__device__ __forceinline__ T f(int x = g(), T y = {})\n{", "}\nvoid g() {\n}"),
        ("struct A {\n  __host__ __device__ A() : x{1}, y{2} {", "  }\n};"),
        ("void f() {\n  g([=] __device__ (int) {", "  }, 1);\n}"),
    ],
)
def test_the_devices_functions_take_its_branch(head: str, tail: str) -> None:
    assert merged(f"{head}\n{BRANCHES}\n{tail}") == [*head.splitlines(), "  a();", *tail.splitlines()]


@pytest.mark.parametrize(
    ("source", "left"),
    [
        (f"void f() {{\n{BRANCHES}\n}}", "void f() {|  b();|}"),
        ("void f() {\n#ifdef __CUDA_ARCH__\n  a();\n#endif\n}", "void f() {|}"),
        ("#ifdef __CUDA_ARCH__\nconstexpr int a = 1;\n#else\nconstexpr int a = 2;\n#endif", "constexpr int a = 2;"),
    ],
)
def test_all_else_takes_the_hosts(source: str, left: str) -> None:
    assert merged(source) == left.split("|")


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("#ifdef __CUDA_ARCH__\nstruct A {};\n__device__ void a(A);\n#endif", "struct A {};|__device__ void a(A);"),
        ("#ifdef __CUDA_ARCH__\n__device__ int f();\n#else\nint g();\n#endif", "int g();|__device__ int f();"),
        ("#ifndef __CUDA_ARCH__\n__device__ int f() {\n}\n#endif\nint x;", "int x;"),
        ("__global__ void k() {\n#ifndef __CUDA_ARCH__\n  b();\n#endif\n}", "__global__ void k() {|}"),
    ],
)
def test_what_one_side_has_alone_is_left_to_it(source: str, left: str) -> None:
    assert merged(source) == left.split("|")


def test_lines_keep_their_numbers() -> None:
    host = '# 1 "/op/a.cuh"\n__global__ void k() {\n# 20 "/op/a.cuh"\nb();\n}\nint x;\n'
    device = '# 1 "/op/a.cuh"\n__global__ void k() {\na();\n\na();\n# 21 "/op/a.cuh"\n}\nint x;\n'
    number, found = 0, {}
    for line in merge(host, device).splitlines():
        if line.startswith("# "):
            number = int(line.split()[1])
            continue
        found[number] = line or found.get(number)
        number += 1
    assert {at: line for at, line in found.items() if line} == {
        1: "__global__ void k() {",
        2: "a();",
        4: "a();",
        21: "}",
        22: "int x;",
    }


def test_headers_of_others_stay_the_hosts() -> None:
    host = '# 1 "/sys/s.h" 1 3\n__device__ void b();\n# 2 "/op/a.cuh"\nint x;\n'
    assert merge(host, host.replace(" b", " a")) == host


def test_a_macro_that_is_spelled_in_a_file_of_the_op_is_noticed(tmp_path: Path) -> None:
    own, other = tmp_path / "own.cuh", tmp_path / "other.cuh"
    own.write_text("#if __CUDA_ARCH__ >= 800\n#endif\n")
    other.write_text("int x;\n")
    unit = f'# 1 "<built-in>"\n# 1 "{other}"\nint x;\n'
    assert not mentions_architecture(unit)
    assert not mentions_architecture(f'{unit}# 1 "{own}" 1 3\n\n')
    assert mentions_architecture(f'{unit}# 1 "{own}" 1\n\n')
