"""Calls of scaffolded ops with random shapes, dtypes and alignments, compared with their references.

    python tools/scaffold_fuzz.py [--device cuda] [--ops rms_norm,scale] [--cases 200] [--seed 0] [--elements 1000000]
    python tools/scaffold_fuzz.py --project FOLDER ...

The ops are those of `tests/scaffold/matrix.py` and, on a GPU or in the simulator, of `tests/scaffold/real_ops.py`; or
those of a project that have a wrapper, a test with a reference, and a signature as written by `kjit new`. Most sizes
are near powers of two and multiples of vectors; an op of pattern custom has the sizes in its test, because others may
not suit its kernel. Most cases have unaligned tensors, and some pass outputs or omit optional inputs. Each tensor is
surrounded by bytes that must not change. CUDA kernels run on a GPU if there is one, else in the simulator. Each failed
case is printed, and a line for each op. Exit status 1: a case failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "scaffold")]

from matrix import OPS, RARE, write_all  # noqa: E402
from real_ops import REAL  # noqa: E402

import kjit.testing  # noqa: E402
from kjit.project import find_project  # noqa: E402
from kjit.scaffold.patterns import Placed, check_signature, find_pattern  # noqa: E402
from kjit.signature.parser import parse_signature  # noqa: E402
from kjit.signature.signature import ELLIPSIS  # noqa: E402
from kjit.signature.sizes import Size  # noqa: E402
from kjit.testing import OpTest  # noqa: E402

_GUARD_BYTES = 256
_GUARD = 0x5A


@dataclass(frozen=True)
class Case:
    """One call of an op."""

    shape: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    absent: tuple[str, ...]
    given_outputs: bool
    offsets: tuple[int, ...]  # elements before each tensor in turn


@dataclass(frozen=True)
class Guarded:
    """A tensor in memory that otherwise has one byte everywhere."""

    tensor: torch.Tensor
    memory: torch.Tensor
    begin: int

    @classmethod
    def copy_of(cls, tensor: torch.Tensor, offset: int) -> Guarded:
        begin, size = _GUARD_BYTES + offset * tensor.element_size(), tensor.numel() * tensor.element_size()
        memory = torch.full((begin + size + _GUARD_BYTES,), _GUARD, dtype=torch.uint8, device=tensor.device)
        inside = memory[begin : begin + size].view(tensor.dtype).view(tensor.shape)
        return cls(inside.copy_(tensor), memory, begin)

    def is_intact(self) -> bool:
        end = self.begin + self.tensor.numel() * self.tensor.element_size()
        return bool((self.memory[: self.begin] == _GUARD).all() and (self.memory[end:] == _GUARD).all())


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, help="a folder with scaffolded ops; default: those of the matrix")
    parser.add_argument("--ops", help="some of the ops, separated by commas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cases", type=int, default=200, help="calls of each op")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--elements", type=int, default=1_000_000, help="the maximum for the largest tensor")
    options = parser.parse_args(args)
    with contextlib.ExitStack() as stack:
        folder = options.project or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chosen = options.ops.split(",") if options.ops else None
        if options.project is None:
            _write_matrix(folder, chosen, options.device)
        if options.device == "cuda" and not torch.cuda.is_available():
            stack.enter_context(kjit.testing.simulated())
            options.device = "cpu"
        project = find_project(folder)
        sys.path[:0] = [str(project.root), str(project.root / "tests")]
        tests = (path.stem.removeprefix("test_") for path in (project.root / "tests").glob("test_*.py"))
        wrappers = {op: project.package_dir / f"{op}.py" for op in sorted(tests)}
        ops = [op for op, wrapper in wrappers.items() if wrapper.exists()]
        if unknown := set(chosen or ops) - set(ops):
            parser.error(f"there is no op {', '.join(sorted(unknown))} that has a wrapper and a test")
        return sum(_try(op, wrappers[op], options) for op in chosen or ops) > 0


def _write_matrix(folder: Path, chosen: Sequence[str] | None, device: str) -> None:
    package = f"fuzzed_{device}"
    (folder / "pyproject.toml").write_text(f'[tool.kjit]\npackage = "{package}"\n')
    write_all(folder, [replace(op, devices=device) for op in [*OPS, *RARE] if chosen is None or op.name in chosen])
    for real in REAL if device == "cuda" else ():
        if chosen is None or real.op.name in chosen:
            real.write(folder, package)


def _try(op: str, wrapper: Path, options: argparse.Namespace) -> int:
    """Call an op many times; return the number of failed calls."""
    placed = _placed(op, wrapper.read_text())
    module = importlib.import_module(f"test_{op}")
    (tests,) = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, OpTest))
    if getattr(tests, "test_the_reference_is_written", None) is not None:
        print(f"{op}: its reference is not written yet", flush=True)
        return 0
    source = random.Random(f"{op} {options.seed}")
    torch.manual_seed(source.getrandbits(32))
    failed = 0
    for _ in range(options.cases):
        case = _random_case(source, placed, tests, options.elements)
        problem = _problem(tests, case, options.device)
        if problem is not None:
            failed += 1
            print(f"{op}: {case}\n    {problem}", flush=True)
    print(f"{op}: {options.cases} cases, {failed} failed", flush=True)
    return failed


def _placed(op: str, wrapper: str) -> Placed:
    """The placed signature of an op, from the docstring of its wrapper."""
    signature = re.search(r"^Signature: (.*?)\n\n", wrapper, re.MULTILINE | re.DOTALL)
    pattern = re.search(r"^Pattern: (\w+)$", wrapper, re.MULTILINE)
    if signature is None or pattern is None:
        raise SystemExit(
            f"the wrapper of '{op}' has no signature and pattern in its docstring, as `kjit new` writes them"
        )
    return check_signature(parse_signature(" ".join(signature[1].split())), find_pattern(pattern[1]), op)


def _random_case(source: random.Random, placed: Placed, tests: type[OpTest], elements: int) -> Case:
    is_custom = "whole" in placed.kinds.values()
    return Case(
        source.choice(tests.shapes) if is_custom else _random_shape(source, placed, elements),
        source.choice(tests.variants),
        tuple(name for name in tests.optional if source.random() < 0.2),
        bool(tests.outputs) and source.random() < 0.7,
        _random_offsets(source, len(placed.signature.tensors)),
    )


def _random_offsets(source: random.Random, tensors: int) -> tuple[int, ...]:
    """Offsets from an aligned address: none, for one tensor, or mostly the same for all."""
    offsets = [0] * tensors
    kind = source.random()
    if 0.4 < kind < 0.7:
        offsets[source.randrange(tensors)] = source.randint(1, 17)
    elif kind > 0.7:
        common = source.choice((1, 2, 3, 4, 5, 8))
        offsets = [source.choice((common, common, source.randint(0, 17))) for _ in offsets]
    return tuple(offsets)


def _random_shape(source: random.Random, placed: Placed, elements: int) -> tuple[int, ...]:
    """A random shape of the main tensor."""
    dimensions: list[int | str] = []
    for dimension in placed.main.shape:
        assert not isinstance(dimension, Size)  # these are of outputs alone
        more = [f"more{number}" for number in range(source.randint(0, 3))]
        dimensions += more if dimension == ELLIPSIS else [dimension]
    left = elements // max(1, math.prod(dimension for dimension in dimensions if isinstance(dimension, int)))
    named = sorted({dimension for dimension in dimensions if isinstance(dimension, str)})
    sizes: dict[str, int] = {}
    for name in source.sample(named, len(named)):
        times = dimensions.count(name)
        largest = max(1, int(left ** (source.uniform(0.3, 1) / times)))
        # A row of no elements has no mean, and as an integer that is nothing certain.
        smallest = 1 if placed.sums and name in placed.row else 0
        sizes[name] = max(smallest, min(_random_size(source, largest), largest))
        left //= max(1, sizes[name] ** times)
    return tuple(dimension if isinstance(dimension, int) else sizes[dimension] for dimension in dimensions)


def _random_size(source: random.Random, largest: int) -> int:
    kind = source.random()
    if kind < 0.03:
        return 0
    if kind < 0.4:
        return (1 << source.randint(0, largest.bit_length())) + source.choice((0, 0, 0, -1, 1, 2, -2, 4, 8, -8))
    if kind < 0.8:
        unit = source.choice((8, 16, 64, 512))
        return unit * source.randint(1, max(1, largest // unit))
    return source.randint(1, largest)


def _problem(tests: type[OpTest], case: Case, device: str) -> str | None:
    """The mistake in the results of a call; None if they are right."""
    inputs = tests.make(device, shape=case.shape, dtypes=case.dtypes)
    absent = dict.fromkeys(case.absent)
    expected = tests.expect(inputs | absent)
    if case.given_outputs:
        inputs = tests.with_outputs(inputs)
    inputs |= absent
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    guarded = {
        name: Guarded.copy_of(tensor, offset)
        for (name, tensor), offset in zip(tensors.items(), case.offsets, strict=False)
    }
    inputs |= {name: each.tensor for name, each in guarded.items()}
    try:
        tests.check(tests.run(inputs), expected, inputs)
    except (AssertionError, RuntimeError, kjit.KjitError) as error:
        return " ".join(str(error).split())[:600]
    beside = [name for name, each in guarded.items() if not each.is_intact()]
    return f"wrote beside {', '.join(beside)}" if beside else None


if __name__ == "__main__":
    sys.exit(main())
