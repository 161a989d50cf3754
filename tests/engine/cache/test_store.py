"""kjit.engine.cache.store: hits and misses, and the effects of other processes and of accidents on a cache."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from stores import LIBRARY, everything_in, key_of, publish, rewrite

from kjit.engine.cache import limit, locks
from kjit.engine.cache import store as store_module
from kjit.engine.cache.artifact import read_artifact
from kjit.engine.cache.staging import spare_name
from kjit.engine.cache.store import Artifact, Store
from kjit.engine.key.key import Key
from kjit.errors import CacheError
from kjit.runtime import LAYOUT, manifest
from kjit.spec import Spec

WriteOp = Callable[..., Spec]


@pytest.fixture
def spec(tmp_path: Path, answer_op: WriteOp) -> Spec:
    return answer_op(tmp_path / "project")


@pytest.fixture
def key(spec: Spec) -> Key:
    return key_of(spec)


@pytest.fixture
def store(cache_dir: Path) -> Store:
    del cache_dir
    return Store.open()


def reason_for_a_miss(store: Store, key: Key) -> str:
    found = store.find(key)
    assert found.artifact is None
    return found.reason


class TestFind:
    def test_what_was_published_is_found(self, store: Store, key: Key) -> None:
        published = publish(store, key)
        found = store.find(key).artifact
        assert found is not None
        assert found.library == published.library
        assert found.library.read_bytes() == LIBRARY
        assert (found.label, found.target, found.size) == ("answer", "cpu", len(LIBRARY))
        assert found.build["seconds"] == 1.5

    def test_an_artifact_lies_under_target_op_and_both_keys(self, store: Store, key: Key) -> None:
        artifact = publish(store, key)
        parts = artifact.library.relative_to(store.root).parts
        assert parts == (LAYOUT, "cpu", "answer", key.key1, artifact.summary["key2"], "answer.so")
        assert sorted(path.name for path in artifact.folder.iterdir()) == ["answer.so", "record.jsonl"]

    def test_a_miss_names_the_changed_source_of_this_project(
        self, store: Store, key: Key, spec: Spec, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        publish(store, key)
        other = answer_op(tmp_path / "another")
        assert reason_for_a_miss(store, key_of(other)) == "it was never built here"
        Path(spec.cpp_files[0]).write_text("changed")
        assert reason_for_a_miss(store, key_of(spec)) == "csrc/answer.cpp changed"

    def test_a_miss_names_the_changed_header(self, store: Store, key: Key, spec: Spec) -> None:
        publish(store, key)
        Path(spec.cpp_files[0]).with_suffix(".h").write_text("changed")
        assert reason_for_a_miss(store, key) == "csrc/answer.h changed"

    def test_a_touched_header_is_a_hit_that_renews_the_record(
        self, store: Store, key: Key, spec: Spec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifest, "_SETTLING_NS", 0)
        artifact = publish(store, key)
        before = (artifact.folder / "record.jsonl").read_bytes()
        os.utime(Path(spec.cpp_files[0]).with_suffix(".h"))
        assert store.find(key).artifact is not None
        after = (artifact.folder / "record.jsonl").read_bytes()
        assert after != before
        assert store.find(key).artifact is not None
        assert (artifact.folder / "record.jsonl").read_bytes() == after

    def test_modules_that_read_the_same_headers_share_what_was_parsed_and_each_notices_an_edit(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifest, "_SETTLING_NS", 0)  # as hours later: dates are trusted
        specs = [answer_op(tmp_path / "project", "answer", 42, argument) for argument in ("one", "two")]
        keys = [key_of(spec) for spec in specs]
        for key in keys:
            publish(store, key)
        header = Path(specs[0].cpp_files[0]).with_suffix(".h")
        found = [read_artifact(publish(store, key).path) for key in keys]
        assert all(isinstance(each, Artifact) for each in found)
        assert found[0].reads is found[1].reads  # type: ignore[union-attr]
        for text, is_hit in (("#define ANSWER 42\n", True), ("#define ANSWER 43\n", False)) * 2:
            header.write_text(text)
            assert [store.find(key).artifact is not None for key in keys] == [is_hit, is_hit]

    @pytest.mark.parametrize("position", [65_536, 199_999])
    def test_a_long_library_is_checked_to_its_last_byte(self, store: Store, key: Key, position: int) -> None:
        content = bytes(range(250)) * 800
        library = publish(store, key, content).library
        assert store.find(key).artifact is not None
        library.write_bytes(content[:position] + b"\xff" + content[position + 1 :])
        assert reason_for_a_miss(store, key) == "the artifact in the cache is damaged: its library was altered"

    def test_a_hit_takes_no_lock(self, store: Store, key: Key) -> None:
        publish(store, key)
        with store.lock(key):
            assert store.find(key).artifact is not None

    def test_a_hit_after_days_is_noted_as_a_use(self, store: Store, key: Key) -> None:
        record = publish(store, key).folder / "record.jsonl"
        os.utime(record, (0, 0))
        store.find(key)
        assert record.stat().st_mtime > time.time() - 3600


def truncate(artifact: Artifact) -> None:
    artifact.library.write_bytes(LIBRARY[:-1])


def flip(artifact: Artifact) -> None:
    artifact.library.write_bytes(LIBRARY[:-1] + b"X")


def remove_library(artifact: Artifact) -> None:
    artifact.library.unlink()


def remove_record(artifact: Artifact) -> None:
    (artifact.folder / "record.jsonl").unlink()


def half_record(artifact: Artifact) -> None:
    text = (artifact.folder / "record.jsonl").read_text()
    (artifact.folder / "record.jsonl").write_text(text[: len(text) // 2])


def other_json(artifact: Artifact) -> None:
    (artifact.folder / "record.jsonl").write_text("[]")


def foreign_record(artifact: Artifact) -> None:
    rewrite(artifact, 0, "key1", value="0" * 32)


def record_without_headers(artifact: Artifact) -> None:
    rewrite(artifact, 1, "headers", value={})


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip,
        remove_library,
        remove_record,
        half_record,
        other_json,
        foreign_record,
        record_without_headers,
    ],
)
def test_a_damaged_artifact_is_not_found_says_why_and_is_replaced_by_the_next_build(
    store: Store, key: Key, damage: Callable[[Artifact], None]
) -> None:
    damage(publish(store, key))
    assert reason_for_a_miss(store, key).startswith("the artifact in the cache is damaged: ")
    publish(store, key)
    found = store.find(key).artifact
    assert found is not None
    assert found.library.read_bytes() == LIBRARY
    store.sweep()
    assert list((store.root / LAYOUT / "staging").iterdir()) == []


class TestFolders:
    def test_folders_that_kjit_makes_are_for_the_user_alone(self, tmp_path: Path, key: Key) -> None:
        before = os.umask(0)
        try:
            publish(Store.open(tmp_path / "above" / "cache"), key)
        finally:
            os.umask(before)
        for folder in (tmp_path / "above" / "cache", *(tmp_path / "above" / "cache").rglob("*")):
            if folder.is_dir():
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
    @pytest.mark.parametrize("inner", ["", LAYOUT])
    def test_a_cache_that_others_may_write_to_is_refused_with_the_command_that_fixes_it(
        self, tmp_path: Path, mode: int, inner: str
    ) -> None:
        (tmp_path / "cache" / LAYOUT).mkdir(parents=True, mode=0o700)
        (tmp_path / "cache" / "inline").mkdir(mode=0o700)
        (tmp_path / "cache").chmod(0o700)
        (tmp_path / "cache" / inner).chmod(mode)
        with pytest.raises(CacheError, match=rf"may be written by users(.|\n)*chmod -R go-w {tmp_path / 'cache'}`"):
            Store.open(tmp_path / "cache")

    @pytest.mark.parametrize("kind", ["with other files", "for everybody"])
    def test_a_folder_with_another_purpose_is_not_to_be_changed_or_removed(self, tmp_path: Path, kind: str) -> None:
        folder = tmp_path / "scratch"
        (folder / LAYOUT).mkdir(parents=True)
        if kind == "with other files":
            (folder / "notes.txt").touch()
        folder.chmod(0o1777 if kind == "for everybody" else 0o777)
        with pytest.raises(CacheError, match="may be written by users other than its owner") as caught:
            Store.open(folder)
        assert caught.value.hint == "set KJIT_CACHE_DIR to a folder of your own"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_a_cache_of_another_user_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir(mode=0o700)
        os.chown(tmp_path / "cache", 12345, 12345)
        with pytest.raises(CacheError, match=r"another user \(id 12345\)(.|\n)*KJIT_CACHE_DIR"):
            Store.open(tmp_path / "cache")

    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_a_folder_above_an_artifact_that_others_may_write_to_is_refused_with_the_command_that_fixes_the_cache(
        self, store: Store, key: Key, depth: int
    ) -> None:
        folder = [publish(store, key).folder, *publish(store, key).folder.parents][depth]
        folder.chmod(0o777)
        with pytest.raises(CacheError, match="may be written by users other than its owner") as caught:
            store.find(key)
        assert f"'{folder}'" in caught.value.message
        assert f"`chmod -R go-w {store.root}`, or `rm -r {store.root}`" in (caught.value.hint or "")

    @pytest.mark.parametrize(("name", "part"), [("", "folder"), ("record.jsonl", "record"), ("answer.so", "library")])
    def test_an_artifact_that_others_may_write_to_is_not_loaded_and_replaced_by_the_next_build(
        self, store: Store, key: Key, name: str, part: str
    ) -> None:
        artifact = publish(store, key)
        (artifact.folder / name).chmod(0o777)
        assert reason_for_a_miss(store, key) == (
            f"the artifact in the cache is not trusted: its {part} may be written by users other than its owner"
        )
        publish(store, key)
        assert store.find(key).artifact is not None
        assert not any(path.stat().st_mode & 0o022 for path in (artifact.folder, *artifact.folder.iterdir()))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    @pytest.mark.parametrize(("name", "part"), [("", "folder"), ("record.jsonl", "record"), ("answer.so", "library")])
    def test_an_artifact_of_another_user_is_not_loaded_and_replaced_by_the_next_build(
        self, store: Store, key: Key, name: str, part: str
    ) -> None:
        artifact = publish(store, key)
        os.chown(artifact.folder / name, 12345, 12345)
        assert reason_for_a_miss(store, key) == (
            f"the artifact in the cache is not trusted: its {part} belongs to another user (id 12345)"
        )
        publish(store, key)
        assert store.find(key).artifact is not None

    def test_what_a_umask_lets_a_group_write_is_not_writable_in_the_cache(self, store: Store, key: Key) -> None:
        before = os.umask(0o002)
        try:
            folder = publish(store, key).folder
        finally:
            os.umask(before)
        assert {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {
            "answer.so": "0o644",
            "record.jsonl": "0o644",
        }
        assert store.find(key).artifact is not None

    def test_a_cache_of_root_is_used_by_others_who_cannot_write_to_it(
        self, store: Store, key: Key, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if os.geteuid() != 0:
            pytest.skip("the files of this test are not root's")
        publish(store, key)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert Store.open(store.root).find(key).artifact is not None

    def test_a_cache_folder_that_is_a_link_is_used(self, tmp_path: Path, key: Key) -> None:
        (tmp_path / "real").mkdir(mode=0o700)
        (tmp_path / "cache").symlink_to(tmp_path / "real")
        publish(Store.open(tmp_path / "cache"), key)
        assert Store.open(tmp_path / "cache").find(key).artifact is not None

    def test_a_link_inside_the_cache_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir(mode=0o700)
        (tmp_path / "cache" / LAYOUT).symlink_to(tmp_path)
        with pytest.raises(CacheError, match="is a symbolic link"):
            Store.open(tmp_path / "cache")

    def test_a_file_in_the_place_of_the_cache_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("mine")
        with pytest.raises(CacheError, match="there is a file in its place"):
            Store.open(tmp_path / "cache").writable()
        assert (tmp_path / "cache").read_text() == "mine"


class TestWithoutAWritableCache:
    # Not even root can make a folder there.
    UNWRITABLE = Path("/proc/kjit-cache")

    def test_a_private_temporary_cache_is_used_and_one_line_says_so(
        self, key: Key, caplog: pytest.LogCaptureFixture
    ) -> None:
        store_module._temporary_store.cache_clear()
        store = Store.open(self.UNWRITABLE)
        publish(store, key)
        publish(store, key)
        temporary = store.writable()
        assert temporary.find(key).artifact is not None
        assert stat.S_IMODE(temporary.root.stat().st_mode) == 0o700
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "the cache /proc/kjit-cache cannot be written" in caplog.text

    def test_it_is_removed_when_the_process_ends(self) -> None:
        script = f"""
