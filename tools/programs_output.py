"""Runs of programs with a time limit, and the comparison of their outputs without text that varies, such as times."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_NUMBER = r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?"
_UNIT = (
    r"(?:[mun]?s|[mun]?secs?|(?:milli|micro|nano)?seconds?|[KMGT]?i?B(?:ytes)?/s(?:ec)?"
    r"|[KMGT]?(?:flops?|flop/s)|[KMG]?Hz|fps|[A-Za-z]+(?:/|\s+per\s+)s(?:ec|econd)?)"
)
_VOLATILE = re.compile(
    rf"{_NUMBER}\s*[\[(]?{_UNIT}(?![A-Za-z])"
    rf"|\b(?:\w*time|rate|elapsed|took|throughput|bandwidth|speedup|performance)\b[^\d\n]*{_NUMBER}"
    r"|\b0x[0-9a-f]{9,}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Run:
    """One run of a program: its exit status (None if it did not end in time), and what it wrote."""

    status: int | None
    output: str
    errors: str


def run_limited(
    command: Sequence[str], limit: float, environment: Mapping[str, str], folder: Path | None = None
) -> Run:
    """Run a command, and end it and the processes that it has started, after `limit` seconds at most."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        status = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return Run(status, *texts)


Verdict = Literal["same", "varies", "different"]
"""`varies`: the same but for lines that differ between two runs of one build too."""


def compare(run: Run, one: Run, other: Run) -> tuple[Verdict, list[str]]:
    """Compare a run with two runs of a reference, and return the verdict with the differences.

    If the two agree, the run has to agree with them, in order. If they do not, it has to have all the lines that both
    have, in any order, and its further lines have to be lines of one of them but for numbers, and not more than there.
    """
    if run.status not in (one.status, other.status):
        said = run.errors.strip().splitlines()[-1:]
        return "different", [f"exit status {run.status}, not {one.status}", *said]
    found, expected, again = (stable_lines(each.output) for each in (run, one, other))
    if found == expected:
        return "same", []
    if expected == again:
        missing = [f"- {line}" for line in (Counter(expected) - Counter(found)).elements()]
        added = [f"+ {line}" for line in (Counter(found) - Counter(expected)).elements()]
        return "different", missing + added or ["the same lines in another order"]
    lengths = sorted((len(expected), len(again)))
    if not lengths[0] <= len(found) <= lengths[1]:
        return "different", [f"{len(found)} lines, not {len(expected)}"]
    common = Counter(expected) & Counter(again)
    known = {_without_numbers(line) for line in (*expected, *again)}
    missing = [f"- {line}" for line in (common - Counter(found)).elements()]
    added = [f"+ {line}" for line in (Counter(found) - common).elements() if _without_numbers(line) not in known]
    return ("different", missing + added) if missing or added else ("varies", [])


def stable_lines(text: str) -> list[str]:
    """The lines of an output without times, rates, bandwidths and addresses, and with single spaces."""
    lines = (" ".join(_VOLATILE.sub("#", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def _without_numbers(line: str) -> str:
    return re.sub(_NUMBER, "#", line)
