"""kjit.spec: values that describe builds, and the arguments that they reject."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import kjit
from kjit import CudaArch, Spec, Target, UsageError

CPP = "/project/csrc/scale.cpp"
CUDA = "/project/csrc/scale.cuh"


@pytest.mark.parametrize("text", ["9.0a", "90a", "sm_90a", "compute_90a", " 9.0a "])
def test_an_architecture_is_read_in_every_usual_form(text: str) -> None:
    assert CudaArch.parse(text) == CudaArch(9, 0, "a")


@pytest.mark.parametrize("text", ["", "hopper", "9", "9.0b", "sm_9", "9.0a,8.0", "-9.0"])
def test_what_is_no_architecture_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a CUDA architecture.*\n.*9\.0a"):
        CudaArch.parse(text)


@pytest.mark.parametrize(
    ("arch", "gpu", "runs"),
    [
        ("8.0", (8, 0), True),
        ("8.0", (8, 6), True),
        ("8.6", (8, 0), False),
        ("8.0", (9, 0), False),
        ("9.0a", (9, 0), True),
        ("10.0a", (10, 3), False),
        ("10.0f", (10, 3), True),
        ("10.0f", (12, 0), False),
    ],
)
def test_code_runs_on_a_gpu_that_is_compatible(arch: str, gpu: tuple[int, int], runs: bool) -> None:
    assert CudaArch.parse(arch).runs_on(*gpu) is runs


def test_a_target_is_written_with_its_architecture() -> None:
    assert str(Target.cuda("9.0a")) == "cuda:sm_90a"
    assert str(Target.cpu()) == "cpu"
    assert (str(Target.sim()), str(Target.sim(check=True))) == ("sim", "sim-check")


def test_a_library_may_be_for_several_architectures_of_one_major_version() -> None:
    target = Target.cuda("8.9", "8.0", "8.6")
    assert (str(target), target.arch) == ("cuda:sm_80+sm_86+sm_89", CudaArch(8, 0))
    assert target == Target.cuda("8.0", "8.6", "8.9", "8.0")
    with pytest.raises(ValueError, match="same major version"):
        Target.cuda("8.0", "9.0")


def test_a_cpu_target_may_be_for_a_level_and_no_other_target_is() -> None:
    assert str(Target.cpu("x86-64-v3")) == "cpu:x86-64-v3"
    with pytest.raises(ValueError, match="only a CPU target has a level"):
        Target("sim", level="x86-64-v3")


@pytest.mark.parametrize(
    ("code", "wanted", "serves"),
    [
        ("8.0", "8.6", True),
        ("8.6", "8.0", False),
        ("9.0", "9.0a", True),
        ("9.0a", "9.0a", True),
        ("9.0a", "9.0", False),
        ("10.0a", "10.0f", False),
        ("10.0f", "10.3a", True),
        ("10.0f", "12.0a", False),
    ],
)
def test_code_serves_an_architecture_if_it_runs_wherever_that_runs(code: str, wanted: str, serves: bool) -> None:
    assert CudaArch.parse(code).serves(CudaArch.parse(wanted)) is serves


def test_the_simulator_is_built_from_the_cuda_side() -> None:
    sides = [(target.side, target.is_simulated) for target in (Target.sim(), Target.sim(check=True))]
    assert sides == [("cuda", True)] * 2
    assert [(t.side, t.is_simulated) for t in (Target.cuda("8.0"), Target.cpu())] == [("cuda", False), ("cpu", False)]


def test_a_cuda_target_needs_an_architecture_and_a_cpu_target_has_none() -> None:
    with pytest.raises(ValueError, match="architecture"):
        Target("cuda")
    for kind in ("cpu", "sim"):
        with pytest.raises(ValueError, match="architecture"):
            Target(kind, CudaArch(9, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "../x", "1x", "scale-2", "naïve"])
def test_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a module"):
        Spec(name, cpp_files=[CPP])


def test_an_export_that_is_no_identifier_is_refused() -> None:
    with pytest.raises(UsageError, match="export name 'a b' is not an identifier"):
        Spec("scale", cpp_files=[CPP], cpp_wrappers=[("a b", "f")])


def test_a_module_without_sources_is_refused() -> None:
    with pytest.raises(UsageError, match="has no source"):
        Spec("scale")


def test_a_relative_source_is_refused_with_the_line_to_write() -> None:
    with pytest.raises(UsageError, match=r"not an absolute path(.|\n)*Path\(__file__\)"):
        Spec("scale", cpp_files=["csrc/scale.cpp"])


@pytest.mark.parametrize("field", ["cpp_files", "cuda_files", "extra_include_paths", "extra_cflags", "extra_ldflags"])
def test_one_string_where_a_list_belongs_is_refused(field: str) -> None:
    parts = {"cpp_files": [CPP], field: "/project/x"}
    with pytest.raises(UsageError, match=f"{field} must be a list"):
        Spec("scale", **parts)  # type: ignore[arg-type]


def test_one_side_of_a_spec_leaves_the_other_out() -> None:
    spec = Spec(
        "scale",
        cpp_files=[CPP],
        cuda_files=[CUDA],
        cpp_wrappers=[("scale", "cpu::scale")],
        cuda_wrappers=[("scale", "gpu::scale")],
        extra_cflags=["-g"],
    )
    assert spec.kinds == ("cuda", "cpu")
    assert spec.only("cpu") == Spec(
        "scale", cpp_files=[CPP], cpp_wrappers=[("scale", "cpu::scale")], extra_cflags=["-g"]
    )
    assert spec.only("cuda").kinds == ("cuda",)


def test_an_export_that_is_one_string_is_name_and_symbol() -> None:
    spec = Spec("a", cuda_files=["/a.cu"], cuda_wrappers=["run", ("back", "Back<4>::run"), ["go", "go"]])  # type: ignore[list-item]
    assert spec.cuda_wrappers == (("run", "run"), ("back", "Back<4>::run"), ("go", "go"))
    assert Spec("a", cpp_files=["/a.cpp"], cpp_wrappers=["ab"]).cpp_wrappers == (("ab", "ab"),)


@pytest.mark.parametrize(
    ("wrappers", "message", "hint"),
    [
        ("run", "must be a list of exports, not the one string 'run'", 'write cuda_wrappers=["run"]'),
        ([("run",)], r"cuda_wrappers: \('run',\) is not an export", "an export is a name and a C"),
        ([("run", "a", "b")], "is not an export", "an export is a name and a C"),
        ([("run", 3)], "is not an export", "an export is a name and a C"),
        ([3], "cuda_wrappers: 3 is not an export", "an export is a name and a C"),
        (["Run<4>::run"], "'Run<4>::run' is not an identifier", '("run", "Run<4>::run")'),
    ],
)
def test_what_is_no_list_of_exports_is_an_error_with_the_way_to_write_it(
    wrappers: Any, message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Spec("a", cuda_files=["/a.cu"], cuda_wrappers=wrappers)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("function", "own"), [(kjit.load_jit, {"build_directory"}), (kjit.jit, {"build_directory", "device"})]
)
def test_the_functions_that_load_a_module_take_the_parts_of_a_spec(function: Callable[..., Any], own: set[str]) -> None:
    def keywords(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
        return {name: each for name, each in signature.parameters.items() if each.kind is each.KEYWORD_ONLY}

    def documented(described: Callable[..., Any]) -> dict[str, str]:
        _, _, section = inspect.cleandoc(described.__doc__ or "").partition("\nArgs:\n")
        entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)$", section.partition("\n\n")[0], re.MULTILINE)
        return {name: " ".join(text.split()) for name, text in entries}

    parts = keywords(inspect.signature(Spec))
    assert tuple(parts) == Spec._fields[2:]
    taken = {name: each for name, each in keywords(inspect.signature(function)).items() if name not in own}
    assert list(taken.items()) == list(parts.items())
    assert list(documented(Spec)) == [*Spec._fields]
    if "as for `load_jit`" in (function.__doc__ or ""):
        return
    assert list(documented(function)) == [*inspect.signature(function).parameters]
    assert {name: documented(function)[name] for name in parts} == {name: documented(Spec)[name] for name in parts}
