"""Runs of the cases of fault_cases.cuh, and their outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from exported import functions_of

import kjit
from kjit.testing import simulated

HERE = Path(__file__).parent
SOURCE = HERE / "fault_cases.cuh"


def load(folder: str, mode: str) -> Any:
    """The module of the cases, built in the cache `folder`."""
    with simulated(check=mode == "sim-check"):
        return kjit.load_jit(
            "fault_cases",
            cuda_files=[SOURCE],
            cuda_wrappers=functions_of(SOURCE),
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
