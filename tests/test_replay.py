"""kjit.replay: recorded calls are made again unchanged, and those that cannot be are reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import replayed
import torch

from kjit import benchmark, replay
from kjit.errors import KjitError, UsageError
from kjit.project import read_project
from kjit.replay import Call, Replay

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [*__import__("sys").path])
        yield replayed.write_project(tmp_path_factory.mktemp("replayed"))
    replayed.forget()


@pytest.fixture
def again(root: Path) -> Replay:
    return Replay(read_project(root / "pyproject.toml"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def recorded(root: Path, folder: Path, calls: Callable[[ModuleType], object], **environment: str) -> list[Call]:
    replayed.record(root, folder, calls, **environment)
    found, errors = replay.read([folder])
    assert errors == []
    return found


def changed(call: Call, **changes: Any) -> Call:
    return call._replace(document={**call.document, **changes})


class TestTest:
    def test_a_call_is_held_against_the_reference_of_its_test(self, root: Path, folder: Path, again: Replay) -> None:
        def calls(ops: ModuleType) -> None:
            ops.scale(X, 3.0)
            ops.scale(torch.ones(7, 2), out=torch.empty(7, 2))
            ops.scale(torch.ones(7, 0))

        outcomes = {outcome.call.shapes(): outcome for outcome in map(again.test, recorded(root, folder, calls))}
        assert {shapes: outcome.state for shapes, outcome in outcomes.items()} == {
            "x fp32[2, 3]": "agrees",
            "x fp32[7, 2], out fp32[7, 2]": "differs",
            "x fp32[7, 0]": "agrees",
        }
        assert "not close" in outcomes["x fp32[7, 2], out fp32[7, 2]"].detail

    def test_a_shape_that_the_op_refuses_has_failed_with_its_words(
        self, root: Path, folder: Path, again: Replay
    ) -> None:
        (call,) = recorded(root, folder, lambda ops: ops.scale(X))
        (_, tensor), *_ = call.tensors()
        wrong = {**tensor, "shape": [13, 3], "strides": [3, 1]}
        refused = changed(call, arguments={"x": {"tensor": wrong}, "alpha": 1.0, "out": None})
        outcome = again.test(refused)
        assert outcome.state == "failed"
        assert outcome.detail == "RuntimeError: Tensor match failed for x: its shape is wrong"

    def test_a_reference_needs_no_class(self, root: Path, folder: Path, again: Replay) -> None:
        slots = torch.tensor([5, 0, 3])
        (call,) = recorded(root, folder, lambda ops: ops.store(torch.ones(3, 2), torch.zeros(8, 2), slots))
        assert again.test(call) == (call, "agrees", "")
        assert again.arguments(call)["slots"].tolist() == [0, 1, 2]  # each row of the table at most once

    def test_times_are_those_of_the_call_and_of_its_reference(self, root: Path, folder: Path, again: Replay) -> None:
        (call,) = recorded(root, folder, lambda ops: ops.scale(X))
        with benchmark.quick():
            timing = again.bench(call)
        assert timing.median is not None
        assert timing.reference is not None
        assert timing.median > 0 < timing.reference


class TestArguments:
    def test_tensors_lie_in_memory_as_they_did(self, root: Path, folder: Path, again: Replay) -> None:
        memory = torch.zeros(200)
        window = memory[65:].view(5, 27)[1:3, 1:4]
        (call,) = recorded(root, folder, lambda ops: ops.scale(window, out=window))
        made = again.arguments(call)
        assert made["x"].shape == (2, 3)
        assert made["x"].stride() == (27, 1)
        assert made["x"].data_ptr() == made["out"].data_ptr()
        assert made["x"].data_ptr() % 256 == window.data_ptr() % 256

    def test_rows_that_share_memory_do_so_again(self, root: Path, folder: Path, again: Replay) -> None:
        (call,) = recorded(root, folder, lambda ops: ops.scale(torch.ones(3).expand(4, 3)))
        assert again.arguments(call)["x"].stride() == (0, 1)
        assert again.test(call).state == "agrees"

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex128])
    def test_recorded_values_come_back(self, root: Path, folder: Path, again: Replay, dtype: torch.dtype) -> None:
        x = torch.randn(3, 4).to(dtype).t()
        (call,) = recorded(root, folder, lambda ops: ops.scale(x, 3.0), KJIT_RECORD_VALUES="scale")
        made = again.arguments(call)["x"]
        assert torch.equal(made, x)
        assert made.stride() == x.stride()

    def test_other_arguments_come_back_as_they_were(self, again: Replay) -> None:
        arguments = {
            "a": float("-inf"),
            "b": {"dtype": "float16"},
            "c": [1, {"tuple": [True, None]}],
            "d": "text",
        }
        call = Call(Path("x.json"), {"op": "a:b", "arguments": arguments, "memories": []})
        assert again.arguments(call) == {"a": float("-inf"), "b": torch.float16, "c": [1, (True, None)], "d": "text"}

    def test_a_gpu_that_is_not_here_is_another_one_or_the_simulator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert [Replay(None, simulated=False)._place(each) for each in ("cuda:1", "cuda:2", "cuda", "cpu")] == [
            "cuda:1",
            "cuda:0",
            "cuda",
            "cpu",
        ]
        assert Replay(None, simulated=True)._place("cuda:1") == "cpu"


class TestBadInput:
    @pytest.fixture
    def call(self, root: Path, folder: Path) -> Call:
        (call,) = recorded(root, folder, lambda ops: ops.scale(X))
        return call

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"op": f"{replayed.PACKAGE}.scale:gone"}, "no longer has an op 'gone'"),
            ({"op": f"{replayed.PACKAGE}.scale:_scale"}, "no longer has an op '_scale'"),
            ({"op": f"{replayed.PACKAGE}.gone:scale"}, "there is no such module here"),
            ({"op": "os:getcwd", "arguments": {}}, "os no longer has an op 'getcwd'"),
            ({"op": f"{replayed.PACKAGE}.scale:make.<locals>.scale"}, "inside a function"),
            ({"arguments": {"x": None, "beta": 1}}, r"takes \(x, alpha, out\), and was recorded with \(x, beta\)"),
            ({"arguments": {"alpha": 1.0}}, r"takes \(x, alpha, out\), and was recorded with \(alpha\)"),
            ({"arguments": {"x": {"unknown": "a tensor of layout torch.sparse_coo"}}}, "could not be recorded"),
        ],
    )
    def test_a_call_that_no_op_here_can_take_is_reported(
        self, call: Call, again: Replay, changes: dict[str, Any], message: str
    ) -> None:
        wrong = changed(call, **changes)
        with pytest.raises(KjitError, match=message):
            again.run(wrong)
        assert again.test(wrong).state == "failed"
        assert again.bench(wrong).error

    def test_a_module_without_ops_is_not_imported(
        self, call: Call, again: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        imported = f"open({str(tmp_path / 'imported')!r}, 'w')\n"
        for package, text in (("elsewhere", ""), ("elsewhere/inside", "def scale(): ...\n")):
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").write_text(imported + text)
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in ("elsewhere", "elsewhere.inside"):
            wrong = changed(call, op=f"{name}:scale")
            with pytest.raises(KjitError, match=f"'{name}', which the recording names, is not imported") as caught:
                again.run(wrong)
            assert "defines no op 'scale' of kjit" in caught.value.message
        assert not (tmp_path / "imported").exists()

    def test_a_dtype_that_this_torch_does_not_have_is_named(self, call: Call, again: Replay) -> None:
        (_, before), *_ = call.tensors()
        arguments = {**call.document["arguments"], "x": {"tensor": {**before, "dtype": "float3"}}}
        with pytest.raises(KjitError, match="tensors of float3, which this torch does not have"):
            again.arguments(changed(call, arguments=arguments))

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            '{"format": 2}',
            '{"format": 2, "op": "scale", "arguments": {}, "memories": []}',
            '{"format": 2, "op": "a:b", "arguments": {"x": {"tensor": {}}}, "memories": []}',
        ],
    )
    def test_a_damaged_file_hides_none_of_the_others(self, call: Call, folder: Path, text: str) -> None:
        (folder / "damaged.json").write_text(text)
        calls, (error,) = replay.read([folder])
        assert calls == [call]
        assert "damaged.json is damaged, or not a recorded call" in error.message

    def test_a_file_of_another_form_says_which_kjit_wrote_it(self, folder: Path, call: Call) -> None:
        document = {**call.document, "format": 9, "written_by": {"kjit": "9.9"}}
        (folder / "newer.json").write_text(json.dumps(document))
        _, (error,) = replay.read([folder])
        assert "was written by kjit 9.9, in a format that this version cannot read" in error.message

    def test_values_that_are_cut_off_or_gone_are_reported(self, root: Path, folder: Path, again: Replay) -> None:
        (call,) = recorded(root, folder, lambda ops: ops.scale(X), KJIT_RECORD_VALUES="1")
        values = call.file.with_suffix(".pt")
        values.write_bytes(values.read_bytes()[:-50])
        assert "cannot be read from" in again.test(call).detail
        values.unlink()
        assert "No such file" in again.test(call).detail

    def test_a_path_without_calls_is_refused(self, tmp_path: Path, call: Call) -> None:
        del call
        with pytest.raises(UsageError, match="there is no file or folder"):
            replay.read([tmp_path / "none"])
        (tmp_path / "empty").mkdir()
        with pytest.raises(UsageError, match="there is no recorded call in"):
            replay.read([tmp_path / "empty"])
        (tmp_path / "notes.txt").touch()
        with pytest.raises(UsageError, match="is not a recorded call: these are files"):
            replay.read([tmp_path / "notes.txt"])
