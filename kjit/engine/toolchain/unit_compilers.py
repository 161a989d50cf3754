"""The compilers of units: of C++, nvcc, NVRTC with g++, and the simulator's, all with one interface.

Each side of a spec has one for a target (`Toolchain.compilers`). What differs between compilers is asked of these
objects: plans, keys, refusals and explanations of errors know none by name. Another toolchain is a class like these (in
a module of its own), a row of `KINDS` in kjit/spec.py, and a row of `_SEARCHES` in toolchain.py.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kjit import env
from kjit.engine.toolchain import build_flags
from kjit.engine.toolchain.cuda import INSTALL_CUDA, CudaHeaders, CudaToolkit
from kjit.engine.toolchain.memo import Stamp
from kjit.engine.toolchain.nvrtc import WRAPPED, Nvrtc
from kjit.engine.toolchain.options import PLAIN_FOR_CXX, PLAIN_FOR_NVCC, Dialect, parse
from kjit.spec import NVCC_FLAGS, SIDES, Side, Spec

if TYPE_CHECKING:
    from kjit.engine.compile.steps import Build, Step, Unit
    from kjit.engine.toolchain.toolchain import Toolchain

_FIRST_ERROR = re.compile(r"^(?P<file>[^\s:(]+)[:(]\d+\)?(?::\d+)?: (?:catastrophic )?error", re.MULTILINE)


class UnitCompiler:
    """The compiler of the sources of one side.

    Attributes:
        side: the side.
        suffix: the suffix of generated units.
        dialect: how an op's flags for it are spelled.
        takes_flags_of_nvcc: whether these are nvcc's, with their pitfalls (refusals.py).
        flag_variables: variables with further flags.
        plain: the paths that it reads correctly.
        passes_paths_on: whether programs that it runs get the absolute path of a unit, which launchers compare.
        support: the objects of support code (support.py) that its units need, besides those of C++.
        toolkit, headers, nvrtc: those of CUDA, if it uses them.
        instead: the compiler of the units that it does not compile.
    """

    side: ClassVar[Side] = "cuda"
    suffix: ClassVar[str] = "cu"
    dialect: ClassVar[Dialect] = "c++"
    takes_flags_of_nvcc: ClassVar[bool] = False
    flag_variables: ClassVar[tuple[str, ...]] = ()
    plain: ClassVar[re.Pattern[str]] = PLAIN_FOR_CXX
    passes_paths_on: ClassVar[bool] = False
    support: ClassVar[tuple[str, ...]] = ()
    toolkit: CudaToolkit | None = None
    headers: CudaHeaders | None = None
    nvrtc: Nvrtc | None = None
    instead: UnitCompiler | None = None

    @property
    def label(self) -> str:
        """For display: `nvcc 13.0`; empty for the C++ compiler."""
        return ""

    def options(self, toolchain: Toolchain, spec: Spec) -> dict[str, list[str]]:
        """All options for the units of `spec`, by purpose."""
        raise NotImplementedError

    def steps(self, unit: Unit, build: Build) -> Iterator[Step]:
        """The commands that compile a unit."""
        raise NotImplementedError

    def identity(self) -> dict[str, object]:
        """Everything besides the C++ compiler that can change its output, as JSON."""
        return {}

    def explain(self, log: str) -> str | None:
        """A hint for a failed build that is about this compiler, by the output; None for others."""
        del log
        return None

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        """The files that it depends on."""
        return ()

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """The folders of the headers that come with it."""
        return ()

    def link_flags(self) -> list[str]:
        """The flags that its objects need in a link."""
        return []

    def given(self, spec: Spec, environment: Mapping[str, str]) -> dict[str, Sequence[str]]:
        """The flags that are not kjit's, by source: a field of the spec, or a variable."""
        field = SIDES[self.side][2]
        return {field: getattr(spec, field)} | {each: environment.get(each, "").split() for each in self.flag_variables}


class CxxUnits(UnitCompiler):
    """g++ or clang, for C++."""

    side = "cpu"
    suffix = "cpp"

    def options(self, toolchain: Toolchain, spec: Spec) -> dict[str, list[str]]:
        return {"c++": build_flags.cxx_flags(toolchain, spec)}

    def steps(self, unit: Unit, build: Build) -> Iterator[Step]:
        flags = build.links.flags(build_flags.cxx_flags(build.toolchain, build.spec), self.plain)
        yield compile_step(unit, build, (str(build.toolchain.cxx.path), *flags, "-x", "c++"))


@dataclass(frozen=True)
class NvccUnits(UnitCompiler):
    """nvcc."""

    toolkit: CudaToolkit

    dialect = "nvcc"
    takes_flags_of_nvcc = True
    flag_variables = NVCC_FLAGS
    plain = PLAIN_FOR_NVCC
    passes_paths_on = True
    support: ClassVar[tuple[str, ...]] = ("cuda",)

    @property
    def label(self) -> str:
        return self.toolkit.nvcc.label

    def options(self, toolchain: Toolchain, spec: Spec) -> dict[str, list[str]]:
        return {"nvcc": build_flags.nvcc_flags(toolchain, spec)}

    def steps(self, unit: Unit, build: Build) -> Iterator[Step]:
        # nvcc derives the paths of its parts from its own path, so the folder of the toolkit must be plain too.
        path = self.toolkit.nvcc.path
        nvcc = os.path.join(build.links.folder(str(path.parent.parent), self.plain), *path.parts[-2:])
        flags = build.links.flags(build_flags.nvcc_flags(build.toolchain, build.spec), self.plain, self.dialect)
        yield compile_step(unit, build, (nvcc, *flags, "-x", "cu"))

    def identity(self) -> dict[str, object]:
        return {"cuda": self.toolkit.identity()}

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        nvcc = self.toolkit.nvcc
        return ((str(nvcc.path), nvcc.size, nvcc.mtime_ns), *self.toolkit.stamps)

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        return self.toolkit.include_dirs

    def link_flags(self) -> list[str]:
        # Folders for an op's own -lcublas or -lcuda.
        lib = self.toolkit.lib_dir
        return [f"-L{lib}", f"-L{lib / 'stubs'}", str(self.toolkit.cudart)]


