"""kjit.engine.toolchain.memo: compilers are queried again when they change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes import calls, write_gcc

from kjit.engine.toolchain import compilers, memo
from kjit.engine.toolchain.compilers import inspect
from kjit.runtime import LAYOUT


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


class TestMemo:
    def test_a_known_compiler_is_not_run_again(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(compilers, "script_of", lambda _: b"")  # what a test writes is one
        program = write_gcc(tmp_path / "c++")
        before = os.umask(0o002)
        inspect(program)
        os.umask(before)
        asked = len(calls(program))
        memo._open.cache_clear()  # as a new process would begin
        inspect(program)
        assert len(calls(program)) == asked

    def test_a_script_is_asked_in_each_process_what_it_would_run(self, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "c++")
        inspect(program)
        before = len(calls(program))
        inspect(program)
        assert [call.split()[0] for call in calls(program)[before:]] == ["--version", "-###", "-print-prog-name=ld"]

    @pytest.mark.parametrize(
        ("line", "asked"),
        [('exec {} "$@"', 0), ('{} "$@"', 0), ('exec {} $FLAGS "$@"', 3), ('. /etc/profile; exec {} "$@"', 3)],
    )
    def test_a_script_that_only_passes_on_its_arguments_is_asked_when_its_program_has_changed(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, asked: int
    ) -> None:
        real, script = write_gcc(tmp_path / "real"), tmp_path / "c++"
        script.write_text(f"#!/bin/sh\n# our flags\n{line.format(real)}\n")
        script.chmod(0o755)
        read = compilers.script_of
        monkeypatch.setattr(compilers, "script_of", lambda path: b"" if path == real else read(path))
        assert inspect(script).version == (12, 2)
        before = len(calls(real))
        assert inspect(script).may_change is (asked > 0)
        assert len(calls(real)) == before + asked
        write_gcc(real, "13.10.0")
        assert inspect(script).version == (13, 10)

    def test_a_replaced_compiler_is_asked_again(self, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "c++")
        assert inspect(program).version == (12, 2)
        write_gcc(program, "13.10.0")
        assert inspect(program).version == (13, 10)

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1, "programs": []}', "\x00\xff"])
    def test_a_broken_memo_is_as_good_as_none(self, cache_dir: Path, tmp_path: Path, content: str) -> None:
        (cache_dir / LAYOUT).mkdir(parents=True, exist_ok=True)
        (cache_dir / LAYOUT / "compilers.json").write_text(content)
        assert inspect(write_gcc(tmp_path / "c++")).version == (12, 2)

    @pytest.mark.parametrize("inner", ["", LAYOUT, f"{LAYOUT}/compilers.json"])
    def test_one_that_others_may_write_to_is_not_believed(self, cache_dir: Path, tmp_path: Path, inner: str) -> None:
        program = write_gcc(tmp_path / "c++")
        inspect(program)
        before = len(calls(program))
        (cache_dir / inner).chmod(0o777)
        memo._open.cache_clear()  # as a new process would begin
        assert inspect(program).version == (12, 2)
        assert len(calls(program)) > before

    def test_an_answer_of_the_wrong_form_is_asked_again(self, cache_dir: Path, tmp_path: Path) -> None:
        program = write_gcc(tmp_path / "c++")
        path, size, mtime_ns = memo.stamp(program)
        (cache_dir / LAYOUT).mkdir(parents=True, exist_ok=True)
        entry = {"size": size, "mtime_ns": mtime_ns, "version": [7], "features": "native"}
        (cache_dir / LAYOUT / "compilers.json").write_text(json.dumps({"format": 1, "programs": {path: entry}}))
        assert inspect(program).version == (12, 2)

    def test_a_cache_that_cannot_be_written_is_no_error(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
        assert inspect(write_gcc(tmp_path / "c++")).version == (12, 2)
