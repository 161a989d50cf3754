"""Machine code of an op's kernels, and how a change affects it.

An op is built again with `-lineinfo`, and with PTX on request, as a separate artifact in the cache with the same
instructions. It needs a CUDA compiler but no GPU.
"""

from __future__ import annotations

import linecache
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kjit.engine.cache.store import Artifact
from kjit.engine.diagnostics.machine_code import Instruction, Kernel, Place, read_library
from kjit.engine.diagnostics.printed import shown_path
from kjit.engine.diagnostics.symbols import base_name, demangle, function_name, short_names
from kjit.engine.reports import compiler_of, made_by, report_of
from kjit.engine.toolchain.locations import kjit_include
from kjit.errors import KjitError, UsageError
from kjit.spec import Spec, Target, Variant

_ACCESSES = ("global loads", "global stores", "global to shared copies", "shared loads", "shared stores")
_RESOURCES = ("registers", "spills (B)", "stack (B)", "static shared memory (B)")
_VARIABLE = re.compile(
    r"^(?:\.\w+ )*\.(?:global|const) (?:\.\w+ (?:\d+ )?)*(?P<name>[\w$]+)(?:\[\d*\])?(?: = .*)?;", re.MULTILINE
)
_LOCAL = ("local loads", "local stores")


@dataclass(frozen=True)
class Code:
    """The kernels of one variant.

    Args:
        label: `scale<fp32_t> cuda:sm_90a`.
        sources: the op's own files, whose lines take precedence over those in headers.
        compiler: what made it, as `NVRTC 13.0`; empty if that is unknown.
        why_nvcc: why that is nvcc although NVRTC is here, as the end of a sentence; else empty.
    """

    label: str
    kernels: tuple[Kernel, ...]
    sources: tuple[str, ...] = ()
    compiler: str = ""
    why_nvcc: str = ""

    @property
    def heading(self) -> str:
        """`scale<fp32_t> cuda:sm_90a, by NVRTC 13.0`."""
        return ", ".join(filter(None, (self.label, made_by(self.compiler, self.why_nvcc))))


def variant_to_inspect(spec: Spec, target: Target, *, ptx: bool = False) -> Variant:
    """`spec` for `target` with line information, and also with PTX if `ptx`.

    Raises:
        UsageError: it has no CUDA side.
    """
    cuda = spec.only("cuda")
    virtual = (
        [f"-gencode=arch=compute_{arch.digits},code=compute_{arch.digits}" for arch in target.archs] if ptx else []
    )
    return Variant(cuda.changed(extra_cuda_cflags=(*cuda.extra_cuda_cflags, "-lineinfo", *virtual)), target)


def code_of(variant: Variant, artifact: Artifact) -> Code:
    """The machine code of a built variant.

    Raises:
        ToolchainError: cuobjdump or nvdisasm is not installed.
    """
    kernels = read_library(artifact.library, report_of(artifact)[1])
    return Code(variant.label, tuple(kernels), variant.spec.cuda_files, *compiler_of(artifact))


def code_in_file(path: Path) -> list[Code]:
    """The machine code in a library or a cubin, or the numbers in a file written by `kjit inspect --json`.

    Raises:
        UsageError: the file is something else.
    """
    if path.suffix not in (".so", ".cubin"):
        raise UsageError(
            f"'{path}' is neither a library nor a cubin.", hint="name an .so, a .cubin, or a revision: --against HEAD"
        )
    return [Code(path.stem, tuple(read_library(path)))]


def place_of(instruction: Instruction, sources: Sequence[str]) -> Place | None:
    """The position of an instruction for its author: in the op's own files if possible."""
    own = [place for place in instruction.places if os.path.normpath(place[0]) in sources]
    return next(iter(own or instruction.places), None)


