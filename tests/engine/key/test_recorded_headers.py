"""kjit.engine.key.headers: changes of the files that a compile has read, and changes that do not matter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kjit.engine.key import observation, system_headers
from kjit.engine.key.headers import compare
from kjit.engine.key.key import Key
from kjit.engine.key.observation import Observation, Start, now_ns
from kjit.engine.toolchain.locations import tvm_ffi_include
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import manifest
from kjit.runtime.manifest import FileState, Reads
from kjit.spec import Spec, Target, Variant

SYSTEM = f"{tvm_ffi_include()}/vector"


def next_tick() -> None:
    """Wait until a file that is written now is younger than all that were: the kernel's own dates cannot be set."""
    Start.now()


class Project:
    """A source in `csrc/`, two headers, and an include folder that is searched before them all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.extra_cflags: list[str] = []
        for folder in ("csrc", "include", "first"):
            (root / folder).mkdir(parents=True)
        (root / "pyproject.toml").touch()
        self.source = self.write("csrc/op.cpp", "source")
        self.near = self.write("csrc/near.h", "near")
        self.shared = self.write("include/shared.h", "shared")
        next_tick()

    def write(self, path: str, text: str) -> Path:
        (self.root / path).write_text(text)
        return self.root / path

    @property
    def key(self) -> Key:
        folders = [self.root / "first", self.root / "include"]
        spec = Spec("op", cpp_files=[self.source], extra_cflags=self.extra_cflags, extra_include_paths=folders)
        return Key.of(Variant(spec, Target.cpu()), Toolchain.for_target(Target.cpu()))

    def observe(self, *more: str) -> Observation:
        files = [*map(str, (self.source, self.near, self.shared)), SYSTEM, *more]
        return Observation.of(files, self.key, Toolchain.for_target(Target.cpu()))

    def recorded(self, *more: str) -> Reads:
        reads = Reads(json.loads(json.dumps(self.observe(*more).reads.to_json())))
        next_tick()
        return reads


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose files count as old: a date that only the kernel sets cannot be set back by a test."""
    monkeypatch.setattr(manifest, "_SETTLING_NS", 0)
    return Project(tmp_path / "project")


def test_nothing_changed_is_a_hit_that_leaves_the_record_alone(project: Project) -> None:
    reads = project.recorded()
    assert compare(reads, str(project.root)) is reads


def test_touching_a_header_without_changing_it_is_a_hit_that_renews_the_record(project: Project) -> None:
    reads = project.recorded()
    os.utime(project.near)
    next_tick()
    renewed = compare(reads, str(project.root))
    assert isinstance(renewed, Reads)
    assert renewed is not reads
    assert compare(renewed, str(project.root)) is renewed
    assert names_and_digests(renewed) == names_and_digests(reads)


def test_a_changed_header_is_a_miss_that_names_it(project: Project) -> None:
    reads = project.recorded()
    project.near.write_text("nearer")
    assert compare(reads, str(project.root)) == "csrc/near.h changed"


def test_a_header_changed_to_the_same_size_under_its_old_date_is_a_miss(project: Project) -> None:
    date = project.near.stat().st_mtime_ns
    reads = project.recorded()
    project.near.write_text("NEAR")
    os.utime(project.near, ns=(date, date))
    assert compare(reads, str(project.root)) == "csrc/near.h changed"


def test_a_header_exchanged_for_one_of_the_same_size_and_date_is_a_miss(project: Project) -> None:
    other = project.write("csrc/other.h", "NEAR")
    date = project.near.stat().st_mtime_ns
    os.utime(other, ns=(date, date))
    reads = project.recorded()
    other.replace(project.near)
    assert compare(reads, str(project.root)) == "csrc/near.h changed"


def undated(reads: Reads) -> bool:
    return set(reads.headers[3]) == {manifest.YOUNG}


def names_and_digests(reads: Reads) -> tuple[list[str], list[str]]:
    """What the second half of a key is a hash of."""
    return reads.headers[0], reads.headers[4]


def paths(reads: Reads) -> list[str]:
    return reads.headers[0]


