"""The output of `kjit new`: formatted, typed, without warnings; it builds, and its own tests pass."""

from __future__ import annotations

import ast
import builtins
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import Forks
from matrix import CUSTOM, GATHER, HUGE, LONG, OPS, PLANES, RARE, ROWWISE, Op, named, write_all
from signatures import signature_for

from kjit.engine.compile.compile import compile_variant
from kjit.engine.compile.plan import wrapper_unit
from kjit.engine.toolchain.build_flags import cxx_flags, nvcc_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.env import CPU_CACHE_BYTES
from kjit.project import find_project
from kjit.projects.op_names import camel, op_problem
from kjit.runtime.declared import declared_in
from kjit.scaffold.new import parse_devices, scaffold_op
from kjit.scaffold.patterns import PATTERNS
from kjit.signature import names
from kjit.signature.parser import parse_signature
from kjit.spec import CPP_DTYPES, Target, Variant

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
DTYPES_IN_TURN = ("fp32", "fp16", "bf16")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


LINTS = "A,ARG,B,BLE,C4,E,F,I,ISC,N,PIE,PLE,PYI,RET,RUF,SIM,T20,UP,W"
"""The rules that ruff selects for kjit's own code."""

BROKEN_BY_FORMATTERS = {
    "weigh",
    "add_norm",
    "halves_",
    "move",
    "quant_kv",
    "rope_",
    "anything",
    "collect_",
    "sum_planes",
}
"""Ops with a line that is too long until a formatter breaks it: a sum of many products, or a tensor of a long dtype."""


def lint(root: Path) -> None:
    """Hold a project against the formatters and the linter."""
    run(BIN / "ruff", "format", "--check", "--diff", ".", cwd=root)
    # References that are to be written read nothing yet, and sizes of which no tensor is made are unpacked, too.
    custom = [f"tests/test_{op.name}.py" for op in CUSTOM] + [f"benchmarks/bench_{op.name}.py" for op in CUSTOM]
    ignored = ", ".join(f'"{path}" = ["ARG001"]' for path in custom)
    options = ["--config", f"lint.per-file-ignores = {{{ignored}}}"]
    run(BIN / "ruff", "check", "--select", LINTS, *options, ".", cwd=root)
    kernels = sorted((root / "kernels" / "csrc").iterdir())
    style = f"--style=file:{REPOSITORY / '.clang-format'}"
    run(BIN / "clang-format", style, "--dry-run", "-Werror", *kernels, cwd=root)


@pytest.mark.needs("ruff", "clang-format")
def test_formatters_and_linter_have_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    ops = [*OPS, *HUGE, *PLANES, *RARE, *CUSTOM]
    write_all(tmp_path, [op for op in ops if op.name not in BROKEN_BY_FORMATTERS])
    lint(tmp_path)


@pytest.mark.needs("ruff", "clang-format")
@pytest.mark.parametrize("width", [88, 120])
def test_formatters_break_what_is_too_long(tmp_path: Path, width: int) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.ruff]\nline-length = {width}\n\n[tool.kjit]\n")
    ops = [*OPS, *HUGE, *PLANES, *RARE, *CUSTOM]
    write_all(tmp_path, [*LONG, *(op for op in ops if op.name in BROKEN_BY_FORMATTERS)], run_formatters=True)
    lint(tmp_path)


# A line that is wrong says what the type checker makes of it.
CALLS = """
import torch
from kernels.bump_ import _bump_
from kernels.scale import _scale, scale

x = torch.ones(4)
module = _scale(x.dtype, device=x)
module.scale(x, 2.0, x)
module.scale(x, x)  # Too few arguments for "scale" of "Exports"
module.scale(x, "2", x)  # Argument 2 to "scale" of "Exports" has incompatible type "str"; expected "float"
module.scale(x=x, alpha=2.0, out=x)  # Unexpected keyword argument "x" for "scale" of "Exports"
module.scales(x, 2.0, x)  # "Exports" has no attribute "scales"; maybe "scale"?
_bump_(x.dtype, 1, device=x).bump_(x, 1)  # Too many arguments for "bump_" of "Exports"
scale(x, 2.0, out=x)
scale(x, "2")  # Argument 2 to "__call__" of "TorchOp" has incompatible type "str"; expected "float"
"""


