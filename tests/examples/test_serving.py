"""The example of a serving engine runs in the simulator, from what it uses to what it recorded."""

from __future__ import annotations

import json
from pathlib import Path

from forked import Forks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "serving"

_SERVE = """
import runpy, sys
sys.path.insert(0, {folder!r})
sys.argv = ["serve.py", "--tiny", "--steps", "2", *{arguments!r}]
runpy.run_path({folder!r} + "/serve.py", run_name="__main__")
"""
_KJIT = """
import os, sys
from kjit.cli import main
os.chdir({folder!r})
sys.argv = ["kjit", *{arguments!r}]
main()
"""

OPS = {"fused_add_rmsnorm", "qknorm_rope", "store_kv_cache", "silu_and_mul", "per_token_quant_fp8"}


def test_it_is_built_ahead_warmed_served_recorded_and_replayed(tmp_path: Path, forked: Forks) -> None:
    used, calls = str(tmp_path / "used.jsonl"), str(tmp_path / "calls")

    def serve(*arguments: str, **environment: str) -> str:
        done = forked.run(_SERVE.format(folder=str(EXAMPLE), arguments=arguments), KJIT_SIM="1", **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kjit(*arguments: str) -> str:
        done = forked.run(_KJIT.format(folder=str(EXAMPLE), arguments=arguments), KJIT_SIM="1")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "compiled while serving" in serve(KJIT_RECORD_VARIANTS=used)
    assert {json.loads(line)["target"] for line in Path(used).read_text().splitlines()} == {"sim"}
    built = [line.split() for line in kjit("build", "--from", used).splitlines()[1:]]
    assert [words[words.index("sim") + 1] for words in built] == ["hit"] * 5
    said = serve("--warm", used, KJIT_NO_COMPILE="1", KJIT_RECORD=calls)
    assert said.startswith("warm: 5 loaded (")
    assert said.endswith("modules: 5 built ahead, 0 compiled while serving\n")
    replayed = json.loads(kjit("replay", "test", calls, "--json"))
    assert {call["name"]: call["state"] for call in replayed["calls"]} == dict.fromkeys(OPS, "agrees")
