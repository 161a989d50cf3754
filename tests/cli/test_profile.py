"""`kjit profile`: errors, and reports without counters."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kjit.bench.sweep import Sweep
from kjit.benchmark import mode
from kjit.cli.profile import _print_trace
from kjit.errors import KjitError
from kjit.profiling import Point, trace

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_trace_is_written_for_perfetto(kjit: Kjit, project: Path) -> None:
    (project / "benchmarks").mkdir()
    (project / "benchmarks" / "bench_answer.py").write_text(
        """
import torch, triton
from kjit.benchmark import run_benchmark

@triton.testing.perf_report(
    triton.testing.Benchmark(["n"], [10, 1000], "provider", ["kjit"], ["kjit"], "answer", {"device": "cpu"})
)
def benchmark(n, provider, device):
    x = torch.zeros(n)
    return run_benchmark(lambda: x.cos(), device=device)
"""
    )
    done = kjit("profile", "answer", "--torch", "--json", "--point", "n=10")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["point"] == "answer: device=cpu, n=10, kjit"
    assert [(event["name"], event["calls"]) for event in document["events"]] == [("aten::cos", 5)]
    trace = project / ".kjit" / "profile" / "answer.trace.json"
    assert document["trace"] == str(trace)
    assert "traceEvents" in json.loads(trace.read_text())


def test_without_counters_the_time_the_share_and_the_trace_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kjit.bench.hardware.measure_copy", lambda _: 100.0)
    namespace: dict[str, object] = {}
    source = (
        "import torch\n"
        "from kjit.benchmark import BenchTime, run_benchmark\n"
        "def measure(n, provider, device):\n"
        "    run_benchmark(lambda: torch.zeros(n).cos(), device='cpu')\n"
        "    return BenchTime(2.0, 1.9, 2.2)\n"
        "def bytes_moved(n, device): return 160_000\n"
    )
    exec(compile(source, "bench_x.py", "exec"), namespace)
    function = cast("Callable[..., object]", namespace["measure"])
    sweep = Sweep("b.py", "x", function, ("n",), ((1,),), "provider", ("kjit",), ("kjit",), {"device": "cpu"})
    point = Point(sweep, {"n": 1, "device": "cpu"})
    with mode(brief=True):
        _print_trace(point, tmp_path / "x.json", json=False, measures=True)
    shown = capsys.readouterr().out
    assert re.search(r"1 +kjit +2 +80 +80% of copy", shown)
    assert "aten::cos" in shown
    own = replace(sweep, function=lambda **_: (2.0, 1.9, 2.2))
    with pytest.raises(KjitError, match="measures by itself"):
        trace(replace(point, sweep=own), tmp_path / "y.json")
