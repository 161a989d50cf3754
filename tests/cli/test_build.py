"""`kjit build`: its builds, output and exit status."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import Forks

from kjit.cli.building import ended_by_signals
from kjit.engine.cache.store import Store
from kjit.engine.toolchain import cpu
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.runtime import LAYOUT
from kjit.spec import Target

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """From the table of a run: the state of each variant."""
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return {row[0]: row[2] for row in rows}


class TestBuilding:
    def test_every_variant_is_built_with_a_line_for_each_step_and_the_second_time_found(self, kjit: Kjit) -> None:
        first = kjit("build", "-j1")
        assert states(first) == {"answer<1>": "built", "answer<2>": "built"}
        assert first.stdout.splitlines()[0].split() == ["variant", "target", "state", "seconds", "size"]
        lines = first.stderr.splitlines()
        assert lines[0] == "compiling answer<1> cpu: it was never built here"
        assert lines[1].startswith("[1/2] built answer<1> cpu in ")
        assert lines[3].startswith("[2/2] built answer<2> cpu in ")
        second = kjit("build")
        assert states(second) == {"answer<1>": "hit", "answer<2>": "hit"}
        assert (second.returncode, second.stderr) == (0, "")

    def test_a_changed_wrapper_is_built_without_torch(self, kjit: Kjit, project: Path, tmp_path: Path) -> None:
        wrapper, used = project / "kernels" / "answer.py", tmp_path / "used.jsonl"
        line = {"op": "kernels.answer:_module", "values": {"n": 3}, "target": "cpu", "archs": []}
        used.write_text(json.dumps(line) + "\n")
        first = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))"
        wrapper.write_text("import torch\n" + wrapper.read_text())
        for change, command, found in (
            (("[1, 2]", "[1]"), ["build"], {"answer<1>": "built"}),
            (("[1]", "[1, 2] if torch.half in [torch.float16] else []"), ["build"], {"answer<1>": "hit"}),
            (("", ""), ["build", "--from", str(used)], {"answer<3>": "built"}),
        ):
            wrapper.write_text(wrapper.read_text().replace(*change))
            done = kjit(*command, first=first)
            assert found.items() <= states(done).items(), done.stderr
            assert done.stderr.splitlines()[-1] == "False"
        assert states(kjit("build")) == {"answer<1>": "hit", "answer<2>": "hit"}

    def test_a_terminal_shows_what_compiles_and_since_when(self, kjit: Kjit, project: Path) -> None:
        kjit("build", "-j1")
        (project / "csrc" / "answer.h").write_text("#define ANSWER 43\n")
        shown = on_terminal([sys.executable, "-m", "kjit", "build", "-j1"], project)
        assert re.search(r"0/2 0:00:\d\d answer<[12]> cpu", shown)

    def test_a_terminal_that_nobody_looks_at_shows_a_line_a_step(self, project: Path) -> None:
        shown = on_terminal([sys.executable, "-m", "kjit", "build", "-j1"], project, CI="true")
        assert "compiling answer<1> cpu: it was never built here" in shown
        assert "[2/2] built answer<2> cpu in " in shown
        assert "building" not in shown

    @pytest.mark.nvcc
    def test_several_architectures_need_no_gpu(self, kjit: Kjit, project: Path) -> None:
        (project / "csrc" / "fill.cu").write_text(
            "namespace two {\n__global__ void fill(float* p) { p[threadIdx.x] = 1; }\n"
            "__global__ void turn(float* p) {\n  __shared__ float s[32];\n  s[threadIdx.x] = p[threadIdx.x];\n"
            "  __syncthreads();\n  p[threadIdx.x] = s[31 - threadIdx.x];\n}\n}\n"
        )
        (project / "kernels" / "fill.py").write_text(
            "import kjit\nfrom pathlib import Path\n"
            "@kjit.module()\ndef _fill():\n"
            "    return kjit.Spec('fill', cuda_files=[Path(__file__).parents[1] / 'csrc' / 'fill.cu'])\n"
        )
        done = kjit("build", "fill", "--arch", "8.0,9.0a", "--json")
        variants = json.loads(done.stdout)["variants"]
        assert [variant["target"] for variant in variants] == ["cuda:sm_80", "cuda:sm_90a"]
        kernels = {kernel["kernel"]: kernel for kernel in variants[0]["kernels"]}
        assert set(kernels) == {"two::fill", "two::turn"}
        assert (kernels["two::turn"]["arch"], kernels["two::turn"]["shared"]) == ("sm_80", 128)
        said = kjit("build", "fill", "--arch", "8.6", KJIT_LOG="info").stderr
        assert f"fill cuda:sm_86: compiled by {variants[0]['compiler']}\n" in said
        # Each of several kernels has a line of its own, below the variant's.
        header, row, *of_kernels = kjit("build", "fill", "--arch", "8.0").stdout.splitlines()
        assert header.split()[5:] == ["registers", "shared", "memory", "spills", "stack", "compiler"]
        assert row.split()[6:10] == ["-", "-", "-", "-"]
        assert row.split()[10:] == variants[0]["compiler"].split() != []
        lines = {line.split()[0]: line.split()[1:] for line in of_kernels}
        assert set(lines) == {"fill", "turn"}
        registers = str(kernels["two::turn"]["registers"])
        assert lines["turn"] == ["sm_80", registers, "128", "B", "0", "B", "0", "B"]

    @pytest.mark.nvcc
    def test_the_reason_for_nvcc_is_shown_under_the_table(self, kjit: Kjit, project: Path) -> None:
        if not Toolchain.for_target(Target.cuda("9.0a")).chooses:
            pytest.skip("needs nvcc and NVRTC")
        (project / "csrc" / "empty.cu").write_text("#include <map>\n__global__ void empty() {}\n")
        (project / "kernels" / "empty.py").write_text(
            "import kjit\nfrom pathlib import Path\n"
            "@kjit.module()\ndef _empty():\n"
            "    return kjit.Spec('empty', cuda_files=[Path(__file__).parents[1] / 'csrc' / 'empty.cu'])\n"
        )
        for _ in ("built", "hit"):
            done = kjit("build", "empty", "--arch", "9.0a")
            assert re.search(r"^nvcc [\d.]+ compiled empty, because it includes <map>, which is", done.stderr, re.M)
        (variant,) = json.loads(kjit("build", "empty", "--arch", "9.0a", "--json").stdout)["variants"]
        assert variant["compiler"].startswith("nvcc ")
        assert variant["why_nvcc"].startswith("it includes <map>")


def test_the_simulator_is_a_target_of_its_own(kjit: Kjit, project: Path) -> None:
    (project / "csrc" / "fill.cuh").write_text(
        "#include <kjit/tensor.h>\n__global__ void fill(float* p) { p[threadIdx.x] = 1; }\n"
        "void run(kjit::TensorView x) { fill<<<1, 2>>>(static_cast<float*>(x.data_ptr())); }\n"
    )
    (project / "kernels" / "fill.py").write_text(
        "import kjit\nfrom pathlib import Path\n"
        "@kjit.module()\ndef _fill():\n"
        "    csrc = Path(__file__).parents[1] / 'csrc'\n"
        "    return kjit.Spec('fill', cuda_files=[csrc / 'fill.cuh'], cuda_wrappers=[('run', 'run')])\n"
    )
    done = kjit("build", "fill", "--target", "sim", "--json")
    (variant,) = json.loads(done.stdout)["variants"]
    assert (variant["target"], variant["state"], variant["kernels"]) == ("sim", "built", [])
    assert [entry["target"] for entry in json.loads(kjit("cache", "ls", "--json").stdout)] == ["sim"]
    assert kjit("build", "answer", "--target", "sim").returncode == 2


class TestBundle:
    """`--out`. The op has one level on this machine, so that it is one compile a variant."""

    @pytest.fixture
    def kjit(self, kjit: Kjit) -> Kjit:
        first = (
            "from kjit.engine.toolchain import cpu\n"
            "cpu.LEVELS = {machine: levels[:1] for machine, levels in cpu.LEVELS.items()}\n"
        )
        return lambda *arguments, **environment: kjit(*arguments, first=first, **environment)

    def test_it_is_written_reported_and_used_without_a_compiler(self, kjit: Kjit, project: Path, forked: Forks) -> None:
        done = kjit("build", "--out", "kernels/prebuilt")
        assert done.returncode == 0
        assert done.stdout.splitlines()[-1].startswith("bundle kernels/prebuilt: 2 modules, 1 library, ")
        assert "The wrappers look for it" not in done.stderr
        (level,) = {entry["target"] for entry in json.loads(kjit("cache", "ls", "--json").stdout)}
        assert level == f"cpu:{cpu.levels()[0].name}"
        shutil.rmtree(project / "csrc")
        script = "from kernels.answer import _module; print(_module(2, device='cpu').answer())"
        used = forked.run(script, cwd=project, PATH="/nonexistent", KJIT_CACHE_DIR=str(project / "empty"))
        assert (used.stdout, used.stderr) == ("42\n", "")
        assert not (project / "empty").exists()

    def test_nothing_is_written_when_something_fails(
        self, kjit: Kjit, project: Path, add: Callable[[str], None]
    ) -> None:
        add("other")
        (project / "csrc" / "answer.h").write_text("#define ANSWER oops\n")
        done = kjit("build", "--out", "ship")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "The bundle ship is not written: it must be complete."
        assert not (project / "ship").exists()
        (project / "kernels" / "answer.py").write_text("import no_such_module\n")
        assert kjit("build", "--out", "ship").returncode == 1
        assert not (project / "ship").exists()

    def test_it_needs_no_cache_that_can_be_written(self, kjit: Kjit, project: Path) -> None:
        done = kjit("build", "--out", "ship", "--json", KJIT_CACHE_DIR="/proc/kjit")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["bundle"]["modules"] == 2
        assert (project / "ship" / "index.json").is_file()

    def test_op_by_op_all_of_them_are_in_it_and_what_is_replaced_is_said(
        self, kjit: Kjit, project: Path, add: Callable[[str], None]
    ) -> None:
        add("other")
        kjit("build", "answer", "--out", "ship")
        done = kjit("build", "other", "--out", "ship")
        level = cpu.levels()[0].name
        assert f"kept from before: answer<1> cpu:{level}, answer<2> cpu:{level}" in done.stderr
        ops = [each["op"] for each in json.loads((project / "ship" / "index.json").read_text())["libraries"]]
        assert sorted(set(ops)) == ["answer", "other"]
        header = project / "csrc" / "other.h"
        header.write_text("#define ANSWER 7\n")
        asked = kjit("build", "other", "--out", "ship", "--dry-run", "--json")
        assert json.loads(asked.stdout)["change"]["replaced"][0].startswith("other")
        assert "would be replaced: other" in asked.stderr
        assert "replaced: other" in kjit("build", "other", "--out", "ship").stderr
        done = kjit("build", "answer", "--out", "ship", "--only", "--json")
        assert json.loads(done.stdout)["change"]["removed"][0].startswith("other")
        assert "removed (--only): other" in done.stderr
        ops = [each["op"] for each in json.loads((project / "ship" / "index.json").read_text())["libraries"]]
        assert set(ops) == {"answer"}

    def test_a_dry_run_writes_nothing(self, kjit: Kjit, project: Path) -> None:
        done = kjit("build", "--out", "ship", "--dry-run")
        assert done.returncode == 0
        assert set(states(done).values()) == {"stale"}
        assert not (project / "ship").exists()

    def test_a_folder_with_something_else_in_it_is_refused_before_anything_is_compiled(
        self, kjit: Kjit, cache_dir: Path
    ) -> None:
        done = kjit("build", "--out", "csrc")
        assert done.returncode == 2
        assert "'csrc' exists and is not a bundle" in done.stderr
        assert list(Store.open(cache_dir).entries()) == []


class TestRecorded:
    """Exactly the variants that a run used are built."""

    CALL = "import kjit; from kernels.answer import _module; _module({}, device='cpu'); print(kjit.stats())"

    def run(self, forked: Forks, project: Path, value: int, **environment: str) -> subprocess.CompletedProcess[str]:
        return forked.run(self.CALL.format(value), cwd=project, **environment)

    def test_it_is_built_elsewhere_and_the_next_run_compiles_nothing(
        self, kjit: Kjit, project: Path, tmp_path: Path, forked: Forks
    ) -> None:
        file = str(tmp_path / "used.jsonl")
        first = self.run(forked, project, 3, KJIT_RECORD_VARIANTS=file, KJIT_NO_COMPILE="warn")
        assert (
            "kjit compiles answer<3> cpu at run time: it was never built here, and KJIT_NO_COMPILE=warn" in first.stderr
        )
        assert "`kjit build answer --target cpu` in its project builds it ahead of use" in first.stderr
        assert "{'answer': {'hits': 0, 'compiles': 1, 'seconds': " in first.stdout
        elsewhere = {"KJIT_CACHE_DIR": str(tmp_path / "elsewhere")}
        assert states(kjit("build", "--from", file, **elsewhere)) == {"answer<3>": "built"}
        second = self.run(forked, project, 3, KJIT_NO_COMPILE="1", **elsewhere)
        assert second.stdout == "{'answer': {'hits': 1, 'compiles': 0, 'seconds': 0.0}}\n"


class TestUnwritableCache:
    """`/proc` is one, even for root."""

    def test_what_would_be_lost_is_not_built(self, kjit: Kjit) -> None:
        done = kjit("build", KJIT_CACHE_DIR="/proc/kjit")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: The cache '/proc/kjit' cannot be written (")
        assert done.stderr.endswith("to a writable folder, or write a bundle with --out\n")


class TestJson:
    def test_it_has_everything_about_each_variant(self, kjit: Kjit) -> None:
        document: Any = json.loads(kjit("build", "--json").stdout)
        first = document["variants"][0]
        assert (first["op"], first["arguments"], first["target"]) == ("answer", ["1"], "cpu")
        assert (first["state"], first["reason"]) == ("built", "it was never built here")
        assert Path(first["library"]).stat().st_size == first["size"]
        assert first["seconds"] >= first["build_seconds"] > 0
        assert document["wrappers"] == document["left_out"] == []

    def test_what_a_wrapper_prints_is_no_part_of_it(self, kjit: Kjit, project: Path) -> None:
        wrapper = project / "kernels" / "answer.py"
        text = wrapper.read_text().replace("    return", "    print('declared')\n    return")
        wrapper.write_text(f"print('imported')\n{text}")
        done = kjit("build", "--json")
        assert {variant["state"] for variant in json.loads(done.stdout)["variants"]} == {"built"}
        assert {"imported", "declared"} <= set(done.stderr.splitlines())
        assert json.loads(kjit("clean-cache", "--stale", "--yes", "--json").stdout)["artifacts"] == []


class TestWarnings:
    def test_the_same_warning_in_two_variants_is_shown_once(self, kjit: Kjit, project: Path) -> None:
        (project / "csrc" / "answer.h").write_text('#define ANSWER 1\n#warning "slow"\n')
        done = kjit("build")
        assert states(done) == {"answer<1>": "built", "answer<2>": "built"}
        assert done.stderr.count("csrc/answer.h:2:2: warning: ") == 1
        assert '  2 | #warning "slow"' in done.stderr


class TestFailures:
    def test_a_compile_error_and_a_wrapper_that_fails_to_import_do_not_stop_the_others(
        self, kjit: Kjit, project: Path, add: Callable[[str], None]
    ) -> None:
        add("other")
        (project / "csrc" / "answer.h").write_text("#define ANSWER oops\n")
        (project / "kernels" / "broken.py").write_text("import no_such_module\n")
        done = kjit("build", "--json")
        document = json.loads(done.stdout)
        assert done.returncode == 1
        found = {(each["op"], each["state"]) for each in document["variants"]}
        assert found == {("answer", "failed"), ("other", "built")}
        assert "oops" in document["variants"][0]["error"]
        assert [wrapper["op"] for wrapper in document["wrappers"]] == ["broken"]
        assert "kernels/broken.py fails to import" in done.stderr
        assert done.stderr.count("'oops'") == done.stderr.count("(as above)") == 1

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--target", "tpu"], "'tpu' is not a target"),
            (["--target", "cuda", "--arch", "9.0a"], "none of these ops has a CUDA source"),
            (["--target", "cpu", "--arch", "9.0a"], "--arch is for CUDA"),
            (["-j0"], "invalid value"),
            (["--only"], "name its folder with --out"),
            (["--cuda-compiler", "clang"], "--cuda-compiler is 'clang'."),
            (["answr"], "did you mean answer?"),
        ],
    )
    def test_a_request_that_makes_no_sense_is_wrong_usage(
        self, kjit: Kjit, arguments: list[str], sentence: str
    ) -> None:
        done = kjit("build", *arguments)
        assert done.returncode == 2
        assert sentence in done.stderr

    def test_a_project_without_declarations_has_nothing_to_build(self, kjit: Kjit, project: Path) -> None:
        (project / "kernels" / "answer.py").write_text("x = 1\n")
        done = kjit("build")
        assert (done.returncode, done.stdout) == (0, "")
        assert "Nothing to build" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_leaves_no_compiler_and_nothing_half_done(
    project: Path, cache_dir: Path, number: signal.Signals, status: int
) -> None:
    let_compilers_wait(project)
    command = [sys.executable, "-m", "kjit", "build", "-j2"]
    process = subprocess.Popen(
        command,
        cwd=project,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Whoever started these tests in the background may have had them ignore Ctrl-C, which children inherit.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for _ in range(2):
        assert process.stderr.readline().startswith("compiling answer<")
    process.send_signal(number)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == status
    assert "Traceback" not in rest
    assert list(Store.open(cache_dir).entries()) == []
    assert list((cache_dir / LAYOUT / "staging").iterdir()) == []
    assert [pid for pid in os.listdir("/proc") if pid.isdecimal() and works_in(pid, cache_dir)] == []


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def on_terminal(command: list[str], folder: Path, **variables: str) -> str:
    """The output of a command on a terminal, without the codes for colours and movements."""
    ours, its = pty.openpty()
    usual = {"TERM": "xterm", "COLUMNS": "120", "CI": "", "GITHUB_ACTIONS": ""}
    environment = {**os.environ, **usual, **variables}
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        written = b""
        with contextlib.suppress(OSError):  # how Linux says that nobody writes any more
            while chunk := os.read(ours, 4096):
                written += chunk
    os.close(ours)
    assert process.returncode == 0, written.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


def let_compilers_wait(project: Path) -> None:
    """Let every compile of `answer` wait for ever."""
    os.mkfifo(project / "csrc" / "never")
    (project / "csrc" / "answer.h").write_text('#include "never"\n')  # nobody writes into the pipe


def works_in(pid: str, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(str(folder))
    except OSError:
        return False
