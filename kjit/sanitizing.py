"""Mistakes found by sanitizers in the tests of ops, and their positions.

On a GPU the tests run under compute-sanitizer, once per tool; without one, in the simulator, which checks every access.
Both print a report per thread, often thousands for one mistake. These are merged here: the mistake, its kernel, line,
argument, and count.

So that compute-sanitizer detects the end of a tensor, PyTorch allocates every tensor separately from CUDA
(`PYTORCH_NO_CUDA_MEMORY_CACHING`). Only the kernels of the ops are checked, selected by name, which saves most of the
time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from kjit.engine.diagnostics.machine_code import Place
from kjit.engine.diagnostics.symbols import base_name
from kjit.engine.toolchain.cuda_tools import find_tool
from kjit.inspection import Code, is_of_kjit, place_of, short_name

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

# Excluded under compute-sanitizer: unsupported by it, or taking hours.
LEFT_OUT = ("torch_compile", "torch_library", "two_to_the_31", "compiles_without_a_gpu", "cuda_graph")

_PREFIX = re.compile(r"^=========\s?(?P<text>.*)$")
_AT = re.compile(
    r"^(?:at\b|Device Frame:\s?)\s*(?P<function>.+?)(?:\+(?P<offset>0x[0-9a-f]+))?"
    r"(?: in (?P<file>[^\s].*?):(?P<line>\d+))?$"
)
_RACE = re.compile(
    r"(?P<access>Write|Read|Atomic) access (?:by .*? )?at (?P<function>.+?)\+(?P<offset>0x[0-9a-f]+)"
    r"(?: in (?P<file>.+?):(?P<line>\d+))?(?: \[(?P<hazards>\d+) hazards?\])?$"
)
_THREAD = re.compile(r"by thread (?P<thread>\([\d,]+\)) in block (?P<block>\([\d,]+\))")
_NEAREST = re.compile(
    r"and is [\d,]+ bytes (?P<side>after|before) the nearest allocation"
    r" at (?P<at>0x[0-9a-f]+) of size (?P<size>[\d,]+) bytes"
)


@dataclass(frozen=True)
class Finding:
    """A mistake.

    Args:
        tool: the tool that found it.
        what: a description: `writes 4 bytes past the end of out`.
        kernel: its name without namespaces; empty if unknown.
        file, line: its position; an empty file without line information.
        argument: the affected tensor, if known.
        count: the number of reports.
        example: thread and block of one report, or the test.
    """

    tool: str
    what: str
    kernel: str
    file: str
    line: int
    argument: str | None = None
    count: int = 1
    example: str = ""


@dataclass(frozen=True)
class Run:
    """One run of the tests.

    Args:
        tool: `memcheck` and the like, or `sim-check`.
        report: the file with all output.
        seconds: the duration.
        timed_out: whether it was ended by the time limit, in the test `test`.
        failed: the failed tests, with the first line of the reason.
        status: pytest's exit status; None if it was ended.
    """

    tool: str
    findings: tuple[Finding, ...]
    report: Path
    seconds: float
    timed_out: bool
    test: str
    failed: tuple[tuple[str, str], ...]
    status: int | None

    @property
    def is_clean(self) -> bool:
        """Whether all tests passed, and nothing was found."""
        return not (self.findings or self.failed or self.timed_out or self.status)


def run_tests(
    tool: str,
    pytest_command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    name: str,
    *,
    kernels: Iterable[str] = (),
    place: Placer | None = None,
    limit: float,
) -> Run:
    """Run tests under a sanitizer, or in the simulator if `tool` is `sim-check`.

    Args:
        pytest_command: the command up to the arguments of the recording plugin.
        folder: the folder of the report.
        name: the name of the report.
        kernels: the kernels of the ops, as named by `KernelResources`; compute-sanitizer checks only these.
        place: a function from instructions to source lines; by default those of compute-sanitizer, often in a header.
        limit: the time limit in seconds.

    Raises:
        ToolchainError: there is no compute-sanitizer.
    """
    kernels = list(kernels)
    report, record = folder / f"{name}-{tool}.txt", folder / f"{name}-{tool}.jsonl"
    log = folder / f"{name}-{tool}.log"
    for each in (report, record, log):
        each.unlink(missing_ok=True)
    command = [*pytest_command, "-p", "kjit.testing.recorded", "--kjit-record", str(record)]
    if tool != "sim-check":
        command = [*sanitizer_command(tool, log, kernels), *command]
    began = time.monotonic()
    with report.open("wb") as out:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            status: int | None = process.wait(limit)
        except BaseException as error:
            # The process group: pytest and its children.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status = None
    seconds = time.monotonic() - began
    events = read_events(record)
    if log.is_file():
        text = log.read_text("utf-8", "replace")
        with report.open("a", encoding="utf-8") as out_text:
            out_text.write(text)
        log.unlink()
        names = {base_name(each) for each in kernels}
        found = parse_sanitizer(text, tool, tensors_of(events), place)
        found = [each for each in found if not names or base_name(each.kernel) in names]
    else:
        found = parse_simulator(events)
    failed = tuple(
        (str(event["test"]), str(event["error"]).split("\n", 1)[0]) for event in events if event["event"] == "failed"
    )
    record.unlink(missing_ok=True)
    last = next((str(event["test"]) for event in reversed(events) if event["event"] == "begins"), "")
    return Run(tool, tuple(fold(found)), report, seconds, status is None, last, failed, status)


def sanitizer_command(tool: str, log: Path, kernels: Iterable[str]) -> list[str]:
    """The command of compute-sanitizer, without the program to run.

    Raises:
        ToolchainError: it is not installed.
    """
    program = str(find_tool("compute-sanitizer"))
    known = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    wanted = {
        "--strip-paths": "no",
        "--destroy-on-device-error": "kernel",
        "--report-api-errors": "no",
        "--show-backtrace": "device",
        "--print-limit": "10000",
        "--require-cuda-init": "no",
    }
    command = [program, f"--tool={tool}", f"--log-file={log}"]
    command += [f"{name}={value}" for name, value in wanted.items() if name in known]
    # Older versions assume that kernels which are not checked write nothing.
    if tool != "initcheck" or "--initcheck-track-filtered-global-memory" in known:
        option = "--kernel-name" if "--kernel-name" in known else "--kernel-regex"
        # As in mangled names: with its length in front, it does not match as a part of a longer name.
        for name in dict.fromkeys(filter(None, map(base_name, kernels))):
            command += [option, f"kernel_substring={len(name)}{name}"]
    return command


def read_events(path: Path) -> list[dict[str, object]]:
    """The plugin's events, without an incomplete last line."""
    lines = path.read_text("utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def tensors_of(events: Iterable[Mapping[str, object]]) -> dict[tuple[int, int], str]:
    """The names of tensors by address and size."""
    found: dict[tuple[int, int], str] = {}
    for event in events:
        tensors = event.get("tensors")
        for name, address, size in tensors if isinstance(tensors, list) else ():
            found[address, size] = name
    return found


Placer = Callable[[str, int], "Place | None"]
"""A function from a kernel, as named by compute-sanitizer, and an offset in its code to a file and a line."""


class Lines:
    """The source lines of instructions, in the op's own files if possible.

    Args:
        codes: the machine code of the tests' modules, with line information.
    """

    def __init__(self, codes: Iterable[Code]) -> None:
        self._places: dict[tuple[str, int], Place] = {}
        for code in codes:
            for kernel in code.kernels:
                for each in kernel.instructions:
                    found = place_of(each, code.sources)
                    if found is not None:
                        self._places.setdefault((_alike(kernel.name), each.address), found)

    def __call__(self, kernel: str, offset: int) -> Place | None:
        return self._places.get((_alike(kernel), offset))


def _alike(name: str) -> str:
    """`elementwise<Scale<float>,4>` for `void <unnamed>::elementwise<Scale<float>, (int)4>(long)`, and for the name
    that is demangled here."""
    name = short_name(name).replace("(bool)1", "true").replace("(bool)0", "false")
    name = re.sub(r"\([a-z ]+\)(?=-?\d)|\s", "", name)
    return re.sub(r"(?<=\d)[ul]+\b", "", name)


def parse_sanitizer(
    text: str, tool: str, tensors: Mapping[tuple[int, int], str] | None = None, place: Placer | None = None
) -> list[Finding]:
    """The reports of compute-sanitizer, one finding each.

    Args:
        tensors: names of tensors by address and size.
        place: a function from instructions to better positions than those in the reports.
    """
    found = []
    for first, rest in _records(text):
        races = [match for line in (first, *rest) if (match := _RACE.search(line))]
        frames = [match for line in rest if (match := _AT.match(line))]
        if races:
            found.append(_race(tool, races, place))
        elif frames:  # without one it is about a call of the host, or a summary
            found.append(_fault(tool, first, rest, frames, tensors or {}, place))
    return found


def _records(text: str) -> Iterable[tuple[str, list[str]]]:
    """The reports: an unindented line with the indented lines below it."""
    first = ""
    rest: list[str] = []
    for line in text.splitlines():
        match = _PREFIX.match(line.strip())
        content = "" if match is None else match["text"]
        if content.startswith(("    ", "\t")):
            rest.append(content.strip())
            continue
        if first:
            yield first, rest
        first, rest = content.strip(), []
    if first:
        yield first, rest


def _place(match: re.Match[str], place: Placer | None) -> Place:
    """The position of a report: from `place`, else from the report; an empty file if unknown."""
    found = None
    if place is not None and match["offset"]:
        found = place(match["function"], int(match["offset"], 16))
    return found or (match["file"] or "", int(match["line"] or 0))


def _race(tool: str, races: Sequence[re.Match[str]], place: Placer | None) -> Finding:
    one, *others = races
    accesses = []
    for race in others or races:
        other, at = _place(race, place)
        accesses.append(f"{race['access'].lower()}s" + (f" at {Path(other).name}:{at}" if other else ""))
    hazards = sum(int(race["hazards"]) for race in races if race["hazards"])
    what = (
        f"has a race in shared memory: a thread {one['access'].lower()}s, and another one {' or '.join(accesses)},"
        " without a barrier in between"
    )
    file, line = _place(one, place)
    return Finding(tool, what, short_name(one["function"]), file, line, count=max(hazards, 1))


def _fault(
    tool: str,
    first: str,
    rest: Sequence[str],
    frames: Sequence[re.Match[str]],
    tensors: Mapping[tuple[int, int], str],
    place: Placer | None,
) -> Finding:
    what = re.sub(r"^(?:Error|Warning): ", "", first, flags=re.IGNORECASE).rstrip(" :.")
    thread = next((match for line in rest if (match := _THREAD.search(line))), None)
    near = next((match for line in rest if (match := _NEAREST.search(line))), None)
    argument = None
    access = re.match(r"(?:Invalid|Uninitialized) __(\w+)__ (?:memory )?(read|write|atomic) of size (\d+) bytes", what)
    if access is not None:
        verb = {"read": "reads", "write": "writes", "atomic": "atomically updates"}[access[2]]
        what = f"{verb} {access[3]} bytes of {access[1]} memory"
        if first.startswith("Uninitialized"):
            what += " that was never written"
        elif any(line.endswith("misaligned") for line in rest):
            what += " at a misaligned address"
        elif near is not None:
            argument = tensors.get((int(near["at"], 16), int(near["size"].replace(",", ""))))
            side = "past the end" if near["side"] == "after" else "before the start"
            whose = argument or f"an allocation of {near['size']} bytes"
            what += f" {side} of {whose}"
        else:
            what += " out of bounds"
    example = f"thread {thread['thread']} of block {thread['block']}" if thread is not None else ""
    file, line = _innermost([_place(frame, place) for frame in frames])
    return Finding(tool, what, short_name(frames[-1]["function"]), file, line, argument, example=example)


def _innermost(places: Sequence[Place]) -> Place:
    """The position in the author's code among those of frames, innermost first; else one in kjit's headers."""
    known = [each for each in places if each[0]]
    return next((each for each in known if not is_of_kjit(each[0])), known[0] if known else ("", 0))


_SIMULATOR = re.compile(
    r"\bkernel (?P<kernel>.+?) (?P<what>(?:has a race|reads|writes|atomically|shuffles|divides|stops|was aborted"
    r"|does not end|is launched|uses|needs|calls|waits|may)\b.*)"
)
_PLACE = re.compile(r",? at (?P<file>/?[^\s,()]+?\.\w+):(?P<line>\d+)")


def parse_simulator(events: Iterable[Mapping[str, object]]) -> list[Finding]:
    """The reports of the simulator, from the errors of tests."""
    found = []
    for event in events:
        error = re.sub(r"^Failed at \S+: ", "", str(event.get("error", "")))  # where it was launched
        match = _SIMULATOR.search(re.sub(r" \(launching .*?\)$", "", error.partition("\n")[0]))
        is_deadlock = "wait at __syncthreads" in error or "never arrives" in error or "waits at __syncthreads" in error
        if event["event"] != "failed" or (match is None and not is_deadlock):
            continue
        test = str(event["test"]).rpartition("::")[2]
        if match is None:
            lines = [line.strip() for line in error.splitlines() if _PLACE.search(line)]
            kernel = re.search(r"\bkernel (\S+(?:<[^>]*>)?)", error)
            what = "; ".join(_PLACE.sub(_at_line, line) for line in lines[:2]) or "threads wait for each other in vain"
            name = kernel[1].rstrip(",:") if kernel else ""
        else:
            what, name = match["what"], match["kernel"]
        place = _PLACE.search(error if match is None else match["what"])
        thread = re.search(r" \((block \([^)]*\), thread \([^)]*\))\)", what)
        argument = re.search(r"argument \d+ of \w+ \((\w+):", what)
        what = what.replace(thread[0], "") if thread is not None else what
        if not what.startswith("has a race"):
            what = re.sub(r" at 0x[0-9a-f]+| 0x[0-9a-f]+", "", _PLACE.sub("", what, count=1))
        what = re.sub(
            r"(?:, )?(?:just |[\d,]+ bytes )?(past the end|before the start) of argument \d+ of \w+ \((\w+): [^)]*\)",
            r" \1 of \2",
            _PLACE.sub(_at_line, what),
        )
        file, line = (place["file"], int(place["line"])) if place is not None else ("", 0)
        example = ", ".join(part for part in (thread[1] if thread is not None else "", test) if part)
        found.append(Finding("sim-check", what, name, file, line, argument[1] if argument else None, example=example))
    return found


def _at_line(place: re.Match[str]) -> str:
    return f" at {Path(place['file']).name}:{place['line']}"


def fold(found: Iterable[Finding]) -> list[Finding]:
    """Merge equal findings at the same position; most frequent first."""
    folded: dict[tuple[object, ...], Finding] = {}
    for each in found:
        # The simulator's message of a race names threads, which differ between reports.
        what = "" if each.tool == "sim-check" else each.what
        key = (each.tool, what, each.kernel, each.file, each.line, each.argument)
        if key in folded:
            folded[key] = replace(folded[key], count=folded[key].count + each.count)
        else:
            folded[key] = each
    return sorted(folded.values(), key=lambda each: -each.count)
