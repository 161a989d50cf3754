"""`kjit replay`: its output and exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import replayed
import torch

from kjit.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Calls beside the project of their ops: one is right, one is not."""
    root = replayed.write_project(tmp_path_factory.mktemp("replayed"))

    def calls(ops: ModuleType) -> None:
        ops.scale(torch.ones(2, 3))
        ops.scale(torch.ones(7))

    replayed.record(root, root / "calls", calls)
    yield root / "calls"
    replayed.forget()


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run `kjit replay` in the project, in this process; its exit status."""
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["kjit", "replay", *map(str, arguments)])
    monkeypatch.setenv("KJIT_RECORD", str(folder / "more"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not (folder / "more").exists()  # what is made again is not recorded
    return int(ended.value.code or 0)


def test_a_difference_is_reported_with_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, monkeypatch, "test", folder) == 1
    said = capsys.readouterr()
    assert sorted(line.split()[-1] for line in said.out.splitlines()[1:]) == ["agrees", "differs"]
    assert "error: scale differs: Tensor-likes are not close!" in said.err
    assert "2 calls without values: they are generated." in said.err
    assert f"The last call of process {os.getpid()} is {replayed.PACKAGE}.scale.scale-" in said.err


def test_one_file_is_a_call_too_and_json_has_all_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (right,) = [file for file in folder.glob("*scale-*.json") if "[2, 3]" in file.read_text()]
    assert run(folder, monkeypatch, "test", right, "--json", "--op", "scale") == 0
    document = json.loads(capsys.readouterr().out)
    (call,) = document["calls"]
    assert (call["state"], call["name"], call["file"]) == ("agrees", "scale", str(right))
    assert call["arguments"]["alpha"] == 2.0
    assert document["unreadable"] == []


def test_times_are_a_table(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("kjit.benchmark.run_benchmark", lambda function, device: (function(), device, Time)[2])
    assert run(folder, monkeypatch, "bench", folder) == 0
    assert [line.split()[-2:] for line in capsys.readouterr().out.splitlines()[1:]] == [["1.50", "1.50"]] * 2


class Time:
    median = 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tset", "calls"], "no such command 'tset'.\nhint: did you mean test?"),
        (["test"], "missing argument 'DIR'"),
        (["test", "nowhere"], "there is no file or folder 'nowhere'"),
        (["test", "calls", "--op", "shift"], "no call of 'shift' is recorded"),
        (["sanitize", "calls", "--tool", "lint"], "'lint' is not a tool"),
        (["sanitize", "calls", "--sim", "--tool", "memcheck"], "--tool is for compute-sanitizer"),
    ],
)
def test_wrong_usage_is_an_error(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert run(folder, monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_file_is_reported_and_the_other_calls_are_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (right,) = [file for file in folder.glob("*scale-*.json") if "[2, 3]" in file.read_text()]
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / "a.json").write_text(right.read_text())
    (tmp_path / "calls" / "b.json").write_text(right.read_text()[:-30])
    assert run(folder, monkeypatch, "test", tmp_path / "calls") == 1
    said = capsys.readouterr()
    assert "agrees" in said.out
    assert "b.json is damaged, or not a recorded call" in said.err


def test_a_call_that_fails_under_a_sanitizer_is_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (right,) = [file for file in folder.glob("*scale-*.json") if "[2, 3]" in file.read_text()]
    document = json.loads(right.read_text()) | {"simulated": True}
    document["arguments"]["x"]["tensor"] |= {"shape": [13], "strides": [1]}
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    monkeypatch.setenv("KJIT_SIM", "")  # set by the command, for this process too
    assert run(folder, monkeypatch, "sanitize", "--sim", right) == 2
    assert "these calls ran CPU kernels" in capsys.readouterr().err
    assert run(folder, monkeypatch, "sanitize", "--sim", right, tmp_path / "wrong.json") == 1
    said = capsys.readouterr()
    assert "1 test failed" in said.out or "failed: " in said.out
    assert "wrong" in said.out
    assert "Tensor match failed for x" in said.out
    assert "1 call of CPU kernels: the sanitizers do not check these." in said.err