@dataclass(frozen=True)
class NvrtcUnits(NvccUnits):
    """NVRTC for device halves, g++ for host halves (two_halves.py).

    Attributes:
        instead: nvcc, if it compiles the units that are not NVRTC's.
    """

    nvrtc: Nvrtc
    instead: NvccUnits | None = None

    plain = PLAIN_FOR_CXX
    passes_paths_on = False
    support = ("cuda", "kernels")

    @property
    def label(self) -> str:
        return self.nvrtc.label

    def options(self, toolchain: Toolchain, spec: Spec) -> dict[str, list[str]]:
        others = {} if self.instead is None else self.instead.options(toolchain, spec)
        return others | build_flags.flags_of_halves(toolchain, spec)

    def steps(self, unit: Unit, build: Build) -> Iterator[Step]:
        from kjit.engine.compile.two_halves import steps_of  # a look-up does not need it

        return steps_of(unit, build)

    def identity(self) -> dict[str, object]:
        return super().identity() | {"NVRTC": self.nvrtc.identity()}

    def explain(self, log: str) -> str | None:
        first = _FIRST_ERROR.search(log)
        if first is not None and first["file"].startswith("/usr/"):
            name = os.path.basename(first["file"])
            return f"NVRTC does not take {name}, which is for host code, and nvcc does: {self.use_nvcc}"
        return None

    @property
    def use_nvcc(self) -> str:
        """A hint about compiling with nvcc what NVRTC does not take."""
        return f"set {env.CUDA_COMPILER} to auto or nvcc" if self.toolkit.has_nvcc else INSTALL_CUDA

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        return (*super().stamps, *self.nvrtc.stamps)

    def link_flags(self) -> list[str]:
        return [*(f"-Wl,--wrap={name}" for name in WRAPPED), *super().link_flags()]


@dataclass(frozen=True)
class SimulatedUnits(UnitCompiler):
    """The C++ compiler, for CUDA units that run in the simulator: preprocessed, rewritten, and compiled as C++."""

    headers: CudaHeaders

    dialect = "nvcc"
    takes_flags_of_nvcc = True
    support = ("cuda",)

    def options(self, toolchain: Toolchain, spec: Spec) -> dict[str, list[str]]:
        simulator = build_flags.simulator_flags(toolchain)
        return {"simulated CUDA": build_flags.sim_flags(toolchain, spec), "simulator": simulator}

    def steps(self, unit: Unit, build: Build) -> Iterator[Step]:
        from kjit import cpp_text
        from kjit.engine.compile.rewrite import rewrite  # no other build needs it
        from kjit.engine.compile.steps import Step

        flags = build.links.flags(build_flags.sim_flags(build.toolchain, build.spec), self.plain)
        compiler = (str(build.toolchain.cxx.path), *flags)
        plain, rewritten, output = f"{unit.name}.ii", f"{unit.name}.sim.ii", f"{unit.name}.o"
        dependencies = ("-MD", "-MF", f"{plain}.d", "-MT", plain)
        preprocess = (*compiler, "-x", "c++", "-E", unit.path)
        yield Step(plain, (*preprocess, *dependencies, "-o", plain), generated=unit.generated, reads=build.reads)
        # -I and -S: Python starts without a search for packages.
        rewriter = Path(rewrite.__file__).resolve()
        program = (sys.executable, "-I", "-S", str(rewriter))
        read = tuple(map(str, (*sorted(rewriter.parent.glob("*.py")), Path(cpp_text.__file__).resolve())))
        yield Step(rewritten, (*program, plain, rewritten, *preprocess), (plain,), reads=read)
        # Without -include, whose headers are in the preprocessed unit.
        rest = [word for flag in parse(compiler) if flag.meaning != "header" for word in flag.words()]
        compiled = (*build.launcher, *rest, "-x", "c++-cpp-output", "-c", rewritten, "-o", output)
        yield Step(output, compiled, (rewritten,))

    def identity(self) -> dict[str, object]:
        return {"cuda": self.headers.identity()}

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        return self.headers.stamps

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        return self.headers.include_dirs

    def link_flags(self) -> list[str]:
        # The simulator's CUDA runtime takes precedence over one in the process.
        return ["-Wl,-Bsymbolic", "-pthread", "-ldl", "-lrt"]


def compile_step(unit: Unit, build: Build, compiler: Sequence[str]) -> Step:
    """The command that compiles a unit at once.

    Args:
        compiler: the program and its options.
    """
    from kjit.engine.compile.steps import Step  # a look-up does not need it

    output = f"{unit.name}.o"
    arguments = (*build.launcher, *compiler, "-MD", "-MF", f"{output}.d", "-c", unit.path, "-o", output)
    return Step(output, arguments, generated=unit.generated, reads=build.reads)
