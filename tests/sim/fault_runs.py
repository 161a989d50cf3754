"""Runs of the cases of fault_cases.cuh, and their outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import kjit
from kjit.testing import simulated

HERE = Path(__file__).parent
CASES = (
    *("null_pointer", "wild_pointer", "impossible_pointer", "read_only", "wild_read", "wild_copy", "wild_text"),
    *("null_function", "division", "aborted", "terminated", "large_array", "recursion", "deleted_twice"),
    *("foreign_memory", "freed_twice", "endless_loop", "later_block", "atomic_poll", "endless_barriers", "one_of_two"),
    *("child_launch", "beyond_bounds", "too_many_threads", "too_much_shared_memory"),
)
RIGHT = ("right", "right_array", "right_memory", "within_bounds")


def load(folder: str, mode: str) -> Any:
    """The module of the cases, built in the cache `folder`."""
    with simulated(check=mode == "sim-check"):
        return kjit.load_jit(
            "fault_cases",
            cuda_files=[HERE / "fault_cases.cuh"],
            cuda_wrappers=[(name, name) for name in (*CASES, *RIGHT)],
            build_directory=folder,
        )


def run(module: Any, case: str) -> dict[str, Any]:
    """The error of a case, and whether a correct kernel works after it."""
    report = ""
    try:
        module[case](torch.zeros(128))
    except RuntimeError as error:
        report = str(error)
    out = torch.zeros(128)
    module.right(out)
    return {"report": report, "goes_on": torch.equal(out, torch.arange(128.0))}
