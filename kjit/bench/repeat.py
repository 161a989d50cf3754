"""Repeated measurements in separate processes: the samples for comparisons.

Samples within a process are similar and do not predict the next process: memory addresses, other load and clocks stay
the same. So judged times are measured in several processes in sequence, and each process is one sample. Only judged
measurements are repeated (see `Sweep.judged`), for a shorter time than the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from kjit.bench.collect import load_sweeps
from kjit.bench.sweep import Failure, Report, Sweep, describe, identify, measure_time, plain
from kjit.benchmark import mode, quick
from kjit.project import PYTHON_C, Project, Raised, describe_error, prints_to_stderr, read_project, run_of_project
from kjit.revision import environment_of

RUNS = 5
"""The number of processes for judged times. Of five times and five others, all of one side are larger by accident once
in 252."""

_MOST_LISTED = 3  # failed measurements to list

# Ctrl-C, which also reaches this process, ends it without a traceback.
_START = (
    f"{PYTHON_C}"
    " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " from kjit.bench.repeat import main; main()"
)


def repeat(
    report: Report,
    project: Project,
    files: list[Path],
    runs: int,
    *,
    is_quick: bool,
    then: Project | None = None,
    on_run: Callable[[int], None] | None = None,
) -> dict[tuple[object, ...], tuple[float, ...]]:
    """Repeat the judged measurements of `report` until there are `runs` times of each, which become part of the report.

    Args:
        files: the benchmark files of the report.
        is_quick: whether it was measured as under `kjit bench --quick`.
        then: another state of the project, with the same benchmark files. Its processes alternate with those of this
            one, so that other load affects both, and the order changes from pair to pair.
        on_run: called before each process, or pair of them, with its number. Without `then`, the existing measurements
            are run 1.

    Returns:
        Times of `then` in microseconds by `Measurement.key`.
    """
    measured = [m for m in report.measurements if m.time is not None]
    again = [file for file in files if file.name in {m.sweep.file for m in measured}]
    samples: dict[Project, dict[str, list[float]]] = {project: {}}
    if then is None:
        samples[project] = {_text(m.key): [m.time.median] for m in measured if m.time is not None}
    else:
        samples[then] = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # memory for the other processes
    for run in range(2 if then is None else 1, runs + 1) if again else ():
        if on_run is not None:
            on_run(run)
        for each in [*samples][:: 1 if run % 2 else -1]:
            of_project = [each.root / file.relative_to(project.root) for file in again]
            times = _measure_in_a_process(each, of_project, is_quick=is_quick, tells=each is then and run == 1)
            if isinstance(times, str):
                which = "" if then is None else ", now" if each is project else ", before"
                report.failures.append(Failure(f"run {run} of {runs}{which}", times))
                again = []
                break
            for key, time in times.items():
                samples[each].setdefault(key, []).append(time)
        if not again:
            break
    report.measurements = [
        m if m.time is None else replace(m, runs=tuple(samples[project].get(_text(m.key), ())))
        for m in report.measurements
    ]
    if then is None or not again:
        return {}
    found = {m.key: tuple(samples[then].get(_text(m.key), ())) for m in report.measurements}
    if not any(found.values()):
        why = "none of this can be measured there, for the reason above."
        report.failures.append(Failure("the state of before", why))
    return {key: times for key, times in found.items() if times}


def _text(key: tuple[object, ...]) -> str:
    return json.dumps(key)


def _measure_in_a_process(
    project: Project, files: list[Path], *, is_quick: bool, tells: bool = False
) -> dict[str, float] | str:
    """Times by key, or the reason why there are none.

    Args:
        tells: whether to report failed measurements on stderr; otherwise they were already reported.
    """
    with tempfile.TemporaryDirectory(prefix="kjit-bench-") as folder:
        result = Path(folder) / "times.json"
        request = (str(project.root / "pyproject.toml"), [*map(str, files)], is_quick, tells, str(result))
        command = [sys.executable, "-c", _START, json.dumps(request)]
        done = subprocess.run(
            command, env=environment_of(project), stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False
        )
        if done.returncode != 0:
            return f"its process ended with status {done.returncode}; its output is above."
        times: dict[str, float] = json.loads(result.read_text("utf-8"))
        return times


def main() -> None:
    """Run the measurements of a request, the first argument; the main function of the processes."""
    pyproject, files, is_quick, tells, result = json.loads(sys.argv[1])
    with prints_to_stderr(), quick() if is_quick else mode(brief=True):
        sweeps, failures = load_sweeps(read_project(Path(pyproject)), [*map(Path, files)])
        times = _measure(sweeps, failures)
    if tells:
        sys.stderr.writelines(f"{failure.where}: {failure.reason}\n" for failure in failures[:_MOST_LISTED])
    Path(result).write_text(json.dumps(times), "utf-8")


def _measure(sweeps: list[Sweep], failures: list[Failure] | None = None) -> dict[str, float]:
    """Times by key; failed measurements are added to `failures`."""
    times = {}
    for sweep in sweeps:
        for given in sweep.arguments():
            for provider in sweep.judged:
                # A failure is one sample less: measurements that always fail were reported in the first run.
                time = run_of_project(partial(measure_time, sweep, given, provider))
                if not isinstance(time, Raised):
                    times[_text(identify(sweep, str(provider), given))] = time.median
                elif failures is not None:
                    reason = describe_error(time.error, Path(sweep.function.__code__.co_filename))
                    failures.append(Failure(f"{sweep.name} ({describe(plain(given), str(provider))})", reason))
    return times