def needs(kernel: Kernel) -> str:
    """`40 registers, no spills, 1152 B of static shared memory, 357 instructions`."""
    parts = []
    used = kernel.resources
    if used is not None:
        spilled = used.spill_stores + used.spill_loads
        parts.append(f"{used.registers} registers")
        parts.append(f"{spilled} B of spills" if spilled else "no spills")
        if used.stack:
            parts.append(f"{used.stack} B of stack")
        if used.shared:
            parts.append(f"{used.shared} B of static shared memory")
    return ", ".join([*parts, f"{kernel.size} instructions"])


def accesses(kernel: Kernel) -> str:
    """`global loads 4 x 128 bit, global stores 2 x 128 bit`, widest first."""
    kinds = [kind for kind in (*_ACCESSES, *_LOCAL, "generic loads", "generic stores") if kernel.widths(kind)]
    return "; ".join(f"{kind} {widths_of(kernel, kind)}" for kind in kinds) or "no loads and stores"


def widths_of(kernel: Kernel, kind: str) -> str:
    """`4 x 128 bit, 1 x 32 bit`; empty if there are none."""
    return ", ".join(f"{count} x {bits} bit" for bits, count in sorted(kernel.widths(kind).items(), reverse=True))


def mix(kernel: Kernel) -> str:
    """`fp32 66, integers 167`, largest first, without loads and stores."""
    kinds = [(kind, count) for kind, count in kernel.kinds.most_common() if not kernel.widths(kind)]
    return ", ".join(f"{kind} {count}" for kind, count in kinds)


def listing(code: Code, kernel: Kernel) -> Iterator[str]:
    """A kernel's instructions, grouped below their source lines."""
    at: Place | None = None
    for each in kernel.instructions:
        place = place_of(each, code.sources)
        if place is not None and place != at:
            yield source_line(place)
        at = place
        yield f"    {each.address:04x}  {each.text}"


def source_line(place: Place) -> str:
    """`kernels/csrc/scale.cuh:21  out = x * alpha;`"""
    return f"{shown_place(place)}  {linecache.getline(*place).strip()}".rstrip()


def short_name(signature: str) -> str:
    """`copy<float>` for `void <unnamed>::copy<float>(const T1 *, T1 *)`, as CUDA's tools and PyTorch print it."""
    name = function_name(re.sub(r"(?:<unnamed>|\(anonymous namespace\)|\{anonymous\})::", "", signature))
    return short_names([name])[0]


def is_of_kjit(file: str) -> bool:
    """Whether a file is a header of kjit."""
    return Path(os.path.normpath(file)).is_relative_to(kjit_include())


def shown_place(place: Place) -> str:
    """`kernels/csrc/scale.cuh:21`, and `<kjit/device.cuh>:76` for a header of kjit's."""
    path = os.path.normpath(place[0])
    shown = f"<{os.path.relpath(path, kjit_include())}>" if is_of_kjit(path) else shown_path(path)
    return f"{shown}:{place[1]}"


def ptx_listing(text: str, sources: Sequence[str]) -> Iterator[str]:
    """PTX from cuobjdump, with source lines in place of `.loc`, and C++ names of kernels."""
    files = {int(number): path for number, path in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', text, re.MULTILINE)}
    at: Place | None = None
    chain: list[Place] = []
    text = text[text.index(".version") :]
    for symbol in dict.fromkeys(re.findall(r"^(?:\.\w+ )*\.(?:entry|func)\b.*?(_Z\w+)", text, re.MULTILINE)):
        text = text.replace(f"{symbol}_param_", "param_").replace(symbol, demangle(symbol))
    # Of the C++ library's classes there are dozens of constants, and no kernel uses them.
    words = Counter(re.findall(r"[\w$]+", text))
    text = _VARIABLE.sub(lambda found: "" if words[found["name"]] == 1 else found[0], text)
    text = re.sub(r"^\s*\.section\s.*?\n\s*$", "", text, flags=re.MULTILINE | re.DOTALL)  # debug information
    for line in text.splitlines():
        loc = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)
        if loc is not None:
            place = (files.get(int(loc[1]), "?"), int(loc[2]))
            chain = [*chain, place] if "inlined_at" in line and chain else [place]
            continue
        if not line.strip() or re.match(r"\s*\.file\s", line):
            continue
        if chain:
            own = [place for place in chain if os.path.normpath(place[0]) in sources]
            place = own[-1] if own else chain[-1]
            if place != at:
                yield source_line(place)
                at = place
            chain = []
        yield f"    {line.rstrip()}"


