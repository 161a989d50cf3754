"""`kjit inspect`: machine code, figures, and the differences made by a change."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.engine.toolchain.toolchain import Toolchain
from kjit.spec import Target

Inspect = Callable[..., "subprocess.CompletedProcess[str]"]

ARCH = ("--arch", "9.0a")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspected")


@pytest.fixture(scope="module")
def inspect(root: Path, kjit_in: Inspect) -> Inspect:
    """A function that runs `kjit inspect` in a project with the ops `scale` and `plain`, which git has."""

    def git(*words: str) -> None:
        subprocess.run(("git", *words), cwd=root, capture_output=True, check=True)

    kjit_in(root, "new", "scale", "x: T[N] -> out: T[N]", "--pattern", "minimal", "--dtypes", "fp32")
    kjit_in(root, "new", "plain", "x: T[N] -> out: T[N]", "--pattern", "minimal", "--dtypes", "fp32", "--device", "cpu")
    git("init", "-q")
    git("add", "-A")
    git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "all")
    return lambda *arguments: kjit_in(root, "inspect", *arguments)


@pytest.mark.nvcc
def test_registers_spills_and_widths_of_each_kernel(inspect: Inspect) -> None:
    done = inspect("scale", *ARCH)
    assert done.returncode == 0, done.stderr
    label, name, needs, accesses, _ = done.stdout.splitlines()
    assert label.startswith("scale<fp32_t> cuda:sm_90a, by ")
    assert name == "  scale_kernel<float>"
    assert " registers, no spills, " in needs
    assert accesses == "    global loads 1 x 32 bit; global stores 1 x 32 bit"
    (kernel,) = json.loads(inspect("scale", *ARCH, "--json").stdout)
    assert kernel["widths"] == {"global loads": {"32": 1}, "global stores": {"32": 1}}
    assert kernel["resources"]["registers"] == int(needs.split()[0])
    assert label.endswith(f", by {kernel['compiler']}")
    _, of_variant, of_kernel = inspect("scale", *ARCH, "--resources").stdout.splitlines()
    assert of_variant.endswith(kernel["compiler"])
    assert "1 x 32 bit" in of_kernel


@pytest.mark.nvcc
def test_code_stands_below_the_source_line_that_it_comes_from(inspect: Inspect) -> None:
    for option, instruction in (("--sass", "LDG.E"), ("--ptx", "ld.global.f32")):
        lines = inspect("scale", *ARCH, option).stdout.splitlines()
        at = next(number for number, line in enumerate(lines) if instruction in line)
        above = next(line for line in reversed(lines[:at]) if not line.startswith(" "))
        assert above.startswith("kernels/csrc/scale.cuh:"), (option, above)
        assert "x_ptr[i]" in above


@pytest.mark.nvcc
def test_the_compiler_and_the_reason_for_nvcc_are_shown(inspect: Inspect, root: Path) -> None:
    added, reason = "#include <map>", "it includes <map>, which is neither kjit's nor CUDA's"
    if not Toolchain.for_target(Target.cuda("9.0a")).chooses:
        pytest.skip("needs nvcc and NVRTC")
    source = root / "kernels" / "csrc" / "scale.cuh"
    text = source.read_text()
    try:
        source.write_text(f"{text}{added}\n")
        heading, first, *_ = inspect("scale", *ARCH, "--ptx").stdout.splitlines()
        assert re.match(rf"scale<fp32_t> cuda:sm_90a, by nvcc [\d.]+, because {re.escape(reason)}", heading)
        assert first.split()[0] == ".version"
        (kernel,) = json.loads(inspect("scale", *ARCH, "--json").stdout)
        assert (kernel["compiler"], kernel["why_nvcc"].startswith(reason)) == (heading.split(", ")[1][3:], True)
    finally:
        source.write_text(text)


@pytest.mark.nvcc
@pytest.mark.nightly
def test_changes_since_a_revision_are_reported(inspect: Inspect, root: Path) -> None:
    assert inspect("scale", *ARCH, "--against", "HEAD").stdout.splitlines() == [
        "scale<fp32_t> cuda:sm_90a against HEAD",
        "  scale_kernel<float>: as it was",
    ]
    before = json.loads(inspect("scale", *ARCH, "--json").stdout)[0]
    source = root / "kernels" / "csrc" / "scale.cuh"
    text = source.read_text()
    source.write_text(text.replace("> out = ", "> out = rsqrtf(x) + "))
    try:
        (found,) = json.loads(inspect("scale", *ARCH, "--against", "HEAD", "--json").stdout)
        assert found["before"]["instructions"] == before["instructions"]
        assert "special functions" not in found["before"]
        assert found["now"]["special functions"] == 1
        shown = inspect("scale", *ARCH, "--against", "HEAD").stdout
        assert "    special functions: 0 -> 1 (+1)\n" in shown
    finally:
        source.write_text(text)


@pytest.mark.nvcc
def test_wrong_usage(inspect: Inspect) -> None:
    for arguments, said in (
        (("scal", *ARCH), "did you mean scale?"),
        (("plain", *ARCH), "op 'plain' has no CUDA source"),
        (("scale", *ARCH, "--variant", "bf16"), "there is scale<fp32_t>"),
        (("scale", *ARCH, "--sass", "--ptx"), "--sass and --ptx exclude each other."),
        (("scale", *ARCH, "--against", "no-such-revision"), "there is no revision 'no-such-revision'"),
    ):
        done = inspect(*arguments)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    done = inspect("scale", *ARCH, "--kernel", "other")
    assert (done.returncode, "hint: there is scale_kernel" in done.stderr) == (1, True)
