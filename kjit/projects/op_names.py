"""Valid names of ops, and what a name becomes in C++.

One name becomes a Python module, function and parameter, a C++ struct and kernel, a test, a file and a torch op. So it
must be an identifier everywhere, and must not hide a name that the generated code itself uses. An error has one
reason, and suggests a valid name.
"""

from __future__ import annotations

import re
from functools import cache

from kjit.errors import UsageError
from kjit.signature.names import (
    HEADERS,
    PYTHON_NAMES,
    Problem,
    is_used_in_code,
    nearest,
    quoted,
    types_in,
    why_no_identifier,
)

MAX_OP_LENGTH = 32

TOOL_FILES = frozenset({"conftest", "setup"})
"""Files with a meaning for pytest and packaging tools."""

_PYTEST_NAMES = re.compile(
    r"test\w*|(?:setup|teardown)(?:_(?:module|function|class|method))?|pytest_\w+|pytestmark|collect_ignore\w*"
)
"""Names that pytest collects as tests or calls as hooks, if a test imports an op of such a name."""


@cache
def cpp_types() -> frozenset[str]:
    """The types in kjit's headers, which an op's C++ struct must not hide."""
    # The headers in `detail` have a namespace of their own.
    return types_in(path for path in HEADERS.rglob("*.[hc]*") if path.parent.name != "detail")


def check_op_name(name: str) -> None:
    """Refuse an invalid name of an op.

    Raises:
        UsageError: with the reason, and a valid name.
    """
    problem = op_problem(name)
    if problem is not None:
        raise UsageError(problem.reason, hint=problem.hint)


def op_problem(name: str) -> Problem | None:
    """The reason why `name` cannot be that of an op, or None."""
    reason = _why_no_op(name)
    if reason is None:
        return None
    if re.match(r"\s*\w+\s*:.*\[.*\]", name):
        return Problem(f"{quoted(name)} is a signature, and the op's name comes before it.", f"kjit new my_op '{name}'")
    last = re.sub(r"\.(py|cu|cuh|cpp|cc|cxx|h|hpp|c)$", "", re.split(r"[/\\]", name)[-1])
    near = nearest(last.removeprefix("test_").removeprefix("bench_")) or "my_op"
    short = near[: MAX_OP_LENGTH - 3].rstrip("_")
    candidates = (near, short, f"{short}_op", f"op_{short}", "my_op")
    return Problem(reason, f"for example: {next(c for c in candidates if _why_no_op(c) is None)}")


def camel(name: str) -> str:
    """The C++ type of an op: `rms_norm` is `RmsNorm`, `bump_` is `Bump`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def cpp_stem(name: str) -> str:
    """The prefix of an op's C++ functions: `bump` for `bump_`, as C++ reserves `bump__kernel`."""
    return name.rstrip("_")


def _why_no_op(name: str) -> str | None:
    if "/" in name or "\\" in name or name in (".", ".."):
        return f"{quoted(name)} is a path, and an op has a name."
    reason = why_no_identifier(name, "an op", MAX_OP_LENGTH)
    if reason is not None:
        return reason
    if name != name.lower():
        return f"'{name}' has capital letters, and the function of an op has none."
    if name in PYTHON_NAMES or is_used_in_code(name):
        return f"an op named '{name}' would hide a name that its own code uses."
    if camel(name) in cpp_types():
        return f"an op named '{name}' would hide {camel(name)} of kjit's C++ headers."
    if name == "l":
        return "'l' looks like the digit 1."
    if name in TOOL_FILES or _PYTEST_NAMES.fullmatch(name):
        return f"pytest and packaging tools would take '{name}' for something else than an op."
    return None