@dataclass(frozen=True)
class Difference:
    """The effect of a change on a kernel: numbers before and now, by name.

    Args:
        before, now: None if there is no such kernel.
    """

    variant: str
    kernel: str
    before: Mapping[str, int] | None
    now: Mapping[str, int] | None

    @property
    def changed(self) -> list[tuple[str, int, int]]:
        """The differences: name, before, now."""
        before, now = self.before or {}, self.now or {}
        # Registers and the like may be unknown in one of them.
        names = [n for n in dict.fromkeys((*before, *now)) if n not in _RESOURCES or (n in before and n in now)]
        return [(n, before.get(n, 0), now.get(n, 0)) for n in names if before.get(n, 0) != now.get(n, 0)]


def compare(before: Sequence[Code], now: Sequence[Code]) -> list[Difference]:
    """Pairs of kernels of the same name in the same variant; or in one file with all kernels, if `before` is a single
    code whose label is not a variant."""
    found = []
    whole = before[0] if len(before) == 1 and before[0].label not in {code.label for code in now} else None
    for code in now:
        then = whole or next((each for each in before if each.label == code.label), None)
        old = {} if then is None else {(kernel.name, kernel.arch): kernel for kernel in then.kernels}
        names = short_names([kernel.name for kernel in code.kernels])
        for name, kernel in zip(names, code.kernels, strict=True):
            match = old.pop((kernel.name, kernel.arch), None)
            found.append(Difference(code.label, name, None if match is None else numbers(match), numbers(kernel)))
        if whole is None:
            gone = list(old.values())
            names = short_names([kernel.name for kernel in gone])
            found += [Difference(code.label, n, numbers(k), None) for n, k in zip(names, gone, strict=True)]
    return found


def numbers(kernel: Kernel) -> dict[str, int]:
    """The compared numbers: registers, spills, instructions, and the count of each kind and width."""
    used = kernel.resources
    counted: dict[str, int] = {}
    if used is not None:
        amounts = (used.registers, used.spill_stores + used.spill_loads, used.stack, used.shared)
        counted = dict(zip(_RESOURCES, amounts, strict=True))
    counted["instructions"] = kernel.size
    for kind, count in kernel.kinds.most_common():
        widths = kernel.widths(kind)
        counted |= {f"{kind}, {bits} bit": n for bits, n in sorted(widths.items(), reverse=True)} or {kind: count}
    return counted


def to_json(codes: Sequence[Code]) -> list[dict[str, Any]]:
    """For `--json`: one element per kernel."""
    return [
        {
            "variant": code.label,
            "kernel": kernel.name,
            "arch": kernel.arch,
            "compiler": code.compiler,
            "why_nvcc": code.why_nvcc,
            "instructions": kernel.size,
            "resources": None if kernel.resources is None else asdict(kernel.resources),
            "kinds": dict(kernel.kinds.most_common()),
            "widths": {
                kind: {str(bits): count for bits, count in sorted(kernel.widths(kind).items())}
                for kind in (*_ACCESSES, *_LOCAL)
                if kernel.widths(kind)
            },
        }
        for code in codes
        for kernel in code.kernels
    ]


def choose(codes: Sequence[Code], kernel: str | None) -> list[Code]:
    """The kernels whose names contain `kernel`.

    Raises:
        KjitError: there is none.
    """
    if kernel is None:
        return list(codes)
    chosen = [replace(code, kernels=tuple(each for each in code.kernels if kernel in each.name)) for code in codes]
    chosen = [code for code in chosen if code.kernels]
    if not chosen:
        known = dict.fromkeys(base_name(each.name) or each.name for code in codes for each in code.kernels)
        raise KjitError(f"no kernel has '{kernel}' in its name.", hint=f"there is {', '.join(known) or 'none'}")
    return chosen
