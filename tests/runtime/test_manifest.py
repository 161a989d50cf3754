"""kjit.runtime.manifest: a module is found without the compiling side as long as nothing has changed.

One module is compiled. Each test has copies of its project and of its cache, of which the key finds the artifact.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kjit
from kjit.engine import miss
from kjit.engine.cache import toolchains
from kjit.engine.cache.artifact import read_artifact, write_record
from kjit.engine.cache.store import Store
from kjit.engine.key import headers
from kjit.engine.key.key import Key
from kjit.engine.toolchain.toolchain import Toolchain, _discover
from kjit.runtime import LAYOUT, load, manifest
from kjit.spec import Spec, Target, Variant

pytestmark = pytest.mark.usefixtures("records")

CPU = Target.cpu()
SOURCE = """#include "answer.h"
#include <tvm/ffi/c_api.h>
#if __has_include("../more/extra.h")
#include "../more/extra.h"
#endif
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {
  r->type_index = kTVMFFIInt;
  r->v_int64 = ANSWER;
  return 0;
}
"""


class Op:
    """A module that answers what its header says, in a project and a cache of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cache = home / "cache"
        self.project = home / "project"
        self.source = self.project / "csrc" / "answer.cpp"
        self.header = self.project / "inc" / "answer.h"

    def write(self) -> None:
        for folder in (self.source.parent, self.header.parent, self.cache):
            folder.mkdir(parents=True, mode=0o700)
        (self.project / "pyproject.toml").touch()
        self.source.write_text(SOURCE)
        self.header.write_text("#define ANSWER 42\n")

    @property
    def variant(self) -> Variant:
        return Variant(Spec("answer", cpp_files=[self.source], extra_include_paths=[self.header.parent]), CPU)

    def find(self) -> str | None:
        """The artifact that is found by the times of all files."""
        return manifest.find(self.variant, str(self.cache))

    def derive(self) -> str:
        """The artifact that the key finds."""
        artifact = Store.open(self.cache).find(Key.of(self.variant, Toolchain.for_target(CPU))).artifact
        assert artifact is not None
        return artifact.path

    def load(self) -> int:
        answer: int = load.load_variant(self.variant, build_directory=self.cache).answer()
        return answer

    @property
    def toolchain(self) -> Path:
        """The file about its toolchain."""
        (file,) = (self.cache / LAYOUT / manifest.TOOLCHAINS).iterdir()
        return file


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Op:
    folder = tmp_path_factory.mktemp("manifest")
    op = Op(folder / "home")
    op.write()
    assert op.load() == 42
    shutil.copytree(op.home, folder / "built")
    return op


@pytest.fixture
def unrecorded(built: Op, monkeypatch: pytest.MonkeyPatch) -> Op:
    """The op as it was built, whose dates count as old: only the kernel sets those."""
    if Toolchain.for_target(CPU).cxx.may_change:
        pytest.skip("the C++ compiler is a script that may run another one the next time: nothing is recalled")
    _discover.cache_clear()  # an earlier test may have found it with a cache that has gone since
    monkeypatch.setattr(manifest, "_SETTLING_NS", 0)
    monkeypatch.setattr(toolchains, "_is_own_code_known", lambda: True)  # who edits kjit runs its tests at once
    shutil.rmtree(built.home)
    shutil.copytree(built.home.with_name("built"), built.home)
    op = Op(built.home)
    shutil.rmtree(op.cache / LAYOUT / manifest.TOOLCHAINS, ignore_errors=True)
    op.derive()  # renews the dates of headers in the artifact's record
    assert op.find() is None
    return op


@pytest.fixture
def op(unrecorded: Op) -> Op:
    """The op as another process finds it that comes later."""
    miss.ensure_built(unrecorded.variant, build_directory=unrecorded.cache)
    assert unrecorded.find() == unrecorded.derive()
    return unrecorded


def edit(path: Path, old: str, new: str) -> None:
    """Change a file to one of the same size and date, in place."""
    status = path.stat()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


