"""Builds of public CUDA programs, unchanged, with kjit: by its default compiler, by nvcc, and by NVRTC without nvcc.

python tools/programs.py FOLDER [--arch 9.0a] [--run] [--select PATTERN] [--repeat 3] [--json FILE]

FOLDER, outside this repository, is a checkout such as NVIDIA's cuda-samples or HeCBench. A program is a folder whose
sources (.cu, and .cpp beside them) define one `main`; if several do, each is a program, with the sources that have
none. It is compiled as a module, and `main` is called by an export in a C++ unit of two lines. Sources that another
one includes are not compiled on their own.

Each build is a process with a cache of its own, which begins with the code that all modules share: a build that is not
timed puts it there. Times are from the request to the library; CPU time includes all compilers. Programs that nvcc does
not build (they need other libraries or device linking) are listed and do not count. `--run` needs a GPU: the programs
of all three builds run in their folders, with the arguments of the rule `run` of their Makefile, if it has one, and
have to print and return the same as with nvcc, but for times and the like (programs_output.py).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from programs_built import Build, Ways
from programs_found import Program, find_programs
from programs_output import compare

from kjit.engine.toolchain.archs import gpu_archs, resolve_archs


@dataclass
class Row:
    """The results for a program, by way."""

    program: str
    builds: dict[str, Build]
    verdicts: dict[str, str] = field(default_factory=dict)
    differences: dict[str, list[str]] = field(default_factory=dict)
    statuses: dict[str, int | None] = field(default_factory=dict)

    def ratio(self, what: str) -> float:
        """Seconds or CPU seconds of the default over those of nvcc."""
        mine, peer = (float(getattr(self.builds[way], what)) for way in ("default", "nvcc"))
        return mine / peer


def _run_all(row: Row, program: Program, ways: Ways, limit: float) -> None:
    """Run the builds of a program, that of nvcc twice, and put the verdicts into `row`."""
    one, other = (ways.run(program, row.builds["nvcc"], limit) for _ in range(2))
    row.statuses["nvcc"] = one.status
    for way in ("default", "nvrtc"):
        if one.status is None or other.status is None:
            row.verdicts[way] = "nvcc's does not end in time"
        elif not row.builds[way].error:
            found = ways.run(program, row.builds[way], limit)
            row.statuses[way] = found.status
            row.verdicts[way], row.differences[way] = compare(found, one, other)


def _line(row: Row) -> str:
    builds = row.builds
    if builds["nvcc"].error:
        return f"{row.program}: nvcc does not build it: {builds['nvcc'].error}"
    if builds["default"].error:
        return f"{row.program}: THE DEFAULT DOES NOT BUILD IT: {builds['default'].error}"
    parts = [f"{row.program}: {builds['default'].compiler}"]
    for what, unit in (("seconds", "s"), ("cpu", "s CPU")):
        mine, peer = (getattr(builds[way], what) for way in ("default", "nvcc"))
        parts.append(f"{mine:.1f}/{peer:.1f} {unit} ({row.ratio(what):.2f})")
    hidden = builds["nvrtc"]
    parts.append(f"without nvcc {hidden.error or f'{hidden.seconds:.1f} s'}")
    parts += [f"{way} runs: {verdict} ({row.statuses.get(way)})" for way, verdict in row.verdicts.items()]
    differences = [f"    {way}: {line}" for way, lines in row.differences.items() for line in lines[:5]]
    return "\n".join([", ".join(parts), *differences])


def summary(rows: Sequence[Row]) -> Iterator[str]:
    by_nvcc = [row for row in rows if not row.builds["nvcc"].error]
    built = [row for row in by_nvcc if not row.builds["default"].error]
    yield f"{len(rows)} programs, of which nvcc builds {len(by_nvcc)}; these are built"
    compilers = Counter(row.builds["default"].compiler for row in built)
    yield f"  by default: {len(built)} ({', '.join(f'{count} by {name}' for name, count in compilers.most_common())})"
    yield f"  without nvcc: {sum(not row.builds['nvrtc'].error for row in by_nvcc)}"
    for what, name in (("seconds", "elapsed time"), ("cpu", "CPU time")):
        if built:
            worst = max(built, key=lambda row: row.ratio(what))
            median = statistics.median(row.ratio(what) for row in built)
            yield f"{name}, default/nvcc: median {median:.2f}, worst {worst.ratio(what):.2f} ({worst.program})"
    for way in ("default", "nvrtc"):
        if verdicts := Counter(row.verdicts[way] for row in rows if way in row.verdicts):
            yield f"runs of {way}: {', '.join(f'{count} {name}' for name, count in verdicts.most_common())}"
    yield from _grouped("why nvcc by default", (row.builds["default"].why_nvcc for row in built))
    yield from _grouped("errors by default", (row.builds["default"].error for row in by_nvcc))
    yield from _grouped("errors without nvcc", (row.builds["nvrtc"].error for row in by_nvcc))
    yield from _grouped("not built by nvcc", (row.builds["nvcc"].error for row in rows))


def _grouped(title: str, messages: Iterable[str]) -> Iterator[str]:
    """Messages without the places of errors, with their counts."""
    counts = Counter(re.sub(r"^\S+:\d+: |\s*\(\S+:\d+\)$", "", message) for message in messages if message)
    if counts:
        yield f"{title}:"
        yield from (f"  {count:4} {message}" for message, count in counts.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--include", type=Path, action="append", help="default: FOLDER, and its folder Common")
    parser.add_argument("--flag", action="append", default=[], help="of nvcc, or of the link; as --flag=-lcublas")
    parser.add_argument("--select", default="", metavar="PATTERN", help="a regular expression for names of programs")
    parser.add_argument("--limit", type=int, help="at most so many programs")
    parser.add_argument("--list", action="store_true", help="only list the programs and their sources")
    parser.add_argument("--arch", help="default: that of the GPU")
    parser.add_argument("--repeat", type=int, default=1, help="builds in each way, of which the median counts")
    parser.add_argument("--run", action="store_true", help="run the programs, and compare what they print")
    parser.add_argument("--run-limit", type=float, default=20.0, metavar="SECONDS", help="of one run; default 20")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    options = parser.parse_args()
    root: Path = options.folder.resolve()
    if root.is_relative_to(Path(__file__).resolve().parent.parent):
        parser.error("FOLDER is in this repository, and the code of others does not belong there")
    programs = [each for each in find_programs(root) if re.search(options.select, each.name)][: options.limit]
    if options.list:
        for each in programs:
            print(f"{each.name}: {' '.join(path.name for path in each.sources)}")
        return 0
    if not programs:
        parser.error("FOLDER has no such program")
    if options.run and not gpu_archs():
        parser.error("--run needs a GPU, and there is none")
    includes = [path.resolve() for path in options.include or (root, root / "Common")]
    arch = str(resolve_archs([options.arch] if options.arch else None)[0])
    with tempfile.TemporaryDirectory(prefix="kjit-programs-") as temporary:
        ways = Ways(Path(temporary), arch, [path for path in includes if path.is_dir()], options.flag)
        shared = ways.share()
        print(f"for {arch}; before, the code that all modules share, with an empty kernel:")
        for way, build in shared.items():
            print(f"  {way}: {build.error or f'{build.seconds:.1f} s, {build.cpu:.1f} s CPU ({build.compiler})'}")
        rows = []
        for index, program in enumerate(programs):
            row = Row(program.name, ways.build(program, options.repeat, index))
            if options.run and not row.builds["nvcc"].error:
                _run_all(row, program, ways, options.run_limit)
            print(_line(row), flush=True)
            rows.append(row)
            if options.json is not None:  # each time: a run of all programs takes an hour
                options.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    print("\n".join(["", *summary(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
