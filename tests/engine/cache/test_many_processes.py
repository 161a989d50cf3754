"""Processes that ask for one module at the same time: one compiles it, the others wait, and a hit waits for nobody."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kjit.engine import builder
from kjit.engine.cache.store import Store
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]
CPU = Target.cpu()
EIGHT = 8

# One that forks the others, so that Python and kjit start once. `go` opens the gate for one of them or for all; each
# says `locks` when it asks for a lock for the first time, and in the end what became of its request.
_RANKS = """
import json, os, sys
from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.spec import Spec, Target, Variant

source, ranks = sys.argv[1], int(sys.argv[2])
flocks = 0

def watch(event, arguments):
    global flocks
    if event == "fcntl.flock":
        flocks += 1
        if flocks == 1:
            say(locks=True)

def say(**words):
    os.write(1, (json.dumps({"rank": rank, "pid": os.getpid(), **words}) + "\\n").encode())

gates = [os.pipe() for _ in range(ranks)]
for rank in range(ranks):
    if os.fork() == 0:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        sys.addaudithook(watch)
        os.read(gates[rank][0], 1)
        state = build(Variant(Spec("answer", cpp_files=[source]), Target.cpu()), Store.open()).state
        say(state=state, flocks=flocks)
        os._exit(0)
for line in sys.stdin:
    for rank in json.loads(line):
        os.write(gates[rank][1], b"x")
"""


@dataclass
class Ranks:
    """The eight processes."""

    process: subprocess.Popen[str]
    lines: list[dict[str, object]] = field(default_factory=list)

    def go(self, *ranks: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(ranks or list(range(EIGHT))) + "\n")
        self.process.stdin.flush()

    def wait_for(self, word: str, count: int) -> list[dict[str, object]]:
        """The first `count` lines that have `word` in them."""
        assert self.process.stdout is not None
        while len(found := [line for line in self.lines if word in line]) < count:
            self.lines.append(json.loads(self.process.stdout.readline()))
        return found


@pytest.fixture
def start(answer_op: WriteOp, tmp_path: Path, cache_dir: Path) -> Iterator[Callable[[], Ranks]]:
    del cache_dir
    spec = answer_op(tmp_path / "project")
    with contextlib.ExitStack() as stack:

        def start() -> Ranks:
            command = [sys.executable, "-c", _RANKS, spec.cpp_files[0], str(EIGHT)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            return Ranks(stack.enter_context(process))

        yield start


@pytest.fixture
def compiles(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to which the compiler adds its process for each source. While there is a `block`, it does not go on."""
    del cache_dir
    log, compiler = tmp_path / "log", tmp_path / "c++"
    real = Toolchain.for_target(CPU).cxx.path
    # Of a compile's commands just one names the source.
    compiler.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        case "$*" in *answer.cpp*)
          echo $$ >>'{log}'
          test -e '{tmp_path}/block' && exec sleep 600 ;;
        esac
        exec '{real}' "$@"
        """)
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    return log


def test_eight_on_a_cold_cache_make_one_compile(start: Callable[[], Ranks], compiles: Path) -> None:
    ranks = start()
    ranks.go()
    states = [line["state"] for line in ranks.wait_for("state", EIGHT)]
    assert sorted(map(str, states)) == ["built", *["hit"] * (EIGHT - 1)]
    assert len(compiles.read_text().splitlines()) == 1


def test_eight_on_a_warm_cache_take_no_lock(start: Callable[[], Ranks], tmp_path: Path) -> None:
    builder.build(Variant(Spec("answer", cpp_files=[tmp_path / "project" / "csrc" / "answer.cpp"]), CPU), Store.open())
    ranks = start()
    ranks.go()
    assert [(line["state"], line["flocks"]) for line in ranks.wait_for("state", EIGHT)] == [("hit", 0)] * EIGHT


def test_when_the_builder_is_killed_one_of_seven_that_wait_takes_over(
    start: Callable[[], Ranks], compiles: Path, tmp_path: Path
) -> None:
    (tmp_path / "block").touch()
    ranks = start()
    ranks.go(0)
    builder = ranks.wait_for("locks", 1)[0]["pid"]
    assert isinstance(builder, int)
    while not compiles.exists() or not compiles.read_text():
        time.sleep(0.01)
    compiler = int(compiles.read_text())
    try:
        ranks.go(*range(1, EIGHT))
        ranks.wait_for("locks", EIGHT)
        assert not [line for line in ranks.lines if "state" in line]
        (tmp_path / "block").unlink()
        os.kill(builder, signal.SIGKILL)
        states = [line["state"] for line in ranks.wait_for("state", EIGHT - 1)]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(compiler, signal.SIGKILL)
    assert sorted(map(str, states)) == ["built", *["hit"] * (EIGHT - 2)]
    assert len(compiles.read_text().splitlines()) == 2
    assert list((Store.open().root / LAYOUT / "staging").iterdir()) == []