@pytest.mark.needs("mypy")
@pytest.mark.parametrize(
    "settings",
    [
        # PyTorch's own types take four fifths of the time.
        pytest.param(
            "warn_return_any = false\n[mypy-torch.*,triton.*,tvm_ffi.*]\nfollow_imports = skip\n", id="without_torch"
        ),
        pytest.param("", id="with_torch", marks=pytest.mark.nightly),
    ],
)
def test_the_type_checker_knows_the_ops_and_the_exports_of_their_modules(tmp_path: Path, settings: str) -> None:
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\n{settings}")
    write_all(
        tmp_path,
        [
            *named("scale", "bump_", "mixed", "narrow_min", "add_bias"),
            *ROWWISE[3:],
            *GATHER[1:4],
            *CUSTOM,
            *LONG,
            *HUGE,
            *RARE,
        ],
    )
    (tmp_path / "calls.py").write_text(CALLS)
    command = [BIN / "mypy", "--no-error-summary", "--cache-dir", tmp_path / "cache", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = re.findall(r"^(.*?):(\d+): (?:error|note): (.*?)(?:  \[[a-z-]+\])?$", done.stdout, re.MULTILINE)
    expected = [(n, line.partition("  # ")[2]) for n, line in enumerate(CALLS.splitlines(), start=1) if "  # " in line]
    errors = [(file, int(line), text) for file, line, text in found]
    assert [error for error in errors if error[0] != "calls.py"] == []
    for number, text in expected:
        assert ("calls.py", number, text) in errors
    assert {line for _, line, _ in errors} == {number for number, _ in expected}


def variants_of(root: Path, op: str, target: Target) -> list[Variant]:
    module = find_project(root).import_wrapper(op)
    return declared_in(vars(module))[0].variants([target])


def random_ops(pattern: str, numbers: Iterable[int]) -> list[Op]:
    """Ops with the signatures of these numbers."""
    return [Op(f"op{number}", str(signature_for(pattern, number)), pattern=pattern) for number in numbers]


def check_together(project: Path, ops: Sequence[Op], device: str, variants: int = 1) -> None:
    """Hold the first variants of many ops against a compiler that takes every warning for an error, in one unit."""
    write_all(project, [replace(op, devices=device) for op in ops])
    target = Target.cpu() if device == "cpu" else Target.cuda("9.0a")
    headers: list[str] = []
    sources: list[str] = []
    exports: list[str] = []
    for op in ops:
        specs = [variant.spec for variant in variants_of(project, op.name, target)[:variants]]
        spec = specs[0]
        (path,) = (*spec.cpp_files, *spec.cuda_files)
        headers += re.findall(r"^#(?:include|define) .*", Path(path).read_text(), re.MULTILINE)
        # A namespace for each, as they all call their helpers the same. The headers in it are there already.
        sources.append(f'namespace of_{op.name} {{\n#include "{path}"\n}}')
        own = re.compile(rf"\b(?={camel(op.name)})")  # the op's struct, and its enums
        wrappers = [wrapper for spec in specs for wrapper in (*spec.cpp_wrappers, *spec.cuda_wrappers)]
        symbols = [own.sub(f"of_{op.name}::", symbol) for _, symbol in wrappers]
        exports += [f"KJIT_EXPORT({op.name}_{n}, ({symbol}))" for n, symbol in enumerate(symbols)]
    unit = project / ("unit.cc" if device == "cpu" else "unit.cu")
    top = [*sorted(set(headers)), "#include <kjit/ffi.h>"]  # macros come first
    unit.write_text("\n".join([*top, *sources, "namespace kjit {", *exports, "}", ""]))
    toolchain = Toolchain.for_target(target)
    if device == "cpu":
        flags = [*cxx_flags(toolchain, spec), "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        if toolchain.cxx.family == "clang":
            # Random math adds numbers that its type cannot hold exactly, such as 2^63 - 1 to a double.
            flags.append("-Wno-implicit-const-int-float-conversion")
        command = [toolchain.cxx.path, *flags, unit]
    else:
        flags = [flag for flag in nvcc_flags(toolchain, spec) if not flag.startswith("-gencode")]
        assert toolchain.cuda is not None
        # Warnings come before what cicc optimises.
        flags += ["-arch=compute_90a", "-Werror=all-warnings", "-Xcicc", "-O0", "-ptx", "-o", "unit.ptx"]
        command = [toolchain.cuda.nvcc.path, *flags, unit]
    run(*command, cwd=project)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_cpp_compiler_has_no_warning(project: Path, pattern: str) -> None:
    ops = [op for op in [*OPS, *CUSTOM, *LONG] if op.pattern == pattern]
    check_together(project, [*random_ops(pattern, range(8)), *ops], "cpu", variants=2)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "pattern", ["rowwise", *(pytest.param(each, marks=pytest.mark.nightly) for each in PATTERNS if each != "rowwise")]
)
def test_nvcc_has_no_warning(project: Path, pattern: str) -> None:
    ops = [op for op in [*OPS, *CUSTOM] if op.pattern == pattern]
    check_together(project, [*random_ops(pattern, range(100, 103)), *ops], "cuda")


def test_the_cpp_compiler_has_no_warning_of_large_sizes(project: Path) -> None:
    check_together(project, PLANES, "cpu")


@pytest.mark.parametrize("level", [None, "x86-64-v3"])
def test_the_optimiser_has_no_warning(project: Path, level: str | None) -> None:
    """Some only come up where loops are unrolled; halves are converted in ways of their own."""
    if level is not None and platform.machine() != "x86_64":
        pytest.skip("is a level of x86-64")
    op = Op("scale", devices="cpu", dtypes="fp16")
    op.write(project)
    (variant,) = variants_of(project, op.name, Target.cpu(level))
    staging = project / "staging"
    staging.mkdir()
    assert compile_variant(variant, Toolchain.for_target(variant.target), staging).warnings == ""


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "dtype", ["bf16", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("fp32", "fp16"))]
)
def test_each_vector_of_a_row_is_read_by_one_load(project: Path, dtype: str) -> None:
    """A choice between two, by what was fetched ahead, lets compilers put other reads after what uses these."""
    Op("rms_norm", pattern="rowwise", devices="cuda", dtypes=dtype).write(project)
    (variant,) = variants_of(project, "rms_norm", Target.cuda("9.0a"))
    spec = variant.spec
    unit = project / "unit.cu"
    unit.write_text(wrapper_unit(list(spec.cuda_files), spec.cuda_wrappers, with_cuda_types=True))
    toolchain = Toolchain.for_target(variant.target)
    assert toolchain.cuda is not None
    run(toolchain.cuda.nvcc.path, *nvcc_flags(toolchain, spec), "-ptx", "-o", "unit.ptx", unit, cwd=project)
    loads = []
    for kernel in (project / "unit.ptx").read_text().split(".entry")[1:]:
        vectors = re.match(r"\s*\w+7rowwiseI\w+?ELi(\d+)ELb[01]ELb[01]E", kernel)
        if vectors:
            loads.append((int(vectors[1]), kernel.count("ld.global.L1::no_allocate")))
    held = [vectors for vectors, _ in loads if vectors > 2]  # of short rows the caches keep all
    assert len(held) == 2
    assert [number for vectors, number in loads if vectors > 2] == held


