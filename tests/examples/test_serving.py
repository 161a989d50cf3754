"""The example of a serving engine runs in the simulator: warm-up, calls, records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forked import Forks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "serving"

_SERVE = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.argv = ["serve.py", *{arguments!r}]
runpy.run_path({folder!r} + "/serve.py", run_name="__main__")
"""
_KJIT = """
import os, sys
from kjit.cli import main
os.chdir({folder!r})
sys.argv = ["kjit", *{arguments!r}]
main()
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]

OPS = {"fused_add_rmsnorm", "qknorm_rope", "store_kv_cache", "silu_and_mul", "per_token_quant_fp8"}


def run_alone(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python that is no fork: CUDA cannot be used in a fork of a process that has asked for it."""
    command = [sys.executable, "-c", script]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


class Steps:
    """The steps of the page about serving, in processes of their own.

    Args:
        run: runs a script with environment variables.
        environment: of all of them.
        sizes: of the layers: arguments of serve.py.
    """

    def __init__(self, run: Run, environment: dict[str, str], *sizes: str) -> None:
        self._run_script = run
        self._environment = environment
        self._sizes = sizes

    def serve(self, *arguments: str, **environment: str) -> str:
        return self._run(_SERVE, *self._sizes, *arguments, **environment)

    def kjit(self, *arguments: str) -> str:
        return self._run(_KJIT, *arguments)

    def replay(self, calls: Path) -> dict[str, str]:
        """The states of the replayed calls, by op."""
        replayed = json.loads(self.kjit("replay", "test", str(calls), "--json"))
        return {call["name"]: call["state"] for call in replayed["calls"]}

    def _run(self, script: str, *arguments: str, **environment: str) -> str:
        script = script.format(folder=str(EXAMPLE), arguments=arguments)
        done = self._run_script(script, **self._environment, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_it_is_built_ahead_warmed_served_recorded_and_replayed(tmp_path: Path, forked: Forks) -> None:
    used, calls = tmp_path / "used.jsonl", tmp_path / "calls"
    run = run_alone if torch.cuda.is_available() else forked.run
    steps = Steps(run, {"KJIT_SIM": "1"}, "--device", "cpu", "--tiny", "--steps", "2")
    assert "compiled while serving" in steps.serve(KJIT_RECORD_VARIANTS=str(used))
    assert {json.loads(line)["target"] for line in used.read_text().splitlines()} == {"sim"}
    built = [line.split() for line in steps.kjit("build", "--from", str(used)).splitlines()[1:]]
    assert [words[words.index("sim") + 1] for words in built] == ["hit"] * 5
    said = steps.serve("--warm", str(used), KJIT_NO_COMPILE="1", KJIT_RECORD=str(calls))
    assert said.startswith("warm: 5 loaded (")
    assert said.endswith("modules: 5 built ahead, 0 compiled while serving\n")
    assert steps.replay(calls) == dict.fromkeys(OPS, "agrees")


@pytest.mark.gpu
@pytest.mark.nightly
def test_at_full_size_it_runs_from_a_bundle_alone(tmp_path: Path) -> None:
    used, calls, bundle = tmp_path / "used.jsonl", tmp_path / "calls", tmp_path / "bundle"
    steps = Steps(run_alone, {}, "--layers", "2")
    steps.serve(KJIT_RECORD_VARIANTS=str(used))
    steps.kjit("build", "--from", str(used), "--out", str(bundle))
    alone = {"KJIT_NO_COMPILE": "1", "KJIT_CACHE_DIR": str(tmp_path / "empty")}
    warm = ("--warm", str(used), "--bundle", str(bundle))
    steps.serve(*warm, KJIT_RECORD=str(calls), **alone)
    said = steps.serve(*warm, "--calls", str(calls), **alone)
    assert said.startswith("warm: 5 loaded, 5 launched (")
    assert said.endswith("modules: 5 built ahead, 0 compiled while serving\n")
    assert steps.replay(calls) == dict.fromkeys(OPS, "agrees")
