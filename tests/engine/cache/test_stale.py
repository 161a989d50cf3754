"""kjit.engine.cache.stale: artifacts that no current source can hit, and those that are not counted among them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stores import key_of, publish, rewrite

from kjit.engine.cache.stale import find_stale
from kjit.engine.cache.store import Artifact, Store
from kjit.spec import Spec

WriteOp = Callable[..., Spec]


@pytest.fixture
def project(tmp_path: Path, cache_dir: Path) -> Path:
    del cache_dir
    return tmp_path / "project"


@pytest.fixture
def spec(project: Path, answer_op: WriteOp) -> Spec:
    return answer_op(project)


@pytest.fixture
def artifact(spec: Spec) -> Artifact:
    return publish(Store.open(), key_of(spec))


def stale(project: Path) -> dict[str, str]:
    """The stale ops with the reasons."""
    return {entry.op: reason for entry, reason in find_stale(Store.open(), project)}


def test_what_the_sources_of_today_would_hit_is_not_stale(artifact: Artifact, project: Path) -> None:
    del artifact
    assert stale(project) == {}


def test_what_was_built_from_another_source_is(artifact: Artifact, project: Path, spec: Spec) -> None:
    del artifact
    Path(spec.cpp_files[0]).write_text("changed")
    assert stale(project) == {"answer": "csrc/answer.cpp changed"}
    Path(spec.cpp_files[0]).unlink()
    assert stale(project) == {"answer": "csrc/answer.cpp is gone"}


def test_what_was_built_from_another_header_is(artifact: Artifact, project: Path, spec: Spec) -> None:
    del artifact
    Path(spec.cpp_files[0]).with_suffix(".h").write_text("changed")
    assert stale(project) == {"answer": "csrc/answer.h changed"}


def test_a_touched_header_is_no_reason_and_the_record_stays(artifact: Artifact, project: Path, spec: Spec) -> None:
    os.utime(Path(spec.cpp_files[0]).with_suffix(".h"), (1, 1))
    before = (artifact.folder / "record.jsonl").read_bytes()
    assert stale(project) == {}
    assert (artifact.folder / "record.jsonl").read_bytes() == before


@pytest.mark.parametrize("package", ["kjit", "tvm-ffi"])
def test_what_another_version_built_is(artifact: Artifact, project: Path, package: str) -> None:
    rewrite(artifact, 2, "inputs", "versions", package, value="0.0.1")
    (reason,) = stale(project).values()
    assert reason.startswith(f"{package} was 0.0.1 and is ")


def test_what_a_compiler_built_that_is_gone_or_was_replaced_is(artifact: Artifact, project: Path) -> None:
    rewrite(artifact, 2, "inputs", "toolchain", "cxx", "size", value=1)
    (reason,) = stale(project).values()
    assert reason.endswith("was replaced")
    rewrite(artifact, 2, "inputs", "toolchain", "cxx", "path", value="/opt/gone/bin/g++")
    assert stale(project) == {"answer": "'/opt/gone/bin/g++' is gone"}


def test_what_is_damaged_is_whatever_project_it_belongs_to(artifact: Artifact, tmp_path: Path) -> None:
    artifact.library.write_bytes(b"short")
    (reason,) = stale(tmp_path / "another").values()
    assert "its library has 5 bytes" in reason


class TestAnotherProject:
    def test_its_artifacts_are_never_stale(self, artifact: Artifact, tmp_path: Path, spec: Spec) -> None:
        """Not even one of the same op, with a source at the same place in the project."""
        Path(spec.cpp_files[0]).write_text("changed")
        rewrite(artifact, 2, "inputs", "versions", "kjit", value="0.0.1")
        here = tmp_path / "another"
        shutil.copytree(tmp_path / "project", here)
        assert stale(here) == {}

    def test_what_does_not_say_for_which_project_it_was_built_stays(
        self, artifact: Artifact, project: Path, spec: Spec
    ) -> None:
        rewrite(artifact, 0, "project", value="")
        Path(spec.cpp_files[0]).write_text("changed")
        assert stale(project) == {}

    def test_what_a_record_of_another_format_is_about_is_not_known_and_stays(
        self, artifact: Artifact, project: Path
    ) -> None:
        rewrite(artifact, 0, "format", value=999)
        assert stale(project) == {}