def with_one_dtype(ops: Sequence[Op]) -> list[Op]:
    """The ops with the first of their dtypes; where a signature leaves it open and nothing is named, each in turn."""
    chosen = []
    for number, op in enumerate(ops):
        dtypes = op.dtypes.split(",")[0] if op.dtypes else DTYPES_IN_TURN[number % 3]
        has_variable = parse_signature(op.signature or PATTERNS[op.pattern].signature).variables
        chosen.append(replace(op, dtypes=dtypes if has_variable else None))
    return chosen


WITH_TORCH_COMPILE = ("test_bump_", "test_mixed", "test_add_norm", "test_embed", "test_pick")
"""The ops that try `torch.compile` and `opcheck` for all: of every kind of parameter and result there is one among
them, and the code for PyTorch is the same for all patterns."""


FINISHED = [pattern for pattern in PATTERNS if pattern != "custom"]
"""The patterns whose ops compute something before anybody changes them."""

CHOSEN = ("bump_", "mixed", "add_norm", "embed", "store_kv")
"""Ops that are tested each time, of each pattern but `minimal`, of which tests/cli/test_rm_and_mv.py tests one; their
kernels are the headers', which have tests of their own. Among them are those of `WITH_TORCH_COMPILE`, but for one."""

LARGE = ("0000", "0003")
"""The last digits of large shapes in ids: 20_000, 40_003, 100_003."""

