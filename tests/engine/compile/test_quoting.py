"""kjit.engine.compile.quoting: words reach a compiler unchanged, also through nvcc's shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.compile import compile_variant
from kjit.engine.compile.quoting import PLAIN_FOR_NVCC, Links, for_nvcc
from kjit.engine.compile.refusals import refuse_misread
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError, KjitError, UsageError
from kjit.spec import Spec, Target, Variant

# Each macro holds what C++ takes as a string literal, and what it has to be.
TEXTS = {
    "SPACE": ('"a b"', "a b"),
    "DOLLAR": ('"$HOME ${HOME}"', "$HOME ${HOME}"),
    "BACKTICK": ('"`touch {run}`"', "`touch {run}`"),
    "COMMAND": ('"$(touch {run})"', "$(touch {run})"),
    "SEMICOLON": ('"a; touch {run} & touch {run} | cat > {run}"', "a; touch {run} & touch {run} | cat > {run}"),
    "QUOTES": ('"it\'s \\"mine\\""', 'it\'s "mine"'),
    "BACKSLASH": ('"\\\\ \\\\$ \\x41"', "\\ \\$ A"),
    "COMMA": ('"a,b,,c"', "a,b,,c"),
    "OTHERS": ('"#~*?!<>()[]{}%=@^|"', "#~*?!<>()[]{}%=@^|"),
    "WORDS": ('TWO("a", "b")', "ab"),
}


def bytes_of(text: str) -> str:
    return ", ".join(f"char({byte})" for byte in [*text.encode(), 0])


@pytest.mark.nvcc
@pytest.mark.parametrize("joined", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_value_of_a_macro_arrives_at_nvcc_as_it_is_written_and_nothing_is_run(tmp_path: Path, joined: bool) -> None:
    run = tmp_path / "run"
    checks, flags = ["#define TWO(a, b) a b"], []
    for name, (value, meant) in TEXTS.items():
        macro = f"{name}={value.replace('{run}', str(run))}"
        flags += [f"-D{macro}"] if joined else ["--define-macro", macro]
        want = bytes_of(meant.replace("{run}", str(run)))
        checks.append(
            f"static constexpr char k{name}[] = {{{want}}};\n"
            f'static_assert(sizeof({name}) == sizeof(k{name}), "{name}");\n'
            f'static_assert(__builtin_memcmp({name}, k{name}, sizeof(k{name})) == 0, "{name}");'
        )
    (tmp_path / "op.cuh").write_text("\n".join([*checks, "__global__ void k() {}", ""]))
    target = Target.cuda("9.0a")
    spec = Spec("op", cuda_files=[tmp_path / "op.cuh"], extra_cuda_cflags=flags)
    (tmp_path / "staging").mkdir()
    compile_variant(Variant(spec, target), Toolchain.for_target(target), tmp_path / "staging")
    assert not run.exists()


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "flags",
    [
        ["-Xcompiler=-DA=`touch {run}`"],
        ["-Xcompiler", "-DA=1;touch {run}"],
        ["-Xptxas=$(touch {run})"],
        ["-Xcudafe=--x|touch {run}"],
        ["-I`touch {run}`"],
        ["-include", "$(touch {run})"],
        ["-frandom-seed=`touch {run}`"],
        ["-optf={options}"],
    ],
)
def test_what_the_shell_would_run_is_refused_before_it_can(tmp_path: Path, flags: list[str]) -> None:
    run, options = tmp_path / "run", tmp_path / "options"
    options.write_text(f"-DA=`touch {run}`\n")
    (tmp_path / "op.cuh").write_text("__global__ void k() {}\n")
    words = [flag.replace("{run}", str(run)).replace("{options}", str(options)) for flag in flags]
    spec = Spec("op", cuda_files=[tmp_path / "op.cuh"], extra_cuda_cflags=words)
    target = Target.cuda("9.0a")
    with pytest.raises(UsageError):
        compile_variant(Variant(spec, target), Toolchain.for_target(target), tmp_path)
    assert not run.exists()


@pytest.mark.nvcc
def test_variables_with_flags_for_nvcc_are_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "op.cuh").write_text("__global__ void k() {}\n")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", f"-O3 -DA=`touch${{IFS}}{tmp_path}/run`")
    target = Target.cuda("9.0a")
    with pytest.raises(UsageError, match="NVCC_APPEND_FLAGS has a "):
        compile_variant(
            Variant(Spec("op", cuda_files=[tmp_path / "op.cuh"]), target), Toolchain.for_target(target), tmp_path
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.nvcc
def test_a_host_compiler_in_a_folder_with_an_odd_name_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target.cuda("9.0a")
    found = Toolchain.for_target(target).cxx.path
    folder = tmp_path / "it's `mine` $HOME, 1"
    folder.mkdir()
    (folder / "g++").symlink_to(found)
    monkeypatch.setenv("CXX", str(folder / "g++"))
    (tmp_path / "op.cuh").write_text("__global__ void k() { oops; }\n")
    with pytest.raises(CompileError, match='identifier "oops"') as caught:
        compile_variant(
            Variant(Spec("op", cuda_files=[tmp_path / "op.cuh"]), target), Toolchain.for_target(target), tmp_path
        )
    assert isinstance(caught.value, KjitError)


def test_a_comma_in_the_name_of_a_folder_separates_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    links = Links()
    assert links.flags([f"-I{folder}", "-isystem", f"{folder}"], PLAIN_FOR_NVCC, "nvcc") == [
        "-Ikjit_link0",
        "-isystem",
        "kjit_link0",
    ]
    assert links.names == {str(folder): "kjit_link0"}


def test_plain_macros_stay_as_they_are() -> None:
    assert for_nvcc("A=1") == "A=1"
    assert for_nvcc('A="x y"') == r"A=\"x y\""


@pytest.mark.parametrize(
    "flags",
    [
        ["-DA=$HOME"],
        ["-Xcompiler=-Wall,-fno-strict-aliasing"],
        ["-Xcompiler", '"-fPIC"'],
        ["-I/in $HOME"],
        ["-lineinfo"],
    ],
)
def test_what_arrives_is_not_refused(flags: list[str]) -> None:
    refuse_misread(flags, "extra_cuda_cflags")
