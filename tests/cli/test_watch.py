"""`kjit watch`: the reactions to a saved file."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Until = Callable[[str], list[str]]

_TEST = """from kernels.{op} import _module

def test_answer():
    assert _module(1, device="cpu").{op}() == 42
"""
_DEADLINE_S = 120.0  # longer than any of it takes on a busy machine


@pytest.fixture
def watched(project: Path, add: Callable[[str], None]) -> Iterator[tuple[subprocess.Popen[str], Until]]:
    """`kjit watch` in a project with the ops `answer` and `other`, and a function that returns its lines until one that
    contains a text."""
    pytest.importorskip("watchfiles")
    add("other")
    (project / "tests").mkdir()
    for op in ("answer", "other"):
        (project / "tests" / f"test_{op}.py").write_text(_TEST.format(op=op))
    process = subprocess.Popen(
        [sys.executable, "-m", "kjit", "watch"],
        cwd=project,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout or ()])
    reader.start()

    def until(text: str) -> list[str]:
        read: list[str] = []
        while not read or text not in read[-1]:
            try:
                read.append(lines.get(timeout=_DEADLINE_S))
            except queue.Empty:
                raise AssertionError("".join(read)) from None
        return read

    yield process, until
    process.kill()
    reader.join()


def test_saves_are_built_and_tested_until_ctrl_c(project: Path, watched: tuple[subprocess.Popen[str], Until]) -> None:
    process, until = watched
    assert until("answer, other: tests pass")[-1].endswith("waiting for changes, Ctrl-C to stop\n")

    header = project / "csrc" / "answer.h"
    good = header.read_text()
    header.write_text("#define ANSWER 43\n")
    assert any("assert 43 == 42" in line for line in until("a test failed ("))

    header.write_text("#define ANSWER 42 +\n")
    broken = until("it does not compile (")
    assert sum(line.startswith("error: ") for line in broken) == 1

    header.write_text(good)
    assert any(line.endswith("csrc/answer.h\n") for line in until("answer: tests pass"))

    (project / "tests" / "test_other.py").write_text("def test_it():\n    pass\n")
    until("other: tests pass")

    process.send_signal(signal.SIGINT)
    assert until("Stopped.")[-1] == "Stopped.\n"
    assert process.wait(_DEADLINE_S) == 0