class TestWhatIsFound:
    def test_the_module_is_loaded_without_its_key(self, op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Key, "of", None)
        assert op.load() == 42

    def test_a_source_with_another_date_is_the_same(self, op: Op) -> None:
        os.utime(op.source)
        assert op.find() == op.derive()

    def test_the_log_says_where_it_is(self, op: Op, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG, "kjit"):
            op.load()
        assert f"answer cpu is in the cache: {op.derive()}" in caplog.text

    def test_it_counts_as_a_use(self, op: Op) -> None:
        record = Path(op.derive(), "record.jsonl")
        os.utime(record, (time.time() - 7200, time.time() - 7200))
        assert op.find() is not None
        assert time.time() - record.stat().st_mtime < 60

    @pytest.mark.parametrize("content", [None, b"garbage"])
    def test_one_that_is_broken_beside_it_changes_nothing(self, op: Op, content: bytes | None) -> None:
        found = op.derive()
        for name in ("0" * 32, "f" * 32):  # before and after it, in whatever order they are listed
            broken = Path(found).with_name(name)
            broken.mkdir(mode=0o700)
            if content is not None:
                (broken / manifest.RECORD).write_bytes(content)
        assert op.find() == found

    def test_a_clock_that_was_set_back_changes_nothing(self, op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: 1)
        assert op.find() == op.derive()


