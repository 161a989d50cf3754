"""Declarations of wrappers, collected."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.planning import wrappers
from kjit.project import find_project
from kjit.spec import Target

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
