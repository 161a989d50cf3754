"""The test of an op passes for a right kernel, and fails for each of the usual mistakes."""

from __future__ import annotations

import re
from pathlib import Path

from forked import Forks
from real_ops import RealOp, custom

from kjit.project import find_project

SIGNATURE = "x: float32[M, N], mistake: int, a: float = 1.0, b: float = 0.0, negate: bool = False -> out: float32[N, M]"
MISTAKES = {
    "no block index": "index = threadIdx.x;",
    "without the last": "count -= 1;",
    "past the end": "count = written += 1;",
    "no remainder of a vector": "count = count / 4 * 4;",
    "wrong size": "row = params.M;",
    "transposed": "column = params.N;",
    "ignored flag": "negate = false;",
    "absolute value": "a = fabsf(a);",
    "swapped": "a = params.b, b = params.a;",
}
"""What a kernel does wrong, which is right in all else."""

CASES = "\n".join(f"    case {at}: {code} break;" for at, code in enumerate(MISTAKES.values(), start=1))
KERNEL = f"""
  int64_t index = i, count = params.M * params.N, row = params.N, column = params.M, written = count;
  float a = params.a, b = params.b;
  bool negate = params.negate;
  switch (params.mistake) {{
{CASES}
  }}
  if (index >= count) return;
  const int64_t m = index % params.M, n = index / params.M;
  const float value = params.x[(m * row + n) % written] * a + b;
  params.out[(n * column + m) % written] = negate ? -value : value;
"""
REFERENCE = """
    return (x * a + b).mT * (-1 if negate else 1)
"""


def test_each_mistake_fails_the_test_of_its_op(project: Path, forked: Forks, quick_simulator: list[str]) -> None:
    RealOp(custom("wrong", SIGNATURE, None), KERNEL, REFERENCE).write(project, find_project(project).package)
    test = project / "tests" / "test_wrong.py"
    for number in range(len(MISTAKES) + 1):
        test.with_name(f"test_{number}.py").write_text(test.read_text().replace('"mistake": 3', f'"mistake": {number}'))
    test.unlink()
    done = forked.pytest("-q", "-rf", "-p", "no:cacheprovider", *quick_simulator, "-k", "agrees or beside", cwd=project)
    failed = {int(number) for number in re.findall(r"^FAILED tests/test_(\d+)\.py", done.stdout, re.MULTILINE)}
    assert [mistake for at, mistake in enumerate(MISTAKES, start=1) if at not in failed] == [], done.stdout
    assert 0 not in failed, done.stdout