from pathlib import Path
from kjit.engine.cache.store import Store
print(Store.open(Path({str(self.UNWRITABLE)!r})).writable().root)
"""
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        assert done.stdout.startswith("/")
        assert not Path(done.stdout.strip()).exists()

    def test_a_full_disk_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Path, "mkdir", raise_disk_full)
        with pytest.raises(CacheError, match="No space is left on the disk"):
            Store.open(tmp_path / "cache").writable()


def raise_disk_full(*_args: object, **_kwargs: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["replace", "rename"])
def test_a_disk_that_fills_up_during_a_publication_leaves_nothing(
    store: Store, key: Key, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(os, step, raise_disk_full)
    with pytest.raises(CacheError, match="No space is left on the disk"):
        publish(store, key)
    monkeypatch.undo()
    assert list(store.entries()) == []
    assert list((store.root / LAYOUT / "staging").iterdir()) == []


class TestLock:
    def test_other_keys_do_not_wait(self, store: Store, key: Key, tmp_path: Path, answer_op: WriteOp) -> None:
        other = key_of(answer_op(tmp_path / "project", "other"))
        with store.writable().lock(key), store.lock(other):
            pass

    def test_a_killed_holder_leaves_no_lock(self, store: Store, key: Key) -> None:
        store.writable()
        path = store.root / LAYOUT / "locks" / f"{key.key1}.lock"
        script = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
        process = subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            waiter = threading.Thread(target=lambda: store.lock(key).__enter__())
            waiter.start()
            process.kill()
            waiter.join(30)
            assert not waiter.is_alive()

    def test_a_long_wait_is_logged_with_who_holds_the_lock(
        self, store: Store, key: Key, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(locks, "_PATIENCE_S", 0.0)
        store.writable()
        logged = threading.Event()

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                del record
                logged.set()

        handler = Handler()
        logging.getLogger("kjit").addHandler(handler)

        def wait() -> None:
            with store.lock(key):
                pass

        waiter = threading.Thread(target=wait)
        try:
            with store.lock(key):
                waiter.start()
                assert logged.wait(30)
            waiter.join(30)
        finally:
            logging.getLogger("kjit").removeHandler(handler)
        assert f"waiting for process {os.getpid()} on {os.uname().nodename}, which builds answer cpu" in caplog.text

    def test_a_wait_can_be_cancelled(self, store: Store, key: Key) -> None:
        cancel = threading.Event()
        cancel.set()
        with store.writable().lock(key), pytest.raises(CancelledError), store.lock(key, cancel):
            pass

    def test_a_lock_whose_file_was_removed_is_no_lock(self, store: Store, key: Key) -> None:
        path = store.writable().root / LAYOUT / "locks" / f"{key.key1}.lock"
        entered = threading.Event()

        def wait() -> None:
            with store.lock(key):
                entered.set()

        with store.lock(key):
            path.unlink()
            # A third process comes now and makes a new file; the waiter must wait for that one.
            waiter = threading.Thread(target=wait)
            with store.lock(key):
                waiter.start()
        waiter.join(30)
        assert entered.is_set()


class TestEntries:
    def test_every_artifact_is_an_entry(self, store: Store, key: Key, tmp_path: Path, answer_op: WriteOp) -> None:
        publish(store, key)
        publish(store, key_of(answer_op(tmp_path / "project", "other")))
        assert [(entry.op, entry.target) for entry in store.entries()] == [("answer", "cpu"), ("other", "cpu")]

    def test_a_healthy_entry_reads_as_its_artifact_and_a_damaged_one_as_the_damage(
        self, store: Store, key: Key
    ) -> None:
        artifact = publish(store, key)
        (entry,) = store.entries()
        assert isinstance(store.read(entry), Artifact)
        flip(artifact)
        assert store.read(entry) == "the artifact in the cache is damaged: its library was altered"

    def test_reading_an_entry_compares_the_cryptographic_hash_too(self, store: Store, key: Key) -> None:
        artifact = publish(store, key)
        rewrite(artifact, 0, "digest", value="0" * 32)
        (entry,) = store.entries()
        assert store.find(key).artifact is not None
        assert store.read(entry) == "the artifact in the cache is damaged: its library was altered"

    def test_a_removed_entry_leaves_no_folder_and_no_lock(self, store: Store, key: Key) -> None:
        artifact = publish(store, key)
        (entry,) = store.entries()
        assert store.remove(entry) == entry.size
        assert not (store.root / LAYOUT / "cpu").exists()
        assert list((store.root / LAYOUT / "locks").iterdir()) == []
        assert store.find(key).artifact is None
        assert not artifact.folder.exists()

    def test_what_kjit_did_not_make_stays(self, store: Store, key: Key) -> None:
        artifact = publish(store, key)
        (artifact.folder / "notes.txt").write_text("mine")
        for entry in store.entries():
            store.remove(entry)
        assert [path.name for path in artifact.folder.iterdir()] == ["notes.txt"]

    def test_links_are_not_followed(self, store: Store, key: Key, tmp_path: Path) -> None:
        publish(store, key)
        elsewhere = tmp_path / "elsewhere"
        (store.root / LAYOUT / "cpu" / "answer").rename(elsewhere)
        (store.root / LAYOUT / "cpu" / "answer").symlink_to(elsewhere)
        assert list(store.entries()) == []

    def test_what_is_no_artifact_can_be_removed(self, store: Store) -> None:
        folder = store.writable().root / LAYOUT / "support" / ("0" * 32)
        folder.mkdir(parents=True)
        (folder / "kjit_host.o").write_text("12345")
        store.write_texts("more", {"more.cpp": b"123"})
        before = store.support_size()
        assert store.remove_rest() == before + 3
        assert before >= 5
        assert (store.support_size(), store.texts_size(), store.remove_rest()) == (0, 0, 0)


class TestLinks:
    """Somebody, or a restored backup, put links into the cache that lead out of it."""

    @pytest.fixture
    def outside(self, store: Store, key: Key, tmp_path: Path) -> Path:
        """A folder that looks like every part of a cache, and which kjit did not make."""
        publish(store, key)
        outside = tmp_path / "outside"
        shutil.copytree(store.root / LAYOUT / "cpu", outside)
        for name in ("locks", "staging", "support", "plain"):
            (outside / name).mkdir()
        (outside / "locks" / f"{key.key1}.lock").write_text("mine")
        (outside / "plain" / "mine.txt").write_text("mine")
        spare_name(outside / "staging").mkdir()
        (outside / "support" / ("0" * 32)).mkdir()
        (outside / "support" / ("0" * 32) / "kjit_host.o").write_text("mine")
        return outside

    def link(self, store: Store, inner: str, target: Path) -> None:
        path = store.root / LAYOUT / inner
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    @pytest.mark.parametrize("depth", range(4))
    def test_a_folder_that_is_a_link_is_neither_listed_nor_removed(
        self, store: Store, key: Key, outside: Path, depth: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (artifact,) = store.entries()
        parts = artifact.key.split("/")
        added = publish(store, key)
        self.link(store, "/".join(parts[: depth + 1]), outside.joinpath(*parts[1 : depth + 1]))
        before = everything_in(outside)
        assert list(store.entries()) == []
        monkeypatch.setenv("KJIT_CACHE_MAX_SIZE", "1")
        monkeypatch.setattr(limit, "_SPARED_S", -3600.0)
        limit.make_room(store, added)
        store.remove_rest()
        store.sweep()
        assert everything_in(outside) == before

    @pytest.mark.parametrize("depth", range(1, 4))
    def test_nothing_is_loaded_through_a_link(self, store: Store, key: Key, outside: Path, depth: int) -> None:
        inner = ("cpu", "answer", key.key1)[:depth]
        self.link(store, "/".join(inner), outside.joinpath(*inner[1:]))
        (record,) = outside.rglob("record.jsonl")
        os.utime(record, (0, 0))
        before = everything_in(outside)
        with pytest.raises(CacheError, match=f"'{store.root.joinpath(LAYOUT, *inner)}' is a symbolic link"):
            store.find(key)
        assert everything_in(outside) == before

    def test_an_artifact_that_is_a_link_is_not_trusted(self, store: Store, key: Key, outside: Path) -> None:
        folder = publish(store, key).folder
        self.link(store, str(folder.relative_to(store.root / LAYOUT)), outside / "answer" / key.key1 / folder.name)
        assert reason_for_a_miss(store, key) == (
            "the artifact in the cache is not trusted: its folder is a symbolic link"
        )

    @pytest.mark.parametrize("inner", ["staging", "locks", "cpu"])
    def test_nothing_is_built_or_published_through_a_link(
        self, store: Store, key: Key, outside: Path, inner: str
    ) -> None:
        self.link(store, inner, outside / "plain")
        before = everything_in(outside)
        with pytest.raises(CacheError, match="is a symbolic link"):
            publish(store, key, b"another")
        assert everything_in(outside) == before

    def test_a_library_that_is_a_link_is_damaged(self, store: Store, key: Key, tmp_path: Path) -> None:
        artifact = publish(store, key)
        artifact.library.rename(tmp_path / "moved.so")
        artifact.library.symlink_to(tmp_path / "moved.so")
        assert reason_for_a_miss(store, key) == "the artifact in the cache is damaged: its library is a symbolic link"
