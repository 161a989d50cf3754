"""kjit.planning.wrappers: declarations of wrappers, and recorded variants, collected."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kjit
from kjit.planning import wrappers
from kjit.project import find_project
from kjit.runtime import used
from kjit.spec import Target, Variant

CPU = Target.cpu()


class TestCollect:
    @pytest.fixture
    def write(self, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str, str], None]:
        """A function that writes a wrapper; each test has a package of its own, as Python keeps what it imported."""
        package = f"pkg_{abs(hash(request.node.nodeid))}"
        (tmp_path / "pyproject.toml").write_text(f'[tool.kjit]\npackage = "{package}"\n')
        (tmp_path / package).mkdir()

        def write(op: str, text: str) -> None:
            (tmp_path / package / f"{op}.py").write_text("import kjit\n" + textwrap.dedent(text))

        return write

    def collect(self, tmp_path: Path, *ops: str) -> wrappers.Collected:
        before = sys.path[:]
        try:
            return wrappers.collect(find_project(tmp_path), ops)
        finally:
            sys.path[:] = before

    ONE = """
        @kjit.module(variants=kjit.product(n=[1, 2]))
        def _module(n):
            return kjit.Spec("one", str(n), cpp_files=["/x/one.cpp"])
    """

    def test_a_wrapper_that_fails_to_import_does_not_hide_the_others(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("broken", "import no_such_module\n")
        write("one", self.ONE)
        collected = self.collect(tmp_path)
        assert [op for op, _ in collected.modules] == ["one"]
        ((op, error),) = collected.failures
        assert op == "broken"
        assert "broken.py" in error.message
        assert "no_such_module" in error.message

    def test_a_declaration_that_fails_does_not_hide_the_others(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("broken", "@kjit.module()\ndef _module():\n    return 1 / 0\n")
        write("one", self.ONE)
        collected = self.collect(tmp_path)
        assert [op for op, _ in collected.modules] == ["one"]
        ((op, error),) = collected.failures
        assert (op, error.message) == (
            "broken",
            "broken: the declaration _module fails: ZeroDivisionError: division by zero",
        )

    @pytest.mark.parametrize(
        ("statement", "reason"),
        [
            ("sys.exit(3)", "SystemExit: 3"),
            # As pytest's own, which this test would pass on to pytest if it came through.
            ("raise type('Skipped', (BaseException,), {})('no GPU')", "Skipped: no GPU"),
        ],
    )
    def test_a_declaration_that_exits_or_skips_does_not_end_the_command(
        self, tmp_path: Path, write: Callable[[str, str], None], statement: str, reason: str
    ) -> None:
        write("broken", f"import sys\n@kjit.module()\ndef _module():\n    {statement}\n")
        write("one", self.ONE)
        collected = self.collect(tmp_path)
        assert [op for op, _ in collected.modules] == ["one"]
        assert [error.message for _, error in collected.failures] == [
            f"broken: the declaration _module fails: {reason}"
        ]

    def test_ctrl_c_in_a_declaration_is_no_failure_of_it(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("slow", "@kjit.module()\ndef _module():\n    raise KeyboardInterrupt\n")
        with pytest.raises(KeyboardInterrupt):
            self.collect(tmp_path)

    def test_a_wrapper_without_a_declaration_is_named(self, tmp_path: Path, write: Callable[[str, str], None]) -> None:
        write("plain", "x = 1\n")
        assert self.collect(tmp_path).without == ["plain"]

    def test_a_declaration_that_two_wrappers_share_is_built_once(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("one", self.ONE)
        write("two", "from .one import _module\n")
        assert len(self.collect(tmp_path).variants([CPU])) == 2


WRAPPER = """
from pathlib import Path
import torch
import kjit

CSRC = Path(__file__).parent / "csrc"

@kjit.module(variants=kjit.product(dtype=[torch.float32], count=[1]))
def _op(dtype: torch.dtype, count: int = 1) -> kjit.Spec:
    args = kjit.make_cpp_args(dtype, count)
    return kjit.Spec("op", *args, cpp_files=[CSRC / "op.cpp"], cpp_wrappers=[("op", f"op<{args}>")])
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    package = root / "recorded_kernels"
    (package / "csrc").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.kjit]\npackage = "recorded_kernels"\n')
    (package / "__init__.py").touch()
    (package / "op.py").write_text(WRAPPER)
    (package / "csrc" / "op.cpp").write_text("template <typename T, int kCount> void op() {}\n")
    return root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "variants.jsonl"


