"""The part of kjit's headers that is compiled once for all ops.

Error messages and argument checks are most of the code that the C++ compiler would optimise in a small op, and they are
the same in each. So ops are compiled with `-DKJIT_PRECOMPILED`, which leaves only declarations, and linked with objects
made from `kjit/csrc/support/`: `host` for every module, `cuda` for those with kernels, `kernels` if NVRTC compiles
these. Simulated modules have their own variants of `host` and `cuda`, and the simulator: an object for each file of
`kjit/csrc/sim/`. The first build that needs an object makes it, in parallel with its own units, and keeps it in
`<cache>/v2/support/<key>/`. The key is a hash of the compiler's identity, the flags, and the contents of all of kjit's
headers: coarse, because a miss costs only one small compile.

An object that was changed, or that another user could have written, is not used but made again. No lock is taken: two
builds that start together both make the object.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kjit import env
from kjit.engine.cache.folders import close_to_others, make_private, read_own, refuse_unsafe
from kjit.engine.toolchain.build_flags import simulator_flags, support_flags
from kjit.engine.toolchain.locations import kjit_include, tvm_ffi_include
from kjit.engine.toolchain.memo import Stamp, stamp
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import LAYOUT
from kjit.runtime.manifest import COMPILER_ENVIRONMENT

_CSRC = Path(__file__).resolve().parents[2] / "csrc"

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class SupportObject:
    """One object of the support code.

    Attributes:
        name: `host`, `cuda`, `kernels` or `sim_<file>`; in a build its files are called `kjit_<name>.o` and
            `kjit_<name>.o.d`.
        arguments: the compiler and its flags.
        source: the file that is compiled.
        folder: the folder in the cache that keeps it.
    """

    name: str
    arguments: tuple[str, ...]
    source: Path
    folder: Path

    @property
    def output(self) -> str:
        return f"kjit_{self.name}.o"

    def fetch(self, folder: Path) -> bool:
        """Copy the object and its depfile into `folder`; False if they are not in the cache, or were changed.

        Raises:
            CacheError: other users may write to their folders, and so choose what is linked.
        """
        self._refuse_unsafe()
        kept = self._kept()
        if kept is None:
            return False
        content, depfile = kept
        (folder / self.output).write_bytes(content)
        (folder / f"{self.output}.d").write_bytes(depfile)
        return True

    def _kept(self) -> tuple[bytes, bytes] | None:
        """The object and its depfile, if both are in the cache, unchanged."""
        root = self.folder.parents[2]
        try:
            content = read_own(self.folder / self.output, root)
            depfile = read_own(self.folder / f"{self.output}.d", root)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.debug("%s is made again: %s", self.output, error)
            return None
        return (content, depfile) if depfile.startswith(_seal(content)) else None

    def keep(self, folder: Path) -> None:
        """Keep the object made in `folder` for later builds. A failure (a read-only cache) is only logged."""
        try:
            make_private(self.folder.parent)
            self._refuse_unsafe()
            made = Path(tempfile.mkdtemp(dir=self.folder.parent))
            try:
                content = (folder / self.output).read_bytes()
                (made / self.output).write_bytes(content)
                depfile = (folder / f"{self.output}.d").read_bytes()
                (made / f"{self.output}.d").write_bytes(_seal(content) + depfile)
                for each in made.iterdir():
                    close_to_others(each)
                if self._kept() is not None:  # another process was first, and others may be reading its object
                    return
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(self.folder)
                os.rename(made, self.folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        except OSError as error:
            _log.debug("%s is not kept: %s", self.output, error)

    def _refuse_unsafe(self) -> None:
        root = self.folder.parents[2]
        for each in (root, self.folder.parents[1], self.folder.parent):
            refuse_unsafe(each, follow=each == root, root=root)


def support_objects(toolchain: Toolchain) -> list[SupportObject]:
    """The objects that a module for `toolchain.target` is linked with."""
    target = toolchain.target
    names = ("host", *(() if toolchain.gpu is None else toolchain.gpu.support))
    headers = _headers_digest(simulated=target.is_simulated)

    def support_object(name: str, source: Path, flags: list[str]) -> SupportObject:
        return _support_object(name, source, flags, toolchain, headers)

    objects = [
        support_object(name, _CSRC / "support" / f"{name}.cpp", support_flags(toolchain, with_cuda=name == "cuda"))
        for name in names
    ]
    if target.is_simulated:
        flags = simulator_flags(toolchain)
        for source in simulator_sources():
            if target.is_checked or not source.name.startswith("check"):
                objects.append(support_object(f"sim_{source.stem}", source, flags))
    return objects


def simulator_sources() -> list[Path]:
    """The sources of the simulator; `check*` are for target `sim-check` only."""
    return sorted((*(_CSRC / "sim").glob("*.cpp"), *(_CSRC / "sim").glob("*.S")))


def _support_object(name: str, source: Path, flags: list[str], toolchain: Toolchain, headers: str) -> SupportObject:
    arguments = (str(toolchain.cxx.path), *flags)
    # Not the whole identity of the toolchain: one object serves all architectures, and CPU and CUDA modules alike.
    environment = {variable: os.environ.get(variable) for variable in COMPILER_ENVIRONMENT}
    known = [
        arguments,
        source.read_text(encoding="utf-8"),
        headers,
        toolchain.cxx.identity(),
        None if toolchain.gpu is None or name == "host" else toolchain.gpu.identity().get("cuda"),
        environment,
    ]
    key = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
    return SupportObject(name, arguments, source, env.cache_dir() / LAYOUT / "support" / key)


def _seal(content: bytes) -> bytes:
    """The first line of an object's depfile, a comment to Make: the object's hash."""
    return f"# {hashlib.sha256(content).hexdigest()}\n".encode()


def _headers_digest(*, simulated: bool) -> str:
    """A hash of kjit's headers, the simulator's if it is used, and the headers of tvm-ffi that they include."""
    folder = tvm_ffi_include()
    theirs = (folder / "tvm/ffi/c_api.h", folder / "tvm/ffi/extra/c_env_api.h", folder / "dlpack/dlpack.h")
    ours = sorted((kjit_include() / "kjit").rglob("*.[hc]*"))
    if simulated:
        ours += sorted(path for path in (kjit_include() / "kjit_sim").rglob("*") if path.is_file())
        ours += sorted(path for path in (_CSRC / "sim").iterdir() if path.is_file())
    return _digest(tuple(stamp(path) for path in (*ours, *theirs)))


@lru_cache(maxsize=4)
def _digest(stamps: tuple[Stamp, ...]) -> str:
    digest = hashlib.sha256()
    for path, _, _ in stamps:
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return digest.hexdigest()
