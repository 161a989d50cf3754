"""KJIT_SHARED_CACHE_DIR: a cache that others fill is used if it can be trusted, and never written."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import Forks
from stores import LIBRARY, everything_in, key_of, publish

from kjit.engine import miss
from kjit.engine.cache.store import Artifact, Store
from kjit.engine.key.key import Key
from kjit.errors import CacheError
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]


@pytest.fixture
def spec(tmp_path: Path, answer_op: WriteOp, cache_dir: Path) -> Spec:
    del cache_dir
    return answer_op(tmp_path / "project")


@pytest.fixture
def key(spec: Spec) -> Key:
    return key_of(spec)


@pytest.fixture
def team(tmp_path: Path, key: Key, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """An artifact in a shared cache, which this process asks."""
    artifact = publish(Store.open(tmp_path / "team"), key)
    monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", str(tmp_path / "team"))
    return artifact


def test_what_only_the_shared_cache_has_is_found(team: Artifact, key: Key, tmp_path: Path) -> None:
    found = Store.open().find(key)
    assert found.artifact is not None
    assert (found.artifact.folder, found.shared) == (team.folder, tmp_path / "team")


def test_what_is_used_is_copied_into_the_users_own_cache(
    team: Artifact, key: Key, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    found = Store.open().fetch(key).artifact
    assert found is not None
    assert found.folder.is_relative_to(cache_dir)
    assert found.library.read_bytes() == LIBRARY
    assert f"comes from the shared cache {team.folder.parents[4]}" in caplog.text
    shutil.rmtree(team.folder.parents[4])
    again = Store.open().find(key)
    assert (again.artifact is not None, again.shared) == (True, None)


def test_the_users_own_goes_first_and_the_shared_one_is_not_asked(team: Artifact, key: Key, cache_dir: Path) -> None:
    own = publish(Store.open(), key)
    team.folder.parents[4].chmod(0o777)  # would be refused if it were looked at
    found = Store.open().find(key)
    assert found.artifact is not None
    assert found.artifact.folder == own.folder
    assert own.folder.is_relative_to(cache_dir)


def test_nothing_is_ever_written_to_it(team: Artifact, key: Key, spec: Spec, tmp_path: Path) -> None:
    os.utime(team.folder / "record.jsonl", (0, 0))  # a use that would be noted
    os.utime(Path(spec.cpp_files[0]).with_suffix(".h"))  # a record that would be renewed
    before = everything_in(tmp_path / "team")
    store = Store.open()
    assert store.find(key).artifact is not None
    assert store.fetch(key).artifact is not None
    for shared in store.shared_caches():
        assert [isinstance(shared.read(entry), Artifact) for entry in shared.entries()] == [True]
        assert [isinstance(shared.read(entry, thorough=False), Artifact) for entry in shared.entries()] == [True]
    assert everything_in(tmp_path / "team") == before


def test_without_a_cache_that_can_be_written_it_is_loaded_from_where_it_is(
    team: Artifact, key: Key, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", "/proc/kjit-cache")  # not even root can make a folder there
    found = Store.open().fetch(key).artifact
    assert found is not None
    assert found.folder == team.folder
    assert caplog.text == ""


def test_a_folder_that_is_named_twice_is_asked_once_in_its_first_place(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        publish(Store.open(folder), key)
    (tmp_path / "link").symlink_to("second")
    first, second = map(str, folders)
    link = str(tmp_path / "link")
    for named, asked in (
        ([first, second, first], [first, second]),
        ([link, first, second, f"{tmp_path}/first/../second"], [link, first]),
        ([second, link], [second]),
    ):
        monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", ":".join(named))
        caches = Store.open().shared_caches()
        assert [str(cache.root) for cache in caches] == asked
        assert sum(len(list(cache.entries())) for cache in caches) == len(asked)


def test_one_that_is_not_there_is_a_miss_that_says_so(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", str(tmp_path / "unmounted"))
    assert Store.open().find(key).reason == (
        f"it was never built here; in the shared cache {tmp_path / 'unmounted'}: there is no such folder"
    )


def test_a_miss_names_what_differs_from_what_the_team_has(team: Artifact, spec: Spec, tmp_path: Path) -> None:
    del team
    Path(spec.cpp_files[0]).write_text("changed")
    assert f"in the shared cache {tmp_path / 'team'}: csrc/answer.cpp changed" in Store.open().find(key_of(spec)).reason


def test_a_damaged_artifact_of_it_is_not_used(team: Artifact, key: Key) -> None:
    team.library.write_bytes(LIBRARY[:-1] + b"X")
    found = Store.open().fetch(key)
    assert found.artifact is None
    assert "its library was altered" in found.reason


def test_a_build_folder_that_was_named_asks_nobody(team: Artifact, key: Key, tmp_path: Path) -> None:
    del team
    assert Store.open(tmp_path / "here").find(key).artifact is None


class TestTrust:
    @pytest.mark.parametrize("depth", range(1, 6))
    def test_one_with_a_folder_that_others_may_write_to_is_refused_with_the_command_that_fixes_it(
        self, team: Artifact, key: Key, depth: int
    ) -> None:
        folder = [team.folder, *team.folder.parents][depth]
        folder.chmod(0o775)
        with pytest.raises(CacheError, match=rf"shared cache is not used.* '{folder}' may be(.|\n)*chmod -R go-w"):
            Store.open().find(key)

    @pytest.mark.parametrize("name", ["", "answer.so", "record.jsonl"])
    def test_an_artifact_that_others_may_write_to_is_not_used(self, team: Artifact, key: Key, name: str) -> None:
        (team.folder / name).chmod(0o777)
        assert "may be written by users other than its owner" in Store.open().find(key).reason

    @pytest.mark.parametrize("name", ["answer.so", "record.jsonl"])
    def test_a_link_out_of_it_is_not_followed(self, team: Artifact, key: Key, tmp_path: Path, name: str) -> None:
        (team.folder / name).rename(tmp_path / name)
        (team.folder / name).symlink_to(tmp_path / name)
        assert "is a symbolic link" in Store.open().find(key).reason

    def test_a_link_to_the_shared_cache_is_followed(
        self, team: Artifact, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del team
        (tmp_path / "current").symlink_to(tmp_path / "team")
        monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", str(tmp_path / "current"))
        assert Store.open().find(key).artifact is not None

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_it_may_belong_to_another_user_as_a_whole_and_not_in_part(
        self, team: Artifact, key: Key, tmp_path: Path
    ) -> None:
        for path in (tmp_path / "team", *(tmp_path / "team").rglob("*")):
            os.chown(path, 12345, 12345)
        assert Store.open().find(key).artifact is not None
        os.chown(team.library, 54321, 54321)
        found = Store.open().find(key)
        assert found.artifact is None
        assert "belongs to another user (id 54321)" in found.reason


def test_a_module_of_the_team_loads_where_nothing_may_be_compiled(
    spec: Spec, tmp_path: Path, cache_dir: Path, forked: Forks
) -> None:
    miss.ensure_built(Variant(spec, Target.cpu()), build_directory=tmp_path / "team")
    script = (
        "import sys, kjit\nfrom pathlib import Path\n"
        "module = kjit.load_jit('answer', cpp_files=[Path(sys.argv[1])])\nprint(module.answer())"
    )
    environment = {"KJIT_SHARED_CACHE_DIR": str(tmp_path / "team"), "KJIT_NO_COMPILE": "1"}
    done = forked.run(script, spec.cpp_files[0], **environment)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
    assert len(list(Store.open(cache_dir).entries())) == 1
