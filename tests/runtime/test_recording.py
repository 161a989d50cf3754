"""KJIT_RECORD: calls of ops, in files that load without kjit, recorded without loss."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kjit
from kjit import env
from kjit.runtime import recording

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for recorded calls of ops that a test defines."""
    folder = tmp_path / "calls"
    monkeypatch.setenv("KJIT_RECORD", str(folder))
    for name in (env.RECORD_VALUES, env.RECORD_EVERY, env.RECORD_MAX_SIZE):
        monkeypatch.delenv(name, raising=False)
    recording.recorder.cache_clear()
    yield folder
    recording.recorder.cache_clear()


def make_op(name: str = "kjit_recorded::scaled") -> Any:
    @kjit.torch_op(name, outputs=lambda x: torch.empty_like(x))
    def scaled(x: torch.Tensor, alpha: float = 2.0, count: int = 1, *, out: torch.Tensor | None = None) -> torch.Tensor:
        out = torch.empty_like(x) if out is None else out
        return torch.mul(x, alpha * count, out=out)

    return scaled


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"[!l]*{recording.CALL}"))


def only(folder: Path) -> dict[str, Any]:
    (file,) = files(folder)
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def test_a_call_is_described_by_all_that_its_kernel_sees(folder: Path) -> None:
    op = make_op()
    memory = torch.zeros(100)
    x = memory[64:].view(4, 9)[1:3, 1:4]  # a window on a larger tensor
    op(x, 3.0, out=x)
    document = only(folder)
    tensor = {
        "dtype": "float32",
        "shape": [2, 3],
        "strides": [9, 1],
        "device": "cpu",
        "memory": 0,
        "offset": 0,
    }
    assert document["arguments"] == {"x": {"tensor": tensor}, "alpha": 3.0, "count": 1, "out": {"tensor": tensor}}
    assert document["memories"] == [{"bytes": 4 * (9 + 3), "place": x.data_ptr() % 256}]
    assert document["captured"] is False
    assert document["op"] == f"{__name__}:make_op.<locals>.scaled"
    assert document["written_by"]["torch"] == torch.__version__


def test_calls_that_look_alike_are_one_file(folder: Path) -> None:
    op = make_op()
    for alpha in (1.0, 2.0):
        op(X, alpha)
        op(X.clone(), alpha)
    assert len(files(folder)) == 1
    op(X[:1])
    op(X.t())
    op(X.double())
    op(X, 2.0, 2)
    op(X, out=torch.empty_like(X))
    out = X.clone()
    op(out, out=out)
    assert len(files(folder)) == 7


def test_another_process_does_not_write_what_is_there(folder: Path) -> None:
    make_op()(X)
    (file,) = files(folder)
    before = file.stat()
    recording.recorder.cache_clear()  # as a process begins
    make_op()(X)
    assert files(folder) == [file]
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_it_is_written_before_the_kernel_runs_and_named_as_the_last(folder: Path) -> None:
    @kjit.torch_op("kjit_recorded::fails", mutates_args=("x",))
    def fails(x: torch.Tensor) -> None:
        raise RuntimeError(f"{x.numel()} numbers, and {len(files(folder))} files")

    make_op()(X)
    with pytest.raises(RuntimeError, match="6 numbers, and 2 files"):
        fails(X)
    (last,) = folder.glob("last-*.json")
    told = json.loads(last.read_text())
    assert told["process"] == os.getpid()
    assert "fails" in told["last"]
    assert (folder / told["last"]).exists()
    make_op()(X)  # recorded already, and the last one all the same
    assert "scaled" in json.loads(last.read_text())["last"]


def test_one_of_every_n_calls_is_recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_RECORD_EVERY", "3")
    op = make_op()
    for count in range(7):
        op(X, 2.0, count)
    make_op()(X, 2.0, 3)  # the module is run again
    counts = sorted(json.loads(file.read_text())["arguments"]["count"] for file in files(folder))
    assert counts == [0, 3, 3, 6]


def test_values_are_the_memory_before_the_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_RECORD_VALUES", "copied")
    make_op()(X)

    @kjit.torch_op("kjit_recorded::copied", mutates_args=("out",))
    def copied(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x)

    memory = torch.arange(20.0)
    copied(memory[3:9].view(2, 3).t(), memory[10:16].view(3, 2))
    (values,) = folder.glob("*.pt")
    document = json.loads(values.with_suffix(".json").read_text())
    assert document["has_values"]
    assert document["arguments"]["out"]["tensor"]["offset"] == 4 * 7
    (read,) = torch.load(values, weights_only=True)
    assert read.view(torch.float32).tolist() == [*range(3, 16)]


