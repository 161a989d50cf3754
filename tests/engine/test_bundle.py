"""kjit.engine.bundle_writer and kjit.runtime.bundle: libraries are found without a compiler, and only if they fit."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Forks

import kjit
from kjit.engine import bundle_writer
from kjit.engine.bundle_writer import glibc_of, targets_of_bundle
from kjit.engine.cache.artifact import describe
from kjit.engine.cache.store import Artifact, Store
from kjit.engine.pool import build_all
from kjit.engine.toolchain import cpu
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError, NotPrebuiltError, ToolchainError, UsageError
from kjit.runtime import bundle, digest, load
from kjit.runtime.load import BUNDLE, load_variant, runtime_target
from kjit.spec import Spec, Target, Variant

CPU = Target.cpu()

# Plain C over tvm-ffi's ABI. What it returns says for which level it was compiled.
_SOURCE = """#include "level.h"
#include <tvm/ffi/c_api.h>
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_level(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {
  r->type_index = kTVMFFIInt;
#if defined(__AVX512F__)
  r->v_int64 = 4;
#elif defined(__AVX2__)
  r->v_int64 = 3;
#else
  r->v_int64 = 2;
#endif
  r->v_int64 *= FACTOR;
  return 0;
}
"""
_NUMBERS = {"x86-64-v2": 2, "x86-64-v3": 3, "x86-64-v4": 4}


@dataclass(frozen=True)
class Package:
    """A package with a wrapper, its source and a bundle; `spec` is what its wrapper asks for."""

    folder: Path

    @property
    def wrapper(self) -> str:
        return str(self.folder / "level.py")

    @property
    def source(self) -> Path:
        return self.folder / "csrc" / "level.cpp"

    @property
    def header(self) -> Path:
        return self.folder / "csrc" / "level.h"

    @property
    def prebuilt(self) -> Path:
        return self.folder / BUNDLE

    def spec(self, *args: str, **parts: Any) -> Spec:
        return Spec("level", *(args or ("fp32_t",)), cpp_files=[self.source], **parts)

    def find(self, spec: Spec | None = None) -> str:
        """The name of the library that serves it, or the reasons of the bundle, a line each."""
        found = bundle.find(Variant(spec or self.spec(), CPU), self.wrapper)
        return os.path.basename(found.library) if found.library else "\n".join(found.refusals[0].reasons)

    def level(self) -> int:
        return int(load_variant(Variant(self.spec(), CPU), wrapper=self.wrapper).level())

    def edit_index(self, edit: Callable[[Any], object]) -> None:
        path = self.prebuilt / "index.json"
        document = json.loads(path.read_text())
        edit(document)
        path.write_text(json.dumps(document))

    def libraries(self) -> dict[str, Path]:
        """The library of each level."""
        libraries = json.loads((self.prebuilt / "index.json").read_text())["libraries"]
        return {library["level"]: self.prebuilt / library["file"] for library in libraries}


@pytest.fixture(scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory, _shared_cache: Path) -> Package:
    """Built once for all tests of this file, for each level."""
    if platform.machine() != "x86_64":
        pytest.skip("the op of these tests knows the levels of x86-64 only")
    del _shared_cache
    package = Package(tmp_path_factory.mktemp("built") / "kernels")
    (package.folder / "csrc").mkdir(parents=True)
    (package.folder / "__init__.py").touch()
    package.source.write_text(_SOURCE)
    package.header.write_text("#define FACTOR 1\n")
    for path in (package.source, package.header):
        os.utime(path, (1, 1))
    variants = [Variant(package.spec(), target) for target in targets_of_bundle([CPU])]
    outcomes = build_all(variants, Store.open())
    bundle_writer.write(
        package.prebuilt, [(each.variant, each.artifact) for each in outcomes if each.artifact is not None]
    )
    return package


@pytest.fixture
def package(_built: Package, tmp_path: Path) -> Package:
    """A copy of it at another place, as an installation makes one."""
    return Package(Path(shutil.copytree(_built.folder, tmp_path / "site" / "kernels")))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for a compiler or starts a process fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a compiler was looked for")

    monkeypatch.setattr(Toolchain, "for_target", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.fixture
def cpu_of_level(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """A function that takes from this CPU what is beyond a level (None: what every level needs)."""

    def pretend(name: str | None) -> None:
        features: frozenset[str] = frozenset()
        for level in cpu.levels() if name is not None else ():
            features |= level.features
            if level.name == name:
                break
        monkeypatch.setattr(bundle, "cpu_features", lambda: features)

    return pretend


@pytest.mark.usefixtures("no_compiler")
class TestFinding:
    @pytest.mark.parametrize("level", _NUMBERS)
    def test_the_code_for_the_highest_level_that_the_cpu_has_is_run(
        self, package: Package, level: str, cpu_of_level: Callable[[str], None]
    ) -> None:
        if level not in cpu.levels_here():
            pytest.skip(f"this CPU has no {level}")
        cpu_of_level(level)
        assert package.level() == _NUMBERS[level]

    def test_a_level_that_the_cpu_lacks_is_refused(self, package: Package, cpu_of_level: Callable[[str], None]) -> None:
        package.edit_index(lambda index: index["libraries"].pop(0))
        cpu_of_level("x86-64-v2")
        assert package.find() == "it has code for x86-64-v3, x86-64-v4, and this CPU has x86-64-v2"

    def test_without_its_sources_it_is_found(self, package: Package) -> None:
        shutil.rmtree(package.folder / "csrc")
        assert package.find().startswith("level-")

    def test_a_wrapper_in_a_package_below_finds_it(self, package: Package) -> None:
        below = package.folder / "more" / "level.py"
        below.parent.mkdir()
        (below.parent / "__init__.py").touch()
        assert bundle.find(Variant(package.spec(), CPU), str(below)).library is not None

    def test_folders_to_search_may_be_elsewhere(self, package: Package) -> None:
        assert package.find(package.spec(extra_cflags=["-I/other", "-isystem", "/more"])).startswith("level-")

    def test_a_notebook_and_the_simulator_have_no_bundle(self, package: Package) -> None:
        assert bundle.find(Variant(package.spec(), CPU), None) == bundle.Lookup(None, ())
        assert bundle.find(Variant(package.spec(), Target.sim()), package.wrapper) == bundle.Lookup(None, ())

    def test_an_index_that_is_replaced_is_read_again(self, package: Package) -> None:
        package.find()
        package.edit_index(lambda index: index.update(libraries=[]))
        assert package.find() == "level is not in it"


@pytest.mark.usefixtures("no_compiler")
class TestEdits:
    def test_an_edited_source_and_header_are_named(self, package: Package) -> None:
        package.source.write_text(_SOURCE + "\n")
        package.header.write_text("#define FACTOR 2\n")
        assert package.find() == ("csrc/level.cpp changed since it was built\ncsrc/level.h changed since it was built")

    def test_an_edit_is_noticed_in_the_same_process_and_so_is_its_reversal(self, package: Package) -> None:
        before = package.find()
        package.header.write_text("#define FACTOR 2\n")
        assert package.find() == "csrc/level.h changed since it was built"
        package.header.write_text("#define FACTOR 1\n")
        assert package.find() == before


class TestFilesOutsideOfTheProject:
    """Files outside of its project that the op in `mono/package` is compiled from."""

    @pytest.fixture
    def mono(self, tmp_path: Path, cache_dir: Path) -> Path:
        del cache_dir
        mono = tmp_path / "mono"
        for folder in ("package/kernels/csrc", "common/deep", "env/lib/site-packages/other"):
            (mono / folder).mkdir(parents=True)
        (mono / "package" / "pyproject.toml").touch()
        (mono / "common" / "level.h").write_text("#define FACTOR 1\n")
        (mono / "package" / "kernels" / "csrc" / "level.cpp").write_text(_SOURCE)
        return mono

    @staticmethod
    def spec(mono: Path, *include: Path, **parts: Any) -> Spec:
        source = mono / "package" / "kernels" / "csrc" / "level.cpp"
        return Spec("level", cpp_files=[source], extra_include_paths=include, **parts)

    @staticmethod
    def build(mono: Path, spec: Spec) -> None:
        variant = Variant(spec, Target.cpu(cpu.levels()[0].name))
        (outcome,) = build_all([variant], Store.open())
        assert outcome.artifact is not None
        bundle_writer.write(mono / "package" / "kernels" / BUNDLE, [(variant, outcome.artifact)])

    @staticmethod
    def refused(mono: Path, spec: Spec) -> list[str]:
        found = bundle.find(Variant(spec, CPU), str(mono / "package" / "kernels" / "level.py"))
        assert (found.library is None) == bool(found.refusals)
        return [reason for refusal in found.refusals for reason in refusal.reasons]

    def test_an_edited_header_of_an_include_folder_is_named(self, mono: Path) -> None:
        spec = self.spec(mono, mono / "empty", mono / "common")
        self.build(mono, spec)
        assert self.refused(mono, spec) == []
        (mono / "common" / "level.h").write_text("#define FACTOR 2\n")
        assert self.refused(mono, spec) == [f"{mono}/common/level.h changed since it was built"]

    @pytest.mark.parametrize("how", ["included", "through a link"])
    def test_a_copy_compares_its_own_header_if_it_has_one(self, mono: Path, how: str) -> None:
        source = mono / "package" / "kernels" / "csrc" / "level.cpp"
        spec = self.spec
        if how == "included":
            source.write_text(_SOURCE.replace('"level.h"', '"../../../common/level.h"'))
        else:
            (source.parent / "link").symlink_to("../../../common/deep")
            source.write_text(_SOURCE.replace('"level.h"', '"link/../level.h"'))
        self.build(mono, spec(mono))
        copy = Path(shutil.copytree(mono, mono.with_name("copy"), symlinks=True))
        assert self.refused(copy, spec(copy)) == []
        (mono / "common" / "level.h").write_text("#define FACTOR 2\n")
        assert self.refused(copy, spec(copy)) == []
        (copy / "common" / "level.h").write_text("#define FACTOR 3\n")
        assert self.refused(copy, spec(copy)) == [f"{copy}/common/level.h changed since it was built"]
        shutil.rmtree(copy / "common")
        assert self.refused(copy, spec(copy)) == []

    @pytest.mark.parametrize(
        ("path", "is_installed"),
        [
            ("/venv/include/level.h", True),
            ("/usr/local/include/level.h", True),
            ("/mono/common/level.h", False),
            ("/mono/package/include/level.h", False),
            ("/mono/package/lib/python3/site-packages/other/level.h", True),
            ("/env/lib/site-packages/other/level.h", True),
            ("/env/lib/site-packages/op/include/level.h", False),
        ],
    )
    def test_headers_of_installed_packages_are_not_compared(
        self, path: str, is_installed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bundle_writer, "_INSTALLED", {"/usr", "/venv"})
        assert bundle_writer._is_installed(path, ["/mono/package", "/env/lib/site-packages/op"]) == is_installed


@pytest.mark.usefixtures("no_compiler")
class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            ("kjit", "0.2.0", f"it was built with kjit 0.2.0, and this is kjit {kjit.__version__}"),
            ("kjit", "0.1.99", f"it was built with kjit 0.1.99, and this is kjit {kjit.__version__}"),
            ("tvm-ffi", "0.1.0", "level-"),
            ("tvm-ffi", "1.0.0", "it was built with tvm-ffi 1.0.0, and this is tvm-ffi "),
            ("machine", "aarch64", "it was built for aarch64, and this is x86_64"),
            ("system", "Darwin", f"it was built for Darwin, and this is {platform.system()}"),
        ],
    )
    def test_another_version_or_machine(self, package: Package, name: str, value: str, reason: str) -> None:
        package.edit_index(lambda index: [each["built with"].update({name: value}) for each in index["libraries"]])
        assert package.find().startswith(reason)

    def test_the_newest_symbol_of_the_c_library_says_which_is_needed(self) -> None:
        assert glibc_of(b"\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_2.2.5\0GLIBCXX_3.4\0") == "2.17"
        assert glibc_of(b"none of them") is None

    def test_everything_that_differs_is_a_line(self, package: Package) -> None:
        def edit(index: Any) -> None:
            for library in index["libraries"]:
                library["built with"].update(kjit="0.2.0", machine="aarch64")
                library["glibc"] = "99.1"

        package.edit_index(edit)
        package.header.write_text("#define FACTOR 2\n")
        assert [line.split(" and ")[0].split(",")[0] for line in package.find().splitlines()] == [
            "it was built with kjit 0.2.0",
            "it was built for aarch64",
            "csrc/level.h changed since it was built",
            "it needs glibc 99.1 or newer",
        ]

    @pytest.mark.parametrize(
        ("parts", "reason"),
        [
            ({"extra_cflags": ["-DMORE=1"]}, "flags for c++: with -DMORE=1"),
            ({"extra_ldflags": ["-lm"]}, "flags for the link: with -lm"),
            ({"cpp_wrappers": [("run", "run")]}, "C++ exports: with run"),
        ],
    )
    def test_another_description_of_the_same_variant(
        self, package: Package, parts: dict[str, Any], reason: str
    ) -> None:
        assert package.find(package.spec(**parts)) == reason
        (refusal,) = bundle.find(Variant(package.spec(**parts), CPU), package.wrapper).refusals
        assert refusal.is_surprising

    def test_a_variant_that_was_never_in_it_is_no_surprise(self, package: Package) -> None:
        assert package.find(package.spec("int8_t")) == "it has level<fp32_t>, and not level<int8_t>"
        (refusal,) = bundle.find(Variant(package.spec("int8_t"), CPU), package.wrapper).refusals
        assert not refusal.is_surprising

    @pytest.mark.parametrize(
        ("damage", "reason"),
        [
            (lambda path: path.write_bytes(path.read_bytes()[:100]), "is damaged: it has 100 bytes instead of"),
            (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), "is damaged: it was altered"),
            (lambda path: path.unlink(), "cannot be read (No such file or directory)"),
        ],
    )
    def test_a_damaged_library(self, package: Package, damage: Callable[[Path], object], reason: str) -> None:
        for path in package.libraries().values():
            damage(path)
        assert reason in package.find()

    @pytest.mark.parametrize("name", ["../evil.so", "/tmp/evil.so", "sub/level-0123456789abcdef.so", "evil.so", ""])
    def test_an_index_names_files_inside_of_the_bundle_only(self, package: Package, name: str) -> None:
        library = package.libraries()["x86-64-v2"]
        shutil.copy(library, package.folder / "evil.so")

        def lead_out(index: Any) -> None:
            for each in index["libraries"]:
                each["file"] = name

        package.edit_index(lead_out)
        assert package.find() == f"its index names '{name}', which is not a file of a bundle"

    def test_a_bundle_that_others_may_write_to_is_not_loaded(self, package: Package) -> None:
        parts = {"its folder": package.prebuilt, "its index": package.prebuilt / "index.json"}
        for what, path in parts.items():
            mode = path.stat().st_mode
            path.chmod(0o777)
            assert package.find() == f"{what} may be written by users other than its owner"
            path.chmod(mode)
        for path in package.libraries().values():
            path.chmod(0o666)
        assert re.fullmatch(r"level-\w+\.so may be written by users other than its owner", package.find())

    def test_a_bundle_is_trusted_like_its_package(self, package: Package) -> None:
        for path in (package.folder, package.prebuilt, *package.prebuilt.iterdir()):
            path.chmod(0o777)
        assert package.find().endswith(".so")
        package.folder.chmod(0o775)
        assert package.find() == "its folder may be written by users other than its owner"
        for path in (package.prebuilt, *package.prebuilt.iterdir()):
            path.chmod(0o775)
        assert package.find().endswith(".so")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_a_bundle_may_belong_to_the_owner_of_its_package_and_to_nobody_else(self, package: Package) -> None:
        os.chown(package.prebuilt, 12345, 12345)
        assert package.find() == "its folder belongs to another user (id 12345)"
        os.chown(package.folder, 12345, 12345)
        assert package.find().endswith(".so")

    @pytest.mark.parametrize(
        "damage",
        [
            "",
            "[1]",
            "[" * 100_000,
            '{"format": 2, "files": []}',
            lambda index: index.pop("libraries"),
            lambda index: [library.update(files=[10_000]) for library in index["libraries"]],
        ],
        ids=range(6),
    )
    def test_a_damaged_index_is_none(self, package: Package, damage: str | Callable[[Any], object]) -> None:
        if isinstance(damage, str):
            (package.prebuilt / "index.json").write_text(damage)
        else:
            package.edit_index(damage)
        assert package.find().startswith("its index is damaged")

    @pytest.mark.parametrize("form", [5, 7])
    def test_an_index_of_an_older_or_a_newer_form(self, package: Package, form: int) -> None:
        package.edit_index(lambda index: index.update({"format": form, "kjit": "9.0"}))
        assert package.find() == "it was written by kjit 9.0, in a format that this version cannot read"


class TestGpus:
    """A bundle for several architectures, of libraries that nobody loads."""

    SPEC = Spec("fill", cuda_files=["/x/csrc/fill.cuh"], cuda_wrappers=[("fill", "fill")])
    TARGETS = (Target.cuda("8.0", "8.6"), Target.cuda("9.0a"), Target.cuda("10.0f"))

    @pytest.fixture
    def wrapper(self, tmp_path: Path) -> str:
        built = [(Variant(self.SPEC, target), artifact_of(tmp_path, self.SPEC, target)) for target in self.TARGETS]
        bundle_writer.write(tmp_path / BUNDLE, built)
        return str(tmp_path / "fill.py")

    @pytest.fixture
    def gpu(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Target]:
        """The target of a call on a GPU of some compute capability."""
        for name in ("KJIT_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST"):
            monkeypatch.delenv(name, raising=False)

        def pretend(major: int, minor: int) -> Target:
            monkeypatch.setattr(load, "device_capability", lambda _: (major, minor))
            return runtime_target("cuda", 0)

        return pretend

    @pytest.mark.usefixtures("no_compiler")
    @pytest.mark.parametrize(
        ("capability", "target"), [((8, 0), 0), ((8, 6), 0), ((8, 9), 0), ((9, 0), 1), ((10, 0), 2), ((10, 3), 2)]
    )
    def test_a_gpu_gets_the_library_with_its_code(
        self, wrapper: str, gpu: Callable[[int, int], Target], capability: tuple[int, int], target: int
    ) -> None:
        found = bundle.find(Variant(self.SPEC, gpu(*capability)), wrapper).library
        assert found is not None
        assert Path(found).read_text() == str(self.TARGETS[target])

    @pytest.mark.parametrize("arch", ["12.0a", "9.0"])
    def test_a_gpu_that_no_code_runs_on_is_refused(self, wrapper: str, arch: str) -> None:
        (refusal,) = bundle.find(Variant(self.SPEC, Target.cuda(arch)), wrapper).refusals
        assert refusal.reasons == (f"it has code for 8.0, 8.6, 9.0a, 10.0f, and none for {arch}",)

    def test_architectures_of_one_major_version_share_a_library_and_the_cpu_has_one_for_each_level(self) -> None:
        archs = [Target.cuda(arch) for arch in ("9.0a", "8.6", "8.0", "10.0a", "8.9", "10.3a")]
        made = targets_of_bundle([*archs, CPU])
        assert made == [
            Target.cuda("9.0a"),
            Target.cuda("8.0", "8.6", "8.9"),
            Target.cuda("10.0a", "10.3a"),
            *(Target.cpu(level.name) for level in cpu.levels()),
        ]
        assert str(made[1]) == "cuda:sm_80+sm_86+sm_89"

    def test_the_simulator_is_not_shipped(self) -> None:
        with pytest.raises(UsageError, match="a bundle is for GPUs and CPUs, and 'sim' is neither"):
            targets_of_bundle([Target.sim()])

    @pytest.mark.nightly
    @pytest.mark.nvcc
    def test_a_shared_library_has_the_code_of_each_architecture_and_reports_what_each_needs(
        self, tmp_path: Path, cache_dir: Path
    ) -> None:
        del cache_dir
        source = tmp_path / "csrc" / "fill.cu"
        source.parent.mkdir()
        # The two architectures must need different amounts, so that a mix-up shows.
        source.write_text(
            "#include <kjit/device.cuh>\n"
            "static_assert(KJIT_CUDA_ARCH == 800);\n"
            "__global__ void fill(float* p) {\n"
            "#if __CUDA_ARCH__ == 860\n  __shared__ float s[64];\n#else\n  __shared__ float s[32];\n#endif\n"
            "  s[threadIdx.x] = p[0];\n  __syncthreads();\n  p[threadIdx.x] = s[31 - threadIdx.x];\n}\n"
        )
        variant = Variant(Spec("fill", cuda_files=[source]), *targets_of_bundle(map(Target.cuda, ["8.6", "8.0"])))
        (outcome,) = build_all([variant], Store.open())
        assert outcome.artifact is not None, outcome.error
        resources: Any = outcome.artifact.build["resources"]
        assert {each["arch"]: each["shared"] for each in resources} == {"sm_80": 128, "sm_86": 256}
        bundle_writer.write(tmp_path / BUNDLE, [(variant, outcome.artifact)])
        assert bundle.find(Variant(variant.spec, Target.cuda("8.9")), str(tmp_path / "fill.py")).library is not None


def artifact_of(folder: Path, spec: Spec, target: Target, files: str = "a") -> Artifact:
    """An artifact whose library holds no more than the target's name; `files` stands for what it was built from."""
    home = folder / "artifacts" / spec.name / str(target).replace(":", "-") / files
    home.mkdir(parents=True)
    more = [text for text in (spec.name, files) if text not in ("fill", "a") and not text.startswith("op")]
    (home / f"{spec.name}.so").write_text(" ".join([str(target), *more]))
    sources = {
        "CUDA sources": [[path, digest(files.encode())] for path in spec.cuda_files],
        "C++ sources": [[path, digest(files.encode())] for path in spec.cpp_files],
    }
    summary = {"op": spec.name, "digest": digest((home / f"{spec.name}.so").read_bytes())}
    reads = {"headers": [[]] * 5, "folders": [[]] * 3, "sought": [[]] * 2, "roots": [], "present": []}
    lines = (summary, {**reads, "system": ""}, {"inputs": {"module": sources}})
    return Artifact(str(home), tuple(json.dumps(line).encode() for line in lines), 0.0)


class TestWriting:
    SPEC = Spec("fill", "1", cuda_files=["/x/fill.cuh"])
    OTHER = Spec("other", cuda_files=["/x/fill.cuh"])
    TARGET = Target.cuda("9.0a")

    def write(
        self, folder: Path, target: Target = TARGET, spec: Spec = SPEC, files: str = "a", **options: bool
    ) -> bundle_writer.Written:
        artifact = artifact_of(folder.parent, spec, target, files)
        return bundle_writer.write(folder, [(Variant(spec, target), artifact)], **options)

    def served(self, folder: Path, spec: Spec, target: Target) -> str | tuple[str, ...]:
        """The content of the library that serves `spec` on a GPU, or the reasons why none does."""
        found = bundle.find(Variant(spec, target), str(folder.parent / "wrapper.py"))
        return found.refusals[0].reasons if found.library is None else Path(found.library).read_text()

    def test_only_what_is_built_stays_where_that_is_asked_for_and_what_others_put_there(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        (before,) = folder.glob("*.so")
        (folder / "notes.txt").touch()
        (folder / "fill-0123456789abcdef.so").touch()
        written = self.write(folder, Target.cuda("10.0a"), only=True)
        assert (written.modules, written.libraries, written.size) == (1, 1, len("cuda:sm_100a"))
        assert written.change == bundle_writer.Change(removed=("fill<1> cuda:sm_90a",))
        assert not before.exists()
        assert (folder / "notes.txt").exists()
        assert not (folder / "fill-0123456789abcdef.so").exists()

    def test_other_ops_and_targets_of_before_stay(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        self.write(folder, Target.cuda("10.0a"))
        written = self.write(folder, spec=self.OTHER)
        assert (written.modules, written.libraries) == (2, 3)
        assert written.change == bundle_writer.Change(kept=("fill<1> cuda:sm_100a", "fill<1> cuda:sm_90a"))
        assert self.served(folder, self.SPEC, self.TARGET) == "cuda:sm_90a"
        assert self.served(folder, self.SPEC, Target.cuda("10.0a")) == "cuda:sm_100a"
        assert self.served(folder, self.OTHER, self.TARGET) == "cuda:sm_90a other"

    def test_what_is_built_anew_is_replaced_and_its_old_file_goes(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        assert self.write(folder, files="b").change == bundle_writer.Change(replaced=("fill<1> cuda:sm_90a",))
        assert [path.read_text() for path in folder.glob("*.so")] == ["cuda:sm_90a b"]
        assert self.served(folder, self.SPEC, self.TARGET) == "cuda:sm_90a b"

    def test_what_is_unchanged_is_not_reported(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        before = (folder / "index.json").read_bytes()
        shutil.rmtree(tmp_path / "artifacts")
        assert self.write(folder).change == bundle_writer.Change()
        assert (folder / "index.json").read_bytes() == before

    def test_a_bundle_is_the_same_byte_for_byte_in_whichever_order_ops_are_added(self, tmp_path: Path) -> None:
        for name, specs in (("a", (self.SPEC, self.OTHER)), ("b", (self.OTHER, self.SPEC))):
            for spec in specs:
                self.write(tmp_path / name / BUNDLE, spec=spec)
        first, second = (
            {path.name: path.read_bytes() for path in (tmp_path / name / BUNDLE).iterdir()} for name in "ab"
        )
        assert first == second

    def test_a_library_for_several_architectures_replaces_those_for_some_of_them_and_not_the_other_way_round(
        self, tmp_path: Path
    ) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder, Target.cuda("8.0"))
        both = Target.cuda("8.0", "8.6")
        assert self.write(folder, both).change.replaced == ("fill<1> cuda:sm_80",)
        written = self.write(folder, Target.cuda("8.0"), files="b")
        assert (written.change.replaced, written.change.kept) == ((), ("fill<1> cuda:sm_80+sm_86",))
        assert self.served(folder, self.SPEC, Target.cuda("8.0")) == "cuda:sm_80 b"
        assert self.served(folder, self.SPEC, Target.cuda("8.6")) == "cuda:sm_80+sm_86"

    def test_what_another_version_built_and_what_has_no_file_stays_and_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        here = kjit.__version__
        with monkeypatch.context() as patch:
            patch.setattr(kjit, "__version__", "0.2.0")
            written = self.write(folder, spec=self.OTHER)
            assert written.change.doubts == (
                f"fill<1> cuda:sm_90a: it was built with kjit {here}, and this is kjit 0.2.0",
            )
            assert self.served(folder, self.OTHER, self.TARGET) == "cuda:sm_90a other"
        assert self.served(folder, self.SPEC, self.TARGET) == "cuda:sm_90a"
        assert self.served(folder, self.OTHER, self.TARGET) == (
            f"it was built with kjit 0.2.0, and this is kjit {here}",
        )
        for path in folder.glob("*.so"):
            path.unlink()
        name = f"fill-{digest(b'cuda:sm_90a')[:16]}.so"
        shutil.rmtree(tmp_path / "artifacts")
        assert self.write(folder, spec=self.OTHER).change.doubts == (
            f"fill<1> cuda:sm_90a: its file {name} is missing",
        )

    def test_what_is_older_than_its_source_is_named(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        source = tmp_path / "csrc" / "fill.cuh"
        source.parent.mkdir()
        source.write_text("a")
        spec = Spec("fill", "1", cuda_files=[source])
        self.write(folder, spec=spec)
        source.write_text("b")
        written = self.write(folder, Target.cuda("10.0a"), spec, "b")
        assert written.change.doubts == ("fill<1> cuda:sm_90a: csrc/fill.cuh changed since it was built",)
        assert self.served(folder, spec, Target.cuda("10.0a")) == "cuda:sm_100a b"
        assert self.served(folder, spec, self.TARGET) == ("csrc/fill.cuh changed since it was built",)

    def test_what_a_killed_writer_had_begun_goes(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        folder.mkdir()
        for name in (f"{load.INDEX}.b886a69d", "fill-0123456789abcdef.so.00c0ffee"):
            (folder / name).write_bytes(b"half of ")
        self.write(folder)
        assert len(list(folder.iterdir())) == 2

    def test_processes_that_write_one_bundle_at_once_are_all_in_it(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        specs = [Spec(f"op{number}", cuda_files=["/x/fill.cuh"]) for number in range(8)]
        artifacts = [artifact_of(tmp_path / spec.name, spec, self.TARGET) for spec in specs]

        def work(index: int) -> None:
            bundle_writer.write(folder, [(Variant(specs[index], self.TARGET), artifacts[index])])

        with ThreadPoolExecutor(len(specs)) as pool:
            list(pool.map(work, range(len(specs))))
        document = json.loads((folder / "index.json").read_text())
        assert [library["op"] for library in document["libraries"]] == [spec.name for spec in specs]
        assert all(self.served(folder, spec, self.TARGET) == "cuda:sm_90a" for spec in specs)

    def test_a_preview_lists_the_changes_and_writes_nothing(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        self.write(folder, spec=self.OTHER)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        variants = [Variant(self.SPEC, self.TARGET)]
        assert bundle_writer.preview(folder, variants) == bundle_writer.Change(
            replaced=("fill<1> cuda:sm_90a",), kept=("other cuda:sm_90a",)
        )
        assert bundle_writer.preview(folder, variants, only=True).removed == ("other cuda:sm_90a",)
        assert bundle_writer.preview(tmp_path / "none", variants) == bundle_writer.Change()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_a_folder_that_holds_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "cat.png").touch()
        with pytest.raises(UsageError, match=r"photos' exists and is not a bundle \(it contains 'cat.png'\)"):
            self.write(tmp_path / "photos")
        assert os.listdir(tmp_path / "photos") == ["cat.png"]
        for folder in (tmp_path / "photos" / "cat.png", tmp_path / "photos" / "cat.png" / BUNDLE):
            with pytest.raises(UsageError, match=r"no bundle can be written to .*: Not a directory"):
                bundle_writer.check_folder(folder)

    @pytest.mark.parametrize("index", ['{"my": "website"}', "[]", "{", "\xff"])
    @pytest.mark.parametrize("only", [False, True])
    def test_an_index_of_something_else_is_not_overwritten(self, tmp_path: Path, index: str, only: bool) -> None:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "index.json").write_text(index, encoding="latin-1")
        with pytest.raises(UsageError, match="site' exists and is not a bundle"):
            self.write(folder, only=only)
        assert (folder / "index.json").read_text(encoding="latin-1") == index

    def test_a_bundle_of_another_form_is_written_anew_where_that_is_asked_for(self, tmp_path: Path) -> None:
        folder = tmp_path / BUNDLE
        folder.mkdir()
        (folder / "index.json").write_text(json.dumps({"format": 1, "kjit": "0.0.1"}))
        for name in ("notes.txt", "fill-0123456789abcdef.so"):
            (folder / name).touch()
        with pytest.raises(UsageError, match=r"is a bundle written by kjit 0\.0\.1, in a format") as caught:
            self.write(folder)
        assert caught.value.hint == "--only replaces all of it"
        shutil.rmtree(tmp_path / "artifacts")
        assert self.write(folder, only=True).libraries == 1
        (library,) = folder.glob("*.so")
        assert {path.name for path in folder.iterdir()} == {"index.json", "notes.txt", library.name}
        assert library.read_text() == "cuda:sm_90a"

    def test_a_write_that_fails_leaves_the_old_bundle(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / BUNDLE
        self.write(folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        real = os.replace

        def replace(source: str, to: Path) -> None:
            if to.name == "index.json":
                raise OSError(28, "No space left on device")
            real(source, to)

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KjitError, match="cannot be written: No space left on device"):
            self.write(folder, target=Target.cuda("10.0a"))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_two_modules_with_one_identity_are_refused(self, tmp_path: Path) -> None:
        other = Spec("fill", "1", cuda_files=["/y/fill.cuh"])
        built = [
            (Variant(self.SPEC, self.TARGET), artifact_of(tmp_path, self.SPEC, self.TARGET)),
            (Variant(other, self.TARGET), artifact_of(tmp_path, other, self.TARGET, "b")),
        ]
        with pytest.raises(UsageError, match="fill<1> is declared twice, from different files"):
            bundle_writer.write(tmp_path / BUNDLE, built)

    def test_an_artifact_that_was_altered_is_not_shipped(self, tmp_path: Path) -> None:
        artifact = artifact_of(tmp_path, self.SPEC, self.TARGET)
        artifact.library.write_text("other")
        with pytest.raises(KjitError, match="changed while the bundle was written"):
            bundle_writer.write(tmp_path / BUNDLE, [(Variant(self.SPEC, self.TARGET), artifact)])
        artifact.library.unlink()
        with pytest.raises(KjitError, match=r"was removed from the cache while the bundle was written \(No such file"):
            bundle_writer.write(tmp_path / BUNDLE, [(Variant(self.SPEC, self.TARGET), artifact)])
        assert not (tmp_path / BUNDLE).exists()


class TestLoading:
    """The steps after a library was rejected."""

    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture, cache_dir: Path) -> Iterator[None]:
        del cache_dir
        with caplog.at_level(logging.DEBUG, "kjit"):
            yield

    def test_a_stale_bundle_is_reported_once_and_the_edited_source_is_compiled(
        self, package: Package, caplog: pytest.LogCaptureFixture
    ) -> None:
        package.header.write_text("#define FACTOR 10\n")
        assert package.level() in (20, 30, 40)
        assert package.level() in (20, 30, 40)
        (told,) = [line for line in caplog.messages if "is not taken from the bundle" in line]
        assert told.startswith(f"level<fp32_t> cpu is not taken from the bundle {package.prebuilt}: ")
        assert told.endswith(": csrc/level.h changed since it was built")

    def test_where_nothing_may_be_compiled_the_error_says_why_the_bundle_did_not_do(
        self, package: Package, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KJIT_NO_COMPILE", "1")
        package.header.write_text("#define FACTOR 10\n")
        with pytest.raises(NotPrebuiltError) as error:
            package.level()
        assert error.value.message == (
            "level<fp32_t> cpu is not built, because it was never built here, and KJIT_NO_COMPILE is set.\n"
            f"  the bundle '{package.prebuilt}' does not fit: csrc/level.h changed since it was built"
        )

    def test_where_there_is_no_compiler_either_that_error_is_the_same_kind(
        self, package: Package, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.setenv("CXX", "")
        package.header.write_text("#define FACTOR 10\n")
        with pytest.raises(ToolchainError, match=r"No C\+\+ compiler(.|\n)*level.h changed since it was built"):
            package.level()
        monkeypatch.setenv("KJIT_NO_COMPILE", "1")
        with pytest.raises(NotPrebuiltError, match=r"without the compilers that filled it(.|\n)*level.h changed"):
            package.level()

    def test_a_library_that_the_loader_refuses_is_compiled_here(
        self, package: Package, caplog: pytest.LogCaptureFixture
    ) -> None:
        for path in package.libraries().values():
            path.write_bytes(b"no library")

        def edit(index: Any) -> None:
            for library in index["libraries"]:
                library.update(describe(b"no library"))

        package.edit_index(edit)
        assert package.level() in (2, 3, 4)
        assert any("cannot be loaded" in line for line in caplog.messages)

    def test_load_jit_and_jit_find_the_bundle_beside_the_file_that_calls_them(
        self, package: Package, forked: Forks
    ) -> None:
        (package.folder / "level.py").write_text(
            "import kjit\nfrom pathlib import Path\n"
            "SPEC = dict(cpp_files=[Path(__file__).parent / 'csrc' / 'level.cpp'])\n"
            "def loaded():\n    return kjit.load_jit('level', 'fp32_t', **SPEC)\n"
            "@kjit.jit('level', 'fp32_t', device='cpu', **SPEC)\n"
            "def called(module):\n    return module.level()\n"
            "@kjit.module()\n"
            "def _declared():\n    return kjit.Spec('level', 'fp32_t', **SPEC)\n"
        )
        script = (
            "from kernels import level\nfrom kjit.engine.toolchain.toolchain import Toolchain\n"
            "Toolchain.for_target = None\n"
            "print(level.loaded().level(), level.called(), level._declared(device='cpu').level())\n"
        )
        done = run_python(forked, script, package.folder.parent)
        assert len(set(done.split())) == 1
        assert len(done.split()) == 3


def run_python(forked: Forks, script: str, folder: Path) -> str:
    """The output of a script that runs in `folder` without a compiler on its PATH."""
    done = forked.run(script, cwd=folder, PATH="/nonexistent", KJIT_NO_COMPILE="1")
    assert done.returncode == 0, done.stderr
    return done.stdout
