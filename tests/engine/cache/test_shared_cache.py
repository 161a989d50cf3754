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
from kjit.engine.cache import store as store_module
from kjit.engine.cache.store import Artifact, Store
from kjit.engine.key.key import Key
from kjit.errors import CacheError, UsageError
from kjit.runtime import LAYOUT
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


def test_a_look_up_alone_copies_nothing(team: Artifact, key: Key) -> None:
    del team
    Store.open().find(key)
    assert list(Store.open().entries()) == []


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
        assert [isinstance(shared.summary(entry), dict) for entry in shared.entries()] == [True]
    assert everything_in(tmp_path / "team") == before


def test_without_a_cache_that_can_be_written_it_is_loaded_from_where_it_is(
    team: Artifact, key: Key, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", "/proc/kjit-cache")  # not even root can make a folder there
    found = Store.open().fetch(key).artifact
    assert found is not None
    assert found.folder == team.folder
    assert caplog.text == ""


def test_a_disk_that_is_full_does_not_stop_a_hit(team: Artifact, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module.shutil, "copyfile", fail)
    found = Store.open().fetch(key).artifact
    assert found is not None
    assert found.folder == team.folder


def test_a_limit_that_is_no_size_is_an_error_before_anything_is_copied(
    team: Artifact, key: Key, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del team
    monkeypatch.setenv("KJIT_CACHE_MAX_SIZE", "plenty")
    for _ in range(2):
        with pytest.raises(UsageError, match="KJIT_CACHE_MAX_SIZE is 'plenty'"):
            Store.open().fetch(key)
    assert list(Store.open(cache_dir).entries()) == []


def test_a_copy_that_went_wrong_is_not_loaded(team: Artifact, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(source: Path, target: Path, **_: object) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:-1])

    monkeypatch.setattr(store_module.shutil, "copyfile", half)
    found = Store.open().fetch(key).artifact
    assert found is not None
    assert found.folder == team.folder


def test_several_are_asked_in_their_order(key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(Store.open(tmp_path / "second"), key)
    publish(Store.open(tmp_path / "third"), key)
    folders = [tmp_path / name for name in ("first", "second", "third")]
    monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", ":".join(map(str, folders)))
    assert Store.open().find(key).shared == tmp_path / "second"


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


def test_a_link_to_the_users_own_cache_is_no_shared_one(
    key: Key, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(Store.open(), key)
    (tmp_path / "link").symlink_to(cache_dir)
    monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", f"{tmp_path / 'link'}:{cache_dir}:{cache_dir}/../{cache_dir.name}")
    assert Store.open().shared_caches() == []
    monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "link"))
    monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", str(cache_dir))
    assert Store.open().shared_caches() == []


def test_one_that_is_not_there_is_a_miss_that_says_so(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KJIT_SHARED_CACHE_DIR", str(tmp_path / "unmounted"))
    assert Store.open().find(key).reason == (
        f"it was never built here; in the shared cache {tmp_path / 'unmounted'}: "
        "it cannot be read (No such file or directory)"
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
    @pytest.mark.parametrize("mode", [0o775, 0o757])
    @pytest.mark.parametrize("part", ["", LAYOUT])
    def test_one_that_others_may_write_to_is_refused_with_the_command_that_fixes_it(
        self, team: Artifact, key: Key, tmp_path: Path, mode: int, part: str
    ) -> None:
        del team
        (tmp_path / "team" / part).chmod(mode)
        with pytest.raises(CacheError, match=r"shared cache .* is not used(.|\n)*chmod -R go-w"):
            Store.open().find(key)

    @pytest.mark.parametrize("depth", [0, 1, 2, 3])
    def test_a_folder_in_it_that_others_may_write_to_is_not_used(self, team: Artifact, key: Key, depth: int) -> None:
        folder = [team.folder, *team.folder.parents][depth]
        folder.chmod(0o775)
        found = Store.open().find(key)
        assert found.artifact is None
        assert f"users other than its owner may write to '{folder}'" in found.reason

    @pytest.mark.parametrize("name", ["answer.so", "record.jsonl"])
    def test_a_file_in_it_that_others_may_write_to_is_not_used(self, team: Artifact, key: Key, name: str) -> None:
        (team.folder / name).chmod(0o666)
        assert f"may write to '{team.folder / name}'" in Store.open().find(key).reason

    @pytest.mark.parametrize("name", ["answer.so", "record.jsonl"])
    def test_a_link_out_of_it_is_not_followed(self, team: Artifact, key: Key, tmp_path: Path, name: str) -> None:
        (team.folder / name).rename(tmp_path / name)
        (team.folder / name).symlink_to(tmp_path / name)
        found = Store.open().find(key)
        assert found.artifact is None
        assert f"'{team.folder / name}' is a symbolic link" in found.reason

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
        assert "belongs to another user (id 54321) than the cache (id 12345)" in found.reason

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_that_is_really_read_only_serves(self, team: Artifact, key: Key, tmp_path: Path) -> None:
        del team
        for path in (*(tmp_path / "team").rglob("*"), tmp_path / "team"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            assert Store.open().fetch(key).artifact is not None
        finally:
            for path in (tmp_path / "team", *(tmp_path / "team").rglob("*")):
                path.chmod(0o755)


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