BOTH = "cpu" if torch.cuda.is_available() else "cuda,cpu"
"""The devices of ops whose kernels are run, those for CUDA in the simulator; the tests of kjit's own ops and
tools/scaffold_matrix.py use the GPU."""


def run_tests(
    forked: Forks, project: Path, selected: str, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of a project in one process, with a line for each that failed."""
    options = ("-q", "-rfs", "-p", "no:cacheprovider", *options, "-k", selected)
    return forked.pytest(*options, cwd=project, COLUMNS="300", **environment)


def pass_their_tests(
    forked: Forks,
    project: Path,
    ops: Sequence[Op],
    *options: str,
    with_torch_compile: Sequence[str] = (),
    without: Sequence[str] = (),
) -> None:
    write_all(project, ops)
    others = " and ".join(f"not {word}" for word in ("compile", "torch_library", *without))
    others += f" and not (sim and ({' or '.join(LARGE)}))"
    whole = f" or ({' or '.join(with_torch_compile)}) and not compiles_without_a_gpu" if with_torch_compile else ""
    done = run_tests(forked, project, others + whole, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)


FUZZ = f"import runpy\nrunpy.run_path({str(REPOSITORY / 'tools' / 'scaffold_fuzz.py')!r}, run_name='__main__')"


QUICKLY = f"""
import pytest, sys
sys.path.append({str(REPOSITORY / "tests")!r})
import quick_simulator
quick_simulator.compile_quickly(pytest.MonkeyPatch())
"""
"""The first lines of a script that uses the modules that a run of pytest with `quick_simulator` has compiled."""


def agree_in_random_cases(
    forked: Forks, project: Path, device: str, cases: int = 20, *, first: str = "", **environment: str
) -> None:
    options = ["--device", device, "--cases", cases, "--elements", 20000]
    done = forked.run(first + FUZZ, "--project", project, *options, cwd=project, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    ops = len(list((project / "benchmarks").glob("bench_*.py")))
    assert len(re.findall(rf"^\w+: {cases} cases, 0 failed$", done.stdout, re.MULTILINE)) == ops


@pytest.mark.parametrize(
    ("ops", "with_torch_compile"),
    [
        # Every dtype comes with several ops: which an op has changes a list in its wrapper. One of these two writes to
        # its input, and the other has several outputs.
        pytest.param(with_one_dtype(named(*CHOSEN)), WITH_TORCH_COMPILE[:2], id="some"),
        *(
            pytest.param(
                [op for op in OPS if op.pattern == pattern], WITH_TORCH_COMPILE, id=pattern, marks=pytest.mark.nightly
            )
            for pattern in FINISHED
        ),
    ],
)
def test_the_tests_of_ops_pass(
    project: Path,
    ops: Sequence[Op],
    with_torch_compile: Sequence[str],
    forked: Forks,
    quick_simulator: list[str],
) -> None:
    with_kernels = [replace(op, devices=BOTH) for op in ops]
    pass_their_tests(forked, project, with_kernels, *quick_simulator, with_torch_compile=with_torch_compile)
    for device in BOTH.split(","):
        agree_in_random_cases(forked, project, device, first=QUICKLY if quick_simulator else "")
    # All that is only written goes past the caches.
    agree_in_random_cases(forked, project, "cpu", cases=10, **{CPU_CACHE_BYTES: "1"})


@pytest.mark.nightly
@pytest.mark.parametrize("numbers", [range(200, 201), range(201, 206)], ids=str)
def test_the_tests_of_rare_ops_and_random_signatures_pass(project: Path, numbers: range, forked: Forks) -> None:
    """Each with a kernel for one device."""
    ops = [replace(op, name=f"{pattern}{op.name}") for pattern in FINISHED for op in random_ops(pattern, numbers)]
    ops += RARE
    devices = BOTH.split(",")
    each = [replace(op, devices=devices[number % len(devices)]) for number, op in enumerate(with_one_dtype(ops))]
    pass_their_tests(forked, project, each, without=LARGE)


@pytest.mark.parametrize(
    "custom",
    [pytest.param(CUSTOM[2:5], id="some"), pytest.param(CUSTOM, id="all", marks=pytest.mark.nightly)],
)
def test_an_op_with_a_kernel_of_its_own_fails_in_the_reference_that_is_to_be_written_alone(
    project: Path, custom: Sequence[Op], forked: Forks, quick_simulator: list[str]
) -> None:
    devices = ("cpu", "cuda", "cuda,cpu")
    ops = [replace(op, devices=devices[number % 3]) for number, op in enumerate(custom)]
    write_all(project, with_one_dtype(ops))
    done = run_tests(forked, project, "not compile", *quick_simulator)
    failed = re.findall(
        r"^FAILED .*::(\w+).* - Failed: .*/test_(\w+)\.py:\d+: write what `(\w+)` computes", done.stdout, re.M
    )
    assert failed == [("test_the_reference_is_written", op.name, op.name) for op in sorted(ops, key=lambda op: op.name)]
    assert re.search(rf"^{len(ops)} failed, \d+ passed, \d+ skipped", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^SKIPPED \[\d+\] .* `reference` is not written yet", done.stdout, re.MULTILINE)


@pytest.mark.nvcc
def test_without_gpu_and_simulator_the_tests_of_a_cuda_op_compile_it_and_skip_the_rest(
    project: Path, forked: Forks
) -> None:
    Op("scale", devices="cuda", dtypes="fp32").write(project)
    done = run_tests(forked, project, "compiles or refuses or agrees", CUDA_VISIBLE_DEVICES="", KJIT_SIM="0")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout  # the variant, and CPU tensors refused
    assert "needs an NVIDIA GPU" in done.stdout


def test_changed_math_is_noticed_and_passes_with_the_same_change_of_the_reference(
    project: Path, forked: Forks, quick_simulator: list[str]
) -> None:
    """With math that gives NaN and infinity, too; and with rows that nothing may copy any more, as they are no longer
    those of the table."""
    csrc = find_project(project).csrc_dir
    Op("scale", devices="cuda,cpu", dtypes="fp32").write(project)
    Op("blow_up", "x: T[...], alpha: float = 2.0 -> out: T[...]", "fp16", devices="cpu").write(project)
    Op("take_rows", pattern="gather", devices="cpu", dtypes="bf16").write(project)
    tests = project / "tests"
    for path, old, new in (
        (csrc / "scale.h", "x * alpha", "x + alpha"),
        (csrc / "blow_up.cpp", "x * alpha", "alpha / (x - x)"),
        (tests / "test_blow_up.py", "return x * alpha", "return alpha / (x - x)"),
        (csrc / "take_rows.cpp", "out = src;", "out = src + src;"),
        (tests / "test_take_rows.py", "return src[index]", "return src[index] + src[index]"),
    ):
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    done = run_tests(forked, project, "agrees", *quick_simulator)
    failed = re.findall(r"^FAILED tests/(\w+)\.py::.*-(\w+)\] - (.*)", done.stdout, re.MULTILINE)
    on_a_gpu = "cuda" if torch.cuda.is_available() else "sim"
    assert {(test, device) for test, device, _ in failed} == {("test_scale", "cpu"), ("test_scale", on_a_gpu)}
    assert all("not close" in reason for _, _, reason in failed)
    assert re.search(r"\d+ failed, \d+ passed", done.stdout)


def with_marked_names(text: str) -> str:
    """A signature whose parameters begin with `q_`, and its dimensions with `Q_`: other names are the templates'."""
    signature = parse_signature(text)
    text = re.sub(rf"\b({'|'.join(signature.dimensions) or '-'})\b", r"Q_\1", text)
    text = re.sub(r'"(\w+)"', r'"q_\1"', text)
    names = [parameter.name for parameter in (*signature.parameters, *signature.outputs)]
    return re.sub(rf"\b({'|'.join(names)})\b(?!\")", r"q_\1", text)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """Every file of the ops of the matrix, with marked names, and its text."""
    root = tmp_path_factory.mktemp("rendered")
    texts = []
    for op in [*OPS, *RARE, *CUSTOM]:
        signature = with_marked_names(op.signature or PATTERNS[op.pattern].signature)
        for devices in ("cuda", "cpu", "cuda,cpu"):
            scaffold = scaffold_op("q_op", signature, pattern=op.pattern, devices=parse_devices(devices), start=root)
            texts += [(file.path, file.text) for file in scaffold.files.files]
    return texts


def is_users(name: str) -> bool:
    return name.lower().startswith(("q_", "_q_op")) or "QOp" in name


def test_no_parameter_can_have_a_name_that_the_kernels_use(rendered: list[tuple[Path, str]]) -> None:
    used: set[str] = set()
    for path, text in rendered:
        if path.suffix in (".cuh", ".cpp", ".h"):
            code = re.sub(r'//.*|"[^"\n]*"|#\w+.*', "", text)
            used |= {name for before, name in re.findall(r"(\.|::)?\b([A-Za-z_]\w*)", code) if not before}
    free = {name for name in used if not is_users(name) and names.parameter_problem(name, dimension=True) is None}
    assert free <= {"Ts"} | {name for name in free if re.fullmatch(r"[A-Z]\d?", name)}  # kept apart as dtype variables


def test_no_name_is_kept_that_nothing_uses(rendered: list[tuple[Path, str]]) -> None:
    words: set[str] = set()
    for _, text in rendered:
        words |= set(re.findall(r"\w+", text))
    # What only some dtypes or kinds of tensors have; what math may well use.
    rare = {*CPP_DTYPES.values(), "MutPerRow", "OptionalPerRow", "std"}
    assert names.CPP_NAMES - words <= rare
    assert words >= names.PYTHON_NAMES | names.REFERENCE_NAMES


def python_names(text: str) -> set[str]:
    """The names that a file uses where an op is in scope: attributes of classes are not, and hide nothing."""
    found: set[str] = set()
    parsed = ast.parse(text)
    for of_class in (node for node in parsed.body if isinstance(node, ast.ClassDef)):
        of_class.body = [node for node in of_class.body if not isinstance(node, ast.Assign)]
    for node in ast.walk(parsed):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return {name for name in found if not is_users(name) and not hasattr(builtins, name)}


def test_no_op_can_have_a_name_that_its_python_uses(rendered: list[tuple[Path, str]]) -> None:
    used: set[str] = set()
    for path, text in rendered:
        if path.suffix == ".py":
            used |= python_names(text)
    assert {name for name in used if op_problem(name) is None} == set()


def test_no_parameter_can_have_a_name_that_the_wrapper_uses(rendered: list[tuple[Path, str]]) -> None:
    used: set[str] = set()
    for path, text in rendered:
        if path.name == "q_op.py":
            used |= python_names(text)
    assert {name for name in used if names.parameter_problem(name) is None} == set()


def test_no_parameter_can_have_a_name_that_the_reference_uses(rendered: list[tuple[Path, str]]) -> None:
    used: set[str] = set()
    for path, text in rendered:
        if path.name == "test_q_op.py":
            (reference,) = (node for node in ast.parse(text).body if getattr(node, "name", "") == "reference")
            used |= python_names(ast.unparse(reference)) - {"reference"}
    assert {"mean_square", "summed"} <= used
    assert {name for name in used if names.parameter_problem(name) is None} == set()
