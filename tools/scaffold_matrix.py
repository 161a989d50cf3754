"""Scaffolds of every pattern and kind of signature, built and tested; a table of the results.

    python tools/scaffold_matrix.py [--ops rms_norm,scale] [--devices cuda,cpu] [--jobs N] [--keep FOLDER]
                                    [--cuda-compiler nvcc|nvrtc]
    python tools/scaffold_matrix.py --random 100 [--from 0] [--devices cuda,cpu]

The ops are those of `tests/scaffold/matrix.py`, once with a kernel for the GPU, once for the CPU and once for both.
CUDA kernels run on a GPU if there is one, else in the simulator. The test suite runs a part of this; here are all of
them, which takes minutes. With `--random`, that number of random signatures for each pattern is scaffolded instead, and
g++ and nvcc parse the first variant of each, with warnings as errors; `--from` is the first of them. Exit status 1: a
test failed, or a scaffold does not compile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "scaffold")]

from matrix import CUSTOM, OPS, Op, named, write_all  # noqa: E402

from kjit import env  # noqa: E402
from kjit.errors import KjitError  # noqa: E402
from kjit.scaffold.patterns import PATTERNS  # noqa: E402

DEVICES = ("cuda", "cpu", "cuda,cpu")
_TOGETHER = 20
"""Random signatures in one compile."""


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", help="some of the ops, separated by commas")
    parser.add_argument("--devices", action="append", choices=DEVICES, help="may be given several times; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests and compiles at the same time")
    parser.add_argument("--keep", type=Path, help="write the project into this folder and leave it there")
    parser.add_argument("--random", type=int, help="compile this number of random signatures for each pattern")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the number of the first of them")
    parser.add_argument("--cuda-compiler", choices=("nvcc", "nvrtc"), help="the compiler of CUDA sources on a GPU")
    options = parser.parse_args(args)
    if options.cuda_compiler:
        os.environ[env.CUDA_COMPILER] = options.cuda_compiler
    if options.random:
        single = sorted({device for each in options.devices or DEVICES for device in each.split(",")})
        return not _compile_random(options.random, options.first, single)
    chosen = named(*options.ops.split(",")) if options.ops else [*OPS, *CUSTOM]
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        print(f"{'pattern':<12} {'device':<9} {'op':<15} {'passed':>6} {'failed':>6} {'skipped':>7}  signature")
        for devices in options.devices or DEVICES:
            folder = (options.keep or Path(temporary)) / f"kernels_{devices.replace(',', '_')}"
            failed |= not _try([replace(op, devices=devices) for op in chosen], folder, options.jobs)
    return failed


def _try(ops: Sequence[Op], folder: Path, jobs: int) -> bool:
    """Scaffold and test; return whether all tests passed."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        f'[tool.kjit]\npackage = "{folder.name}"\n\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
    )
    write_all(folder, ops)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(":")]),
    }
    build = [sys.executable, "-m", "kjit", "build", "--jobs", str(jobs), "--target", _targets(ops)]
    subprocess.run(build, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "-p", "no:cacheprovider", f"--junitxml={results}"]
    command += ["-k", "not the_reference_is_written"]  # for `custom` it is not, and the tests that need it are skipped
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    counts = _count(results) if results.exists() else {}
    for op in ops:
        passed, failed, skipped = (counts.get(op.name, Counter())[kind] for kind in ("passed", "failed", "skipped"))
        print(
            f"{op.pattern:<12} {op.devices:<9} {op.name:<15} {passed:>6} {failed:>6} {skipped:>7}"
            f"  {op.signature or '(default)'}",
            flush=True,
        )
    if done.returncode != 0:
        print(
            "\n".join(line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  ")))[:6000]
        )
    return done.returncode == 0


def _targets(ops: Sequence[Op]) -> str:
    """The targets of the ops' tests, for `kjit build --target`."""
    cuda = env.simulation() or ("cuda" if torch.cuda.is_available() else "sim")
    devices = {device for op in ops for device in op.devices.split(",")}
    return ",".join(cuda if device == "cuda" else device for device in sorted(devices))


def _compile_random(number: int, first: int, devices: Sequence[str]) -> bool:
    """Whether the code of all ops from random signatures compiles without a warning."""
    from test_generated_code import check_together, random_ops

    passed = True
    for pattern in PATTERNS:
        for device in devices:
            for start in range(first, first + number, _TOGETHER):
                ops = random_ops(pattern, range(start, min(start + _TOGETHER, first + number)))
                with tempfile.TemporaryDirectory(prefix="kernels_") as folder:
                    package = Path(folder).name
                    (Path(folder) / "pyproject.toml").write_text(f'[tool.kjit]\npackage = "{package}"\n')
                    try:
                        check_together(Path(folder), ops, device)
                    except (AssertionError, KjitError) as error:
                        passed = False
                        print(f"{pattern}, {device}: {error}")
                        print("".join(f"    {op.name}: {op.signature}\n" for op in ops))
            print(f"{pattern}, {device}: {number} signatures", flush=True)
    return passed


def _count(results: Path) -> dict[str, Counter[str]]:
    """Results by op."""
    counts: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        # `tests.test_scale.TestScale`
        module = next(part for part in case.get("classname", "").split(".") if part.startswith("test_"))
        op = module.removeprefix("test_")
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts.setdefault(op, Counter())[kind] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