class TestWhatTurnsItAway:
    """Each change is no answer. What the key answers then, is in build/test_hits_and_misses.py."""

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda op: edit(op.source, "ANSWER;", "AnSWER;"), id="source edited"),
            pytest.param(lambda op: op.source.unlink(), id="source gone"),
            pytest.param(lambda op: edit(op.header, "42", "43"), id="header edited"),
            pytest.param(lambda op: op.header.write_text("#define ANSWER 421\n"), id="header grown"),
            pytest.param(lambda op: op.header.unlink(), id="header gone"),
            pytest.param(lambda op: (op.source.parent / "answer.h").write_text(""), id="header before another"),
            pytest.param(lambda op: (op.header.parent / "new.txt").touch(), id="file in a watched folder"),
            pytest.param(lambda op: shutil.rmtree(op.header.parent), id="folder of headers gone"),
            pytest.param(
                lambda op: ((op.project / "more").mkdir(), (op.project / "more" / "extra.h").touch()),
                id="file that __has_include asks for",
            ),
            pytest.param(lambda op: Path(op.derive(), "record.jsonl").unlink(), id="record of the artifact gone"),
            pytest.param(lambda op: Path(op.derive(), "answer.so").unlink(), id="library gone"),
            pytest.param(lambda op: flip(Path(op.derive(), "answer.so"), 4000), id="library altered"),
            pytest.param(lambda op: os.truncate(Path(op.derive(), "answer.so"), 4000), id="library cut"),
            pytest.param(lambda op: shutil.rmtree(op.cache / LAYOUT / "cpu"), id="artifacts gone"),
            pytest.param(lambda op: shutil.rmtree(op.cache), id="cache gone"),
        ],
    )
    def test_a_file_that_is_not_as_it_was(self, op: Op, change: Callable[[Op], object]) -> None:
        change(op)
        assert op.find() is None

    def test_a_header_that_was_touched_is_recalled_again_once_the_key_was_derived(self, op: Op) -> None:
        os.utime(op.header)
        assert op.find() is None
        miss.ensure_built(op.variant, build_directory=op.cache)
        assert op.find() == op.derive()

    @pytest.mark.parametrize("name", manifest.variables("cpu"))
    def test_a_variable_with_another_value(self, op: Op, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, f"{os.environ.get(name, '')}:/another".removeprefix(":"))
        assert op.find() is None

    def test_words_are_not_mistaken_for_each_other(self) -> None:
        specs = [
            Spec("a", cpp_files=["/x"]),
            Spec("a", cpp_files=["/x"], extra_cflags=["c"]),
            Spec("a", cpp_files=["/x"], extra_ldflags=["c"]),
            Spec("a", "b", "c", cpp_files=["/x"]),
            Spec("a", "b", cpp_files=["/x"], extra_cflags=["c"]),
            Spec("a", cpp_files=["/x"], extra_cflags=["b", "c"]),
            Spec("a", cpp_files=["/x"], extra_cflags=["b"], extra_ldflags=["c"]),
            Spec("a", cpp_files=["/x"], extra_include_paths=["/b"]),
            Spec("a", cuda_files=["/x"]),
            Spec("a", cpp_files=["/x"], cpp_wrappers=[("a", "f")]),
            Spec("a", cpp_files=["/x"], cpp_wrappers=[("b", "f")]),
        ]
        digests = {manifest.module_digest(spec, "cpu", []) for spec in specs}
        assert len(digests) == len(specs)
        cuda = Spec("a", cuda_files=["/x"])
        assert manifest.module_digest(cuda, "cuda:8.0", []) != manifest.module_digest(cuda, "cuda:9.0a", [])

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("code_states", [("engine/key/key.py", 1, 2, 3)]),
            ("cpu_identity", "another CPU"),
            ("tvm_ffi_version", "99"),
            ("tvm_ffi_home", "/elsewhere"),
            ("tvm_ffi_home", None),
        ],
    )
    def test_another_kjit_cpu_or_tvm_ffi(
        self, op: Op, name: str, value: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifest, name, lambda *_: value)
        manifest._here.cache_clear()
        try:
            assert op.find() is None
        finally:
            monkeypatch.undo()
            manifest._here.cache_clear()

    def test_a_compiler_that_comes_first_on_path_now(
        self, unrecorded: Op, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "bin").mkdir()
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        miss.ensure_built(unrecorded.variant, build_directory=unrecorded.cache)
        assert unrecorded.find() is not None
        compiler = tmp_path / "bin" / "c++"
        compiler.write_text("#!/bin/sh\n")
        assert unrecorded.find() is not None  # no program yet
        compiler.chmod(0o755)
        assert unrecorded.find() is None

    def test_a_link_to_another_compiler(self, unrecorded: Op, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        gxx = shutil.which("g++")
        assert gxx is not None
        other = shutil.copy2(os.path.realpath(gxx), tmp_path / "other")
        link = tmp_path / "g++"
        link.symlink_to(gxx)
        monkeypatch.setenv("CXX", str(link))
        miss.ensure_built(unrecorded.variant, build_directory=unrecorded.cache)
        assert unrecorded.find() is not None
        link.unlink()
        link.symlink_to(other)
        assert unrecorded.find() is None


class TestWhoMayChangeIt:
    @staticmethod
    def parts(op: Op) -> list[Path]:
        artifact = Path(op.derive())
        inside = [artifact, artifact / "record.jsonl", artifact / "answer.so", *artifact.parents[:5]]
        return [*inside, op.toolchain, op.toolchain.parent]

    @pytest.mark.parametrize("index", range(10))
    def test_what_others_may_write_to_is_not_loaded(self, op: Op, index: int) -> None:
        part = self.parts(op)[index]
        for right in (0o020, 0o002):
            part.chmod(0o700 | right)
            assert op.find() is None

    @pytest.mark.parametrize("index", range(10))
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another user")
    def test_what_belongs_to_another_user_is_not_loaded(self, op: Op, index: int) -> None:
        os.chown(self.parts(op)[index], 54321, -1)
        assert op.find() is None

    @pytest.mark.parametrize("index", [0, 1, 2, 3, 4, 5, 6, 8, 9])
    def test_links_inside_of_the_cache_are_not_followed(self, op: Op, index: int) -> None:
        part = self.parts(op)[index]
        elsewhere = op.home / "elsewhere"
        part.rename(elsewhere)
        part.symlink_to(elsewhere)
        assert op.find() is None

    def test_the_error_of_an_open_cache_is_said(self, op: Op) -> None:
        op.cache.chmod(0o777)
        with pytest.raises(kjit.CacheError, match="may be written by users other than its owner"):
            op.load()


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1
    path.write_bytes(content)


class TestRecords:
    @pytest.mark.parametrize("change", [0, 8, 100, -1, b"", b"00000000", b"x" * 500])
    def test_one_that_was_altered_is_none(self, op: Op, change: int | bytes) -> None:
        flip(op.toolchain, change) if isinstance(change, int) else op.toolchain.write_bytes(change)
        assert op.find() is None
        assert op.load() == 42
        assert op.find() == op.derive()

    def test_one_of_another_question_or_form_is_none(self, op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
        name, content = op.toolchain.name, op.toolchain.read_bytes()
        assert manifest.unsealed(content, name) is not None
        assert manifest.unsealed(content, "0" * 32) is None
        monkeypatch.setattr(manifest, "FORMAT", manifest.FORMAT + 1)
        assert manifest.unsealed(content, name) is None
        assert op.find() is None

    def test_the_same_one_is_not_written_again(self, op: Op) -> None:
        before = op.toolchain.stat()
        miss.ensure_built(op.variant, build_directory=op.cache)
        assert op.toolchain.stat() == before

    def test_it_has_no_date_of_a_header_if_the_date_is_too_recent(
        self, unrecorded: Op, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As on a disk whose dates are whole seconds: the content is compared each time.
        monkeypatch.setattr(manifest, "trusted_ctime", lambda _: manifest.YOUNG)
        monkeypatch.setattr(headers, "trusted_ctime", lambda _: manifest.YOUNG)
        artifact = Path(unrecorded.derive())
        summary, compared, reports = read_artifact(str(artifact)).lines  # type: ignore[union-attr]
        reads: Any = json.loads(compared)
        reads["headers"][3] = [manifest.YOUNG] * len(reads["headers"][3])
        write_record(artifact, (summary, json.dumps(reads).encode(), reports))
        miss.ensure_built(unrecorded.variant, build_directory=unrecorded.cache)
        assert unrecorded.find() is not None
        os.utime(unrecorded.header)
        assert unrecorded.find() is not None
        edit(unrecorded.header, "42", "43")
        assert unrecorded.find() is None

    def test_none_serves_that_was_written_while_a_watched_folder_was_too_young(
        self, unrecorded: Op, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (unrecorded.header.parent / "new.txt").touch()
        monkeypatch.setattr(time, "time_ns", lambda: 1)
        miss.ensure_built(unrecorded.variant, build_directory=unrecorded.cache)
        monkeypatch.undo()
        assert unrecorded.find() is None

    def test_there_is_none_for_a_script_that_may_run_another_compiler(
        self, unrecorded: Op, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = tmp_path / "cxx"
        script.write_text('#!/bin/sh\nexec c++ $MORE "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        assert unrecorded.load() == 42
        assert not (unrecorded.cache / LAYOUT / manifest.TOOLCHAINS).exists()

    def test_a_script_that_passes_on_its_arguments_is_compared_with_what_it_starts(
        self, unrecorded: Op, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "cxx").write_text('#!/bin/sh\nexec c++ "$@"\n')
        for each in folder.iterdir():
            each.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CXX", str(folder / "cxx"))
        assert unrecorded.load() == 42
        assert unrecorded.find() is not None
        monkeypatch.setenv("BASH_ENV", str(folder / "cxx"))
        assert unrecorded.find() is None
        monkeypatch.delenv("BASH_ENV")
        for changed in folder.iterdir():
            before = changed.stat()
            os.utime(changed, (1, 1))
            assert unrecorded.find() is None
            os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert unrecorded.find() is not None

    def test_there_is_none_where_kjit_itself_has_changed(self, unrecorded: Op, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolchains, "_is_own_code_known", lambda: False)
        miss.ensure_built(unrecorded.variant, build_directory=unrecorded.cache)
        assert not (unrecorded.cache / LAYOUT / manifest.TOOLCHAINS).exists()

    def test_own_code_is_known_that_is_older_than_the_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        is_known = toolchains._is_own_code_known.__wrapped__
        newest = max(ctime_ns for *_, ctime_ns in manifest.code_states())
        for started_ns, known in ((newest, False), (newest + 1_000_000_000, False), (newest + 3_000_000_000, True)):
            monkeypatch.setattr(toolchains, "STARTED_NS", started_ns)
            assert is_known() == known

    def test_a_cache_that_cannot_be_written_goes_without(
        self, unrecorded: Op, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(folder: Path) -> None:
            raise PermissionError(13, "Read-only file system", str(folder))

        monkeypatch.setattr(toolchains, "make_private", refuse)
        with caplog.at_level(logging.DEBUG, "kjit"):
            assert unrecorded.load() == 42
        assert "the toolchain for cpu is not kept" in caplog.text
        assert not (unrecorded.cache / LAYOUT / manifest.TOOLCHAINS).exists()

    def test_there_are_not_more_than_some_hundreds(self, op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = op.toolchain.parent
        monkeypatch.setattr(toolchains, "MOST_KEPT", 8)
        for number in range(8):
            (folder / f"{number:032x}").touch()
            os.utime(folder / f"{number:032x}", (number, number))
        toolchains._write(str(op.cache), "f" * 32, b"new")
        left = sorted(path.name for path in folder.iterdir())
        assert "f" * 32 in left and f"{0:032x}" not in left
        assert len(left) <= 8


def traced(target: str, source: Path, include: Path) -> dict[str, Any]:
    """A new process's questions to the disk and the environment while it derives a key, and those that it records."""
    script = f"""
    import builtins, json, os, sys
    from kjit.engine import miss
    from kjit.engine.key.key import Key
    from kjit.engine.toolchain.toolchain import Toolchain, _discover
    from kjit.runtime import manifest
    from kjit.spec import Spec, Target, Variant
    target = {{"cpu": Target.cpu(), "sim": Target.sim(), "cuda": Target.cuda("9.0a")}}[{target!r}]
    files = {{"cpp_files" if target.side == "cpu" else "cuda_files": [{str(source)!r}]}}
    variant = Variant(Spec("answer", extra_include_paths=[{str(include)!r}], **files), target)
    asked, named = set(), set()

    def trace(module, name):
        function = getattr(module, name)
        def call(path=".", *args, **kwargs):
            if isinstance(path, (str, bytes, os.PathLike)):
                asked.add(os.path.abspath(os.fsdecode(path)))
            return function(path, *args, **kwargs)
        setattr(module, name, call)

    get = os._Environ.__getitem__
    def get_and_note(self, name):
        named.add(os.fsdecode(name))
        return get(self, name)
    for name in ("stat", "access", "listdir", "scandir", "open", "readlink"):
        trace(os, name)
    trace(builtins, "open")
    os._Environ.__getitem__ = get_and_note
    toolchain = Toolchain.for_target(variant.target)
    Key.of(variant, toolchain)
    os._Environ.__getitem__ = get
    noted = [probe[1] for probe in toolchain.probes()]
    print(json.dumps({{"asked": sorted(asked), "named": sorted(named), "noted": noted,
                       "variables": manifest.variables(target.kind)}}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def compilers_are_known() -> Iterator[None]:
    """The memo has them, so that nothing is asked of a compiler."""
    for target in (CPU, Target.sim(), Target.cuda("9.0a")):
        try:
            Toolchain.for_target(target)
        except kjit.ToolchainError:
            continue
    yield


@pytest.mark.usefixtures("compilers_are_known")
@pytest.mark.parametrize(
    "target", ["cpu", pytest.param("sim", marks=pytest.mark.nvcc), pytest.param("cuda", marks=pytest.mark.nvcc)]
)
def test_a_record_asks_all_that_a_key_is_derived_from(target: str, tmp_path: Path) -> None:
    op = Op(tmp_path)
    op.write()
    found = traced(target, op.source, op.header.parent)
    # The sources are read again. Of kjit, tvm-ffi and the CPU, `_here` knows; the memo goes by the compilers' dates.
    known = {*found["noted"], str(op.source), "/proc/cpuinfo"}
    # Of links on the way to a file that is noted, its inode tells when they lead elsewhere.
    files = set(map(os.path.realpath, found["noted"]))
    packages = Path(kjit.__file__).parent
    tvm_ffi = manifest.tvm_ffi_home()
    assert tvm_ffi is not None
    cache = os.environ["KJIT_CACHE_DIR"]
    unexpected = [
        path
        for path in found["asked"]
        if path not in known
        and os.path.realpath(path) not in files
        and not path.startswith((str(packages), tvm_ffi, cache))
        and path not in (os.path.dirname(tvm_ffi), *map(str, packages.parents))
    ]
    assert unexpected == []
    assert set(found["named"]) - set(found["variables"]) == set()


def test_all_code_that_derives_keys_is_compared(tmp_path: Path) -> None:
    (tmp_path / "op.cpp").write_text("void run() {}\n")
    script = """
        import os, sys
        import kjit
        from kjit.engine.key.key import Key
        from kjit.engine.toolchain.toolchain import Toolchain, _discover
        from kjit.runtime import manifest
        from kjit.spec import Spec, Target, Variant

        target = Target.cpu()
        spec = Spec("op", cpp_files=[sys.argv[1]], cpp_wrappers=["run"])
        Key.of(Variant(spec, target), Toolchain.for_target(target)).key1
        home = os.path.dirname(kjit.__file__)
        compared = {name for name, *_ in manifest.code_states()}
        loaded = (module.__file__ for name, module in sys.modules.items() if name.startswith("kjit"))
        print(*sorted({os.path.relpath(file, home) for file in loaded} - compared))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "op.cpp")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    # The rest loads modules, names errors, or finds the targets that requests name.
    allowed = "__init__.py engine/__init__.py errors.py runtime/bundle.py runtime/gpus.py runtime/load.py "
    allowed += "engine/compile/__init__.py engine/compile/quoting.py engine/compile/steps.py"
    assert set(done.stdout.split()) <= set(allowed.split())