def test_a_declared_variant_comes_back_from_the_values_that_it_was_called_with(project: Path, file: Path) -> None:
    found = find_project(project)
    op = found.import_wrapper("op")._op
    variant = Variant(op.spec(torch.float16, 3), Target.cpu())
    declared = used.Declared("recorded_kernels.op", "_op", {"dtype": torch.float16, "count": 3})
    for _ in range(2):  # the second time it is there already
        used.record(str(file), variant, declared)
    used.record(str(file), Variant(op.spec(torch.float32, 1), Target.cpu()), declared._replace(values={"count": (1,)}))
    assert len(file.read_text().splitlines()) == 2
    assert str(project) not in file.read_text()  # it means the same elsewhere
    (first, *_), failures = wrappers.read_recorded(file, found)
    assert first == variant
    [(name, error)] = failures  # a tuple is no count
    assert name == "recorded_kernels.op:_op"
    assert "no longer takes the recorded values" in error.message


@pytest.mark.parametrize("target", [Target.cpu(), Target.cuda("8.0", "8.9"), Target.sim(check=True)])
def test_any_other_variant_comes_back_from_its_spec(project: Path, file: Path, target: Target) -> None:
    source = project / "recorded_kernels" / "csrc" / "op.cpp"
    spec = kjit.Spec("op", "1", cuda_files=[source], cpp_files=[source], cpp_wrappers=["op"], extra_cflags=["-O1"])
    variant = Variant(spec.only(target.side), target)
    used.record(str(file), variant, None)
    assert wrappers.read_recorded(file, find_project(project)) == ([variant], [])


def test_a_value_that_no_line_can_hold_is_recorded_as_its_spec(project: Path, file: Path) -> None:
    op = find_project(project).import_wrapper("op")._op
    variant = Variant(op.spec(torch.float32, 1), Target.cpu())
    used.record(str(file), variant, used.Declared("recorded_kernels.op", "_op", {"count": frozenset({1})}))
    assert "op" not in json.loads(file.read_text())
    assert wrappers.read_recorded(file, find_project(project)) == ([variant], [])


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"target": "cpu", "archs": []}',
        '{"target": "gpu", "archs": [], "op": "a:b"}',
        '{"target": "cuda", "archs": [], "op": "a:b"}',
        '{"target": "cpu", "archs": [], "op": "a:b", "values": {"dtype": {"dtype": "nn"}}}',
        '{"target": "cpu", "archs": [], "spec": {"name": "op"}}',
    ],
    ids=lambda line: line[:60],
)
def test_a_line_that_is_no_record_is_named(project: Path, file: Path, line: str) -> None:
    file.write_text(f"\n{line}\n")
    with pytest.raises(kjit.UsageError, match="line 2 is not a recorded variant"):
        wrappers.read_recorded(file, find_project(project))


def test_what_no_longer_exists_is_reported_and_the_rest_is_read(project: Path, file: Path) -> None:
    lines = [
        {"op": "recorded_kernels.op:_gone", "values": {}},
        {"op": "no_such_package.op:_op", "values": {}},
        {"op": "antigravity:_op", "values": {}},
        {"op": "recorded_kernels.op:_op", "values": {"dtype": {"dtype": "bfloat16"}}},
    ]
    file.write_text("".join(json.dumps({**line, "target": "cpu", "archs": []}) + "\n" for line in lines))
    variants, failures = wrappers.read_recorded(file, find_project(project))
    assert [each.spec.label for each in variants] == ["op<bf16_t, 1>"]
    assert "no longer declares a module '_gone'" in failures[0][1].message
    assert "'no_such_package.op', which the recording names, cannot be imported" in failures[1][1].message
    assert "'antigravity', which the recording names, is not imported" in failures[2][1].message
    assert "antigravity" not in sys.modules
    with pytest.raises(kjit.UsageError, match="cannot be read"):
        wrappers.read_recorded(file.with_name("none"), find_project(project))


def test_a_file_that_cannot_be_written_is_an_error(project: Path, file: Path) -> None:
    op = find_project(project).import_wrapper("op")._op
    file.touch()
    with pytest.raises(kjit.UsageError, match="cannot be recorded"):
        used.record(str(file / "none"), Variant(op.spec(torch.float32), Target.cpu()), None)