def test_no_values_are_read_while_a_graph_is_captured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_RECORD_VALUES", "1")
    monkeypatch.setattr(recording, "_is_capturing", lambda: True)
    make_op()(X)
    document = only(folder)
    assert document["captured"]
    assert document["without_values"] == "a CUDA graph was being captured"
    assert list(folder.glob("*.pt")) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("with_values", [False, True])
def test_a_capture_of_a_cuda_graph_is_recorded_and_not_disturbed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, with_values: bool
) -> None:
    monkeypatch.setenv("KJIT_RECORD_VALUES", str(int(with_values)))
    op = make_op()
    x = X.cuda()
    out = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        op(x, 3.0, out=out)
    x.fill_(2.0)
    for _ in range(2):
        graph.replay()
    assert out.tolist() == torch.full_like(x, 6.0).tolist()
    document = only(folder)
    assert document["captured"]
    assert document["arguments"]["x"]["tensor"]["device"] == "cuda:0"
    assert document["written_by"]["gpu"] == torch.cuda.get_device_name()
    assert ("without_values" in document) == with_values
    op(x[:1])  # and what is called afterwards, values and all
    assert len(files(folder)) == 2


def test_a_size_limit_ends_the_recording_and_no_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KJIT_RECORD_MAX_SIZE", "2K")
    monkeypatch.setenv("KJIT_RECORD_VALUES", "1")
    op = make_op()
    op(torch.zeros(4000))  # its values alone are too large
    assert "larger than what KJIT_RECORD_MAX_SIZE leaves" in only(folder)["without_values"]
    for size in range(1, 10):
        assert op(torch.ones(size)).sum() == 2 * size
    assert sum(file.stat().st_size for file in folder.glob("[!l]*")) <= 2048
    assert [record.levelno for record in caplog.records if "no more calls are recorded" in record.message] == [
        logging.WARNING
    ]


def test_a_disk_that_is_full_ends_the_recording_and_no_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    op = make_op()

    def full(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(recording.os, "write", full)
        assert op(X).tolist() == (2 * X).tolist()
        op(X[:1])
    assert [record.message for record in caplog.records] == [
        f"no more calls are recorded in {folder}: No space left on device. They are still made."
    ]
    assert list(folder.iterdir()) == []  # nothing half-written


def test_a_folder_that_cannot_be_written_is_an_error_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del folder
    (tmp_path / "file").touch()
    monkeypatch.setenv("KJIT_RECORD", str(tmp_path / "file"))
    with pytest.raises(kjit.UsageError, match=r"calls cannot be recorded in '.*file'"):
        make_op()


class TestKinds:
    def test_what_a_compiled_graph_calls_is_recorded_too(self, folder: Path) -> None:
        op = make_op()
        out = torch.empty_like(X)
        torch.ops.kjit_recorded.scaled.out(X, out=out)
        assert out.tolist() == (2 * X).tolist()
        assert [*only(folder)["arguments"]] == ["x", "alpha", "count", "out"]
        assert op.op(X[:1]).tolist() == (2 * X[:1]).tolist()
        assert len(files(folder)) == 2

    def test_lists_numbers_and_what_has_no_form(self, folder: Path) -> None:
        function = recording.recorded(lambda *values: len(values))
        sparse = torch.eye(2).to_sparse()
        assert function([X, X[:1]], float("inf"), torch.float16, sparse, None, object) == 6
        values = only(folder)["arguments"]["values"]["tuple"]
        first, infinity, dtype, layout, nothing, other = values
        assert [each["tensor"]["shape"] for each in first] == [[2, 3], [1, 3]]
        assert [each["tensor"]["memory"] for each in first] == [0, 0]
        assert (infinity, dtype, nothing) == (float("inf"), {"dtype": "float16"}, None)
        assert "sparse" in layout["unknown"]
        assert other == {"unknown": "builtins.type"}


class TestMany:
    def test_an_argument_that_cannot_be_described_disturbs_no_call(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        function = recording.recorded(lambda x: len(x))
        endless: list[Any] = []
        endless.append(endless)
        assert [function(endless) for _ in range(3)] == [1] * 3
        assert len(caplog.records) == 1
        assert "are recorded: " in caplog.text and "They are still made." in caplog.text
        del folder

    def test_processes_that_write_the_same_at_once_leave_whole_files(self, folder: Path) -> None:
        op = make_op()
        inputs = [torch.ones(size, 2) for size in range(1, 30)]
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                for x in inputs:
                    op(x)
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        found = files(folder)
        rows = [json.loads(file.read_text())["arguments"]["x"]["tensor"]["shape"][0] for file in found]
        assert sorted(rows) == [*range(1, 30)]
        assert [file for file in found if file.name.startswith(".")] == []


def test_where_nothing_is_recorded_the_kernel_is_called_as_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KJIT_RECORD", raising=False)
    op = make_op()
    assert op.__globals__["_kjit_function"] is op.__wrapped__
