"""Reports of builds, in the records of artifacts and as JSON: seconds, resources of kernels, commands, warnings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import NamedTuple

from kjit.engine.cache.artifact import Artifact
from kjit.engine.compile.compile import Built
from kjit.engine.diagnostics.printed import KernelResources
from kjit.engine.outcomes import Outcome


def written(built: Built) -> dict[str, object]:
    """The report of a build as JSON, for the artifact's record."""
    return {
        "seconds": built.seconds,
        "resources": [asdict(kernel) for kernel in built.resources],
        "commands": list(built.commands),
        "warnings": built.warnings,
        "compiler": built.compiler,
        "why_nvcc": built.why_nvcc,
    }


class BuildReport(NamedTuple):
    """The report of a build: seconds, the resources of each CUDA kernel, the compilers' warnings."""

    seconds: float
    resources: tuple[KernelResources, ...]
    warnings: str


def report_of(artifact: Artifact) -> BuildReport:
    """The report of the build of `artifact`."""
    build = artifact.build
    return BuildReport(
        build["seconds"], tuple(KernelResources(**item) for item in build["resources"]), build["warnings"]
    )


def compiler_of(artifact: Artifact) -> tuple[str, str]:
    """The compiler of the kernels of `artifact`, and why it was nvcc although NVRTC is here; empty if unknown."""
    return artifact.build["compiler"], artifact.build["why_nvcc"]


def made_by(compiler: str, why_nvcc: str) -> str:
    """`by nvcc 13.0, because it includes <map>, ...`; empty if the compiler is unknown."""
    return f"by {compiler}, because {why_nvcc}" if why_nvcc else f"by {compiler}" if compiler else ""


def reasons_for_nvcc(made: Iterable[tuple[str, str, str]]) -> list[str]:
    """A sentence for each reason for which nvcc compiled something although NVRTC is here.

    Args:
        made: a label, the compiler and the reason of each variant.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for label, compiler, why in made:
        if why:
            found.setdefault((compiler, why), {})[label] = None
    return [f"{compiler} compiled {', '.join(labels)}, because {why}." for (compiler, why), labels in found.items()]


def warnings_of(outcomes: Iterable[Outcome]) -> list[str]:
    """The compilers' warnings about what was built, each once, even if several variants have it."""
    texts = [
        report_of(each.artifact).warnings for each in outcomes if each.state == "built" and each.artifact is not None
    ]
    return [part for part in dict.fromkeys(part for text in texts for part in text.split("\n\n")) if part]


def to_json(outcome: Outcome) -> dict[str, object]:
    """The outcome of a variant as JSON: its state and reason, its library, the report of its build, its error."""
    spec, artifact, error = outcome.variant.spec, outcome.artifact, outcome.error
    document: dict[str, object] = {
        "op": spec.name,
        "arguments": list(spec.args),
        "target": str(outcome.variant.target),
        "state": outcome.state,
        "seconds": round(outcome.seconds, 3),
        "reason": outcome.reason,
    }
    if artifact is not None:
        seconds, resources, warnings = report_of(artifact)
        document["library"] = str(artifact.library)
        document["size"] = artifact.size
        document["build_seconds"] = round(seconds, 3)
        document["built"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(artifact.built))
        document["kernels"] = [asdict(kernel) for kernel in resources]
        document["warnings"] = warnings
        document["compiler"], document["why_nvcc"] = compiler_of(artifact)
    if error is not None:
        document["error"] = error.message
    return document