def test_a_header_that_was_written_a_moment_ago_is_compared_by_content(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not undated(project.recorded())
    monkeypatch.undo()
    reads = project.recorded()
    assert undated(reads)
    assert compare(reads, str(project.root)) is reads


def test_a_date_that_the_maker_of_a_disk_image_wrote_is_not_trusted() -> None:
    assert manifest.trusted_ctime(1_700_000_000_123_456_789) == 1_700_000_000_123_456_789
    assert manifest.trusted_ctime(1_700_000_000_000_000_000) == 0


def test_a_removed_header_is_a_miss(project: Project) -> None:
    reads = project.recorded()
    project.near.unlink()
    assert compare(reads, str(project.root)) == "csrc/near.h is gone"


def test_the_direct_source_is_not_among_the_headers(project: Project) -> None:
    assert paths(project.recorded()) == [str(project.near), str(project.shared)]


@pytest.fixture
def compiler(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a compiler in an environment inside the project, which says where its headers are."""
    home = project.root / ".pixi" / "env"
    own = [home / "lib/gcc/x86_64-conda-linux-gnu/13/include", home / "sysroot/usr/include"]
    monkeypatch.setattr(system_headers, "_folders_of", lambda _: list(map(str, own)))
    return home


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("{}/lib/gcc/x86_64-conda-linux-gnu/13/include/stddef.h", "/stddef.h"),
        ("{}/sysroot/usr/include/sys/types.h", "/sys/types.h"),
        (str(tvm_ffi_include() / "tvm" / "ffi" / "c_api.h"), "/tvm/ffi/c_api.h"),
    ],
)
def test_headers_of_compilers_are_not_compared_and_known_by_the_name_that_includes_them(
    project: Project, compiler: Path, path: str, name: str
) -> None:
    reads = project.observe(path.format(compiler)).reads
    assert paths(reads)[-1] == str(project.shared)
    assert f"//{name}//" in f"//{reads.system}//"


@pytest.mark.parametrize(
    "path", ["/usr/include/stdio.h", "/usr/include/zlib.h", "/usr/local/include/a.h", "{}/include/zlib.h"]
)
def test_headers_of_packages_are_compared(project: Project, compiler: Path, path: str) -> None:
    assert paths(project.observe(path.format(compiler)).reads)[-1] == path.format(compiler)


def test_the_compiler_says_where_its_headers_are(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", str(project.root / "include"))
    toolchain = Toolchain.for_target(Target.cpu())
    files = subprocess.run(
        [toolchain.cxx.path, "-M", "-x", "c++", "-"], input=b"#include <vector>", capture_output=True, check=True
    ).stdout.split()
    read = [os.path.normpath(os.fsdecode(name)) for name in files if name.startswith(b"/")]
    reads = Observation.of([*read, str(project.shared)], project.key, toolchain).reads
    assert reads.system.startswith("/vector//")
    assert [path for path in paths(reads) if not path.startswith("/usr/include/")] == [str(project.shared)]


def test_a_project_inside_a_folder_of_the_compiler_has_its_headers_compared(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del project  # a date that is young counts as old
    monkeypatch.setattr(system_headers, "_folders_of", lambda _: [str(tmp_path / "sysroot")])
    inner = Project(tmp_path / "sysroot" / "project")
    assert paths(inner.recorded()) == [str(inner.near), str(inner.shared)]


def test_what_flags_and_the_linker_bring_in_is_compared_wherever_it_is(project: Project, tmp_path: Path) -> None:
    library = tmp_path / "sysroot" / "lib" / "libmore.a"
    library.parent.mkdir(parents=True)
    library.touch()
    toolchain = Toolchain.for_target(Target.cpu())
    reads = Observation.of([], project.key, toolchain, others=[str(library)]).reads
    assert paths(reads) == [str(library)]


def test_cuda_s_headers_in_the_project_s_environment_are_not_compared(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project.root / ".venv" / "nvidia" / "include"
    monkeypatch.setattr(system_headers, "_cuda_folders", lambda _: [str(folder)])
    assert paths(project.observe(f"{folder}/cuda_fp16.h").reads) == [str(project.near), str(project.shared)]


def test_an_include_folder_of_the_spec_is_compared_wherever_it_is(project: Project) -> None:
    spec = Spec("op", cpp_files=[project.source], extra_include_paths=["/usr/include"])
    key = Key.of(Variant(spec, Target.cpu()), Toolchain.for_target(Target.cpu()))
    reads = Observation.of(["/usr/include/stdio.h"], key, Toolchain.for_target(Target.cpu())).reads
    assert paths(reads) == ["/usr/include/stdio.h"]


class TestNewFiles:
    def test_a_header_that_newly_comes_before_another_is_a_miss(self, project: Project) -> None:
        reads = project.recorded()
        project.write("first/shared.h", "mine")
        difference = compare(reads, str(project.root))
        assert difference == "first/shared.h is new and may shadow a header of that name"

    def test_a_header_beside_the_source_comes_before_a_system_header(self, project: Project) -> None:
        reads = project.recorded()
        project.write("csrc/vector", "mine")
        assert compare(reads, str(project.root)) == "csrc/vector is new and may shadow a header of that name"

    def test_a_header_in_a_new_folder_is_noticed(self, project: Project) -> None:
        reads = project.recorded("/usr/include/c++/12/bits/move.h")
        (project.root / "first" / "bits").mkdir()
        project.write("first/bits/move.h", "mine")
        assert str(compare(reads, str(project.root))).startswith("first/bits/move.h is new")

    @pytest.mark.parametrize("where", ["flag", "CPATH"])
    def test_a_folder_that_a_flag_or_the_environment_adds_is_watched(
        self, project: Project, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        more = project.root / "more"
        more.mkdir()
        if where == "flag":
            project.extra_cflags = ["-isystem", str(more)]
        else:
            monkeypatch.setenv(where, f"/nowhere:{more}:")
        next_tick()
        reads = project.recorded()
        project.write("more/vector", "mine")
        assert str(compare(reads, str(project.root))).startswith("more/vector is new")

    def test_the_folder_of_locally_installed_headers_is_watched(self, project: Project) -> None:
        assert "/usr/local/include" in project.recorded().roots

    @pytest.mark.parametrize(
        "asks",
        [
            '#if __has_include("tuned.h")',
            "#if defined(X) && __has_include ( <sub/tuned.h> )",
            '#define TUNED "sub/tuned.h"\n#if __has_include(TUNED)',
        ],
    )
    def test_a_file_that_was_asked_for_and_appears_later_is_a_miss(self, project: Project, asks: str) -> None:
        project.near.write_text(asks)
        (project.root / "first" / "sub").mkdir()
        next_tick()
        reads = project.recorded()
        name = "sub/tuned.h" if "sub" in asks else "tuned.h"
        project.write(f"first/{name}", "mine")
        assert str(compare(reads, str(project.root))).startswith(f"first/{name} is new")

    @pytest.mark.parametrize("folder", ["csrc", "first"])
    @pytest.mark.parametrize("text", ['#if __has_include("../more/tuned.h")', '#include "../more/tuned.h"'])
    def test_a_name_with_parent_folders_is_searched_for_from_each_folder(
        self, project: Project, text: str, folder: str
    ) -> None:
        below = project.root / folder / "below"
        below.mkdir()
        project.near.write_text(text)
        project.extra_cflags = [f"-I{below}"]
        next_tick()
        reads = project.recorded()
        (project.root / folder / "more").mkdir()
        project.write(f"{folder}/more/tuned.h", "mine")
        assert compare(reads, str(project.root)) == f"{folder}/more/tuned.h is new, and was searched for"

    def test_a_file_that_was_asked_for_and_is_installed_later_is_a_miss(
        self, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installed = tmp_path / "usr" / "include"
        monkeypatch.setattr(observation, "PACKAGES_INCLUDE", (str(installed),))
        project.near.write_text("#if __has_include(<numa.h>)")
        next_tick()
        reads = project.recorded()
        assert compare(reads, str(project.root)) is reads
        installed.mkdir(parents=True)
        (installed / "numa.h").touch()
        assert compare(reads, str(project.root)) == f"{installed}/numa.h is new, and was searched for"

    def test_a_library_that_appears_where_a_linker_looks_is_a_miss_and_so_is_one_that_goes(
        self, project: Project
    ) -> None:
        there, missing = project.write("csrc/libb.a", "b"), project.root / "csrc" / "liba.a"
        next_tick()
        files = [str(project.source), str(project.near)]
        sought = [str(missing), str(there)]
        observed = Observation.of(files, project.key, Toolchain.for_target(Target.cpu()), sought=sought)
        reads = Reads(json.loads(json.dumps(observed.reads.to_json())))
        assert compare(reads, str(project.root)) is reads
        missing.touch()
        assert compare(reads, str(project.root)) == "csrc/liba.a is new, and was searched for"
        missing.unlink()
        there.unlink()
        assert compare(reads, str(project.root)) == "csrc/libb.a is gone, and was searched for"

    def test_other_new_files_do_not_matter(self, project: Project) -> None:
        reads = project.recorded()
        project.write("csrc/another_op.cpp", "other")
        project.write("first/other.h", "other")
        (project.root / "first" / "deep").mkdir()
        assert isinstance(compare(reads, str(project.root)), Reads)


class TestChangesDuringTheCompile:
    def test_a_header_that_is_written_meanwhile_has_changed(self, project: Project) -> None:
        next_tick()
        start = now_ns()
        project.near.write_text("NEAR")
        os.utime(project.near, (0, 0))  # as a tool does that keeps dates
        assert project.observe().changed_since(start, {}) == [str(project.near)]

    def test_a_header_that_is_removed_meanwhile_has_changed(self, project: Project) -> None:
        gone = str(project.root / "csrc" / "gone.h")
        next_tick()
        first = project.observe(gone)
        assert first.changed_since(now_ns(), {}) == [gone]
        assert project.observe(gone).changed_since(now_ns(), first.states) == [gone]

    def test_a_file_that_appears_meanwhile_under_the_name_of_a_header_has_changed(self, project: Project) -> None:
        next_tick()
        start = now_ns()
        appeared = project.write("first/shared.h", "mine")
        assert project.observe().changed_since(start, {}) == [str(appeared)]

    def test_a_folder_that_is_exchanged_for_another_meanwhile_has_changed(self, project: Project) -> None:
        shutil.copytree(project.root / "include", project.root / "newer")
        next_tick()
        start = now_ns()
        (project.root / "include").rename(project.root / "older")
        (project.root / "newer").rename(project.root / "include")
        assert project.observe().changed_since(start, {}) == [str(project.shared)]

    def test_a_link_that_is_turned_to_another_folder_meanwhile_has_changed(self, project: Project) -> None:
        (project.root / "include").rename(project.root / "v1")
        shutil.copytree(project.root / "v1", project.root / "v2")
        (project.root / "include").symlink_to("v1")
        (project.root / "next").symlink_to("v2")
        next_tick()
        start = now_ns()
        (project.root / "next").replace(project.root / "include")
        assert str(project.shared) in project.observe().changed_since(start, {})

    def test_a_header_that_is_written_after_the_clock_was_set_back_has_changed(self, project: Project) -> None:
        next_tick()
        ahead_by = 3600 * 10**9
        start = Start(now_ns() + ahead_by, time.time_ns() + ahead_by, time.monotonic_ns())
        next_tick()
        project.near.write_text("NEAR")
        assert project.observe().changed_since(start.earliest_ns(), {}) == [str(project.near)]

    def test_a_header_that_was_written_right_before_the_start_has_not_changed(self, project: Project) -> None:
        project.near.write_text("NEAR")
        start = Start.now()
        assert project.observe().changed_since(start.earliest_ns(), {}) == []

    def test_what_was_known_before_decides_and_not_the_clock(self, project: Project) -> None:
        before = {path: FileState.read(path) for path in map(str, (project.near, project.shared, project.source))}
        assert project.observe().changed_since(0, before) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"headers": None},
        {"headers": [["a.h"], [1], [2], ["x"]]},
        {"headers": [["a.h"], [], [], [], []]},
        {"headers": [5]},
        {"system": 1},
        {"folders": [[5], [0], [0]]},
        {"sought": [["a.h"], []]},
    ],
)
def test_a_record_that_is_garbage_is_refused(project: Project, damage: dict[str, object]) -> None:
    document = {**json.loads(json.dumps(project.recorded().to_json())), **damage}
    with pytest.raises((TypeError, ValueError, LookupError)):
        compare(Reads(document), str(project.root))


@pytest.mark.parametrize("field", [1, 2, 3])
@pytest.mark.parametrize("number", [0, 1])
def test_each_number_of_each_header_is_compared(project: Project, field: int, number: int) -> None:
    document: Any = json.loads(json.dumps(project.recorded().to_json()))
    assert Reads(document).is_as_recorded()
    document["headers"][field][number] += 1
    assert not Reads(document).is_as_recorded()


def test_the_second_key_is_about_contents_and_not_about_dates(project: Project) -> None:
    before = names_and_digests(project.recorded())
    os.utime(project.near)
    assert names_and_digests(project.recorded()) == before
    project.near.write_text("other")
    assert names_and_digests(project.recorded()) != before
