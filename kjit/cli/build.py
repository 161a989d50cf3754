"""`kjit build`: compile every declared variant ahead of use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kjit import env
from kjit.cli import console, text
from kjit.cli.options import Archs, Json, Ops
from kjit.errors import CompileError, UsageError
from kjit.spec import KINDS, TargetKind

if TYPE_CHECKING:
    from kjit.engine.bundle_writer import Change, Written
    from kjit.engine.diagnostics.printed import KernelResources
    from kjit.engine.outcomes import Outcome
    from kjit.project import Project
    from kjit.spec import Variant


def build(
    ops: Ops = None,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Build the variants recorded by a run with KJIT_RECORD_VARIANTS=FILE."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            metavar="N",
            help="At most N compiles at once; default: slightly more than one per core.",
        ),
    ] = None,
    arch: Archs = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="LIST", help=f"{', '.join(KINDS)}; default: cuda and cpu, if they can be built."
        ),
    ] = None,
    cuda_compiler: Annotated[
        str | None,
        typer.Option(
            "--cuda-compiler",
            metavar="NAME",
            help=f"{env.one_of(env.CUDA_COMPILERS)}; default: KJIT_CUDA_COMPILER, else auto.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Build for other machines, without compilers, and add to the bundle in DIR.",
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="With --out: remove everything else from the bundle.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be built, and why.")] = False,
    json: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the commands and the compilers' full output.")
    ] = False,
) -> None:
    """Compile every declared variant ahead of use, in parallel.

    Variants that are up to date are not built again, and one failure does not stop the others. Building for other GPUs
    needs no GPU: --arch 8.0,9.0a,10.0a.

    With --out kernels/prebuilt the libraries are written beside the wrappers, which look there first: users of the
    package need neither nvcc nor g++. Other ops and targets in the bundle stay; --only removes them.

    With --from FILE the variants of a recorded run are built, for its targets, or for those of --target and --arch.

    Exit status 1: a variant does not compile, a wrapper fails to import, or the cache cannot be written and there is no
    --out.
    """
    from kjit.cli.building import build_variants, print_errors
    from kjit.engine import bundle_writer, pool, reports
    from kjit.engine.cache.store import Store
    from kjit.planning import wrappers
    from kjit.planning.targets import choose_targets
    from kjit.project import find_project

    kinds = _kinds(target or ())
    if cuda_compiler is not None:
        if cuda_compiler not in env.CUDA_COMPILERS:
            raise UsageError(f"--cuda-compiler is '{cuda_compiler}'.", hint=env.one_of(env.CUDA_COMPILERS))
        os.environ[env.CUDA_COMPILER] = cuda_compiler
    if only and out is None:
        raise UsageError("--only is about a bundle, and there is no --out.", hint="name its folder with --out")
    if out is not None:
        bundle_writer.check_folder(out, only=only)
    project = find_project()
    if recorded is not None and ops:
        raise UsageError("--from FILE selects what to build, and so do names of ops.", hint="leave out one of the two")
    variants: list[Variant] = []
    left_out: list[str] = []
    if recorded is not None:
        variants, gone = wrappers.read_recorded(recorded, project)
        collected = wrappers.Collected([(each.spec.name, [each.spec]) for each in variants], gone, [])
    else:
        collected = wrappers.collect(project, ops or ())
    for op in collected.without:
        console.note(f"{op} declares no module (kjit.module), so there is nothing to build ahead of use.")
    print_errors(error for _, error in collected.failures)
    specs = collected.specs()
    if variants and not kinds and not arch:
        if out is not None:
            variants = bundle_writer.variants_of_bundle(variants)
    elif specs:
        targets, left_out = choose_targets(specs, kinds, arch or (), needs_all=out is not None)
        variants = collected.variants(targets if out is None else bundle_writer.targets_of_bundle(targets))
        for sentence in left_out:
            console.note(sentence)
    elif not collected.failures:
        why = "no wrapper here declares a module (kjit.module)" if recorded is None else f"{recorded} lists no variant"
        console.note(f"Nothing to build: {why}.")

    store = Store.open()
    outcomes = (
        pool.look_up_all(variants, store)
        if dry_run
        else build_variants(variants, store, jobs=jobs, verbose=verbose, to_ship=out is not None)
    )
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    is_done = not failures and not collected.failures
    written = change = None
    if out is not None and is_done and outcomes and not dry_run:
        built = [(each.variant, each.artifact) for each in outcomes if each.artifact is not None]
        written = bundle_writer.write(out, built, only=only)
        change = written.change
    elif out is not None and is_done and dry_run:
        change = bundle_writer.preview(out, variants, only=only)
    if json:
        failed = [{"op": op, "error": error.message} for op, error in collected.failures]
        bundle = None if written is None else dataclasses.asdict(written) | {"folder": str(written.folder)}
        if bundle is not None:
            del bundle["change"]
        console.print_json(
            {
                "variants": [*map(reports.to_json, outcomes)],
                "wrappers": failed,
                "left_out": left_out,
                "bundle": bundle,
                "change": None if change is None else dataclasses.asdict(change),
            }
        )
    elif outcomes:
        _print_table(outcomes)
        made = [(each.variant.spec.label, each.artifact) for each in outcomes if each.artifact is not None]
        for reason in reports.reasons_for_nvcc((label, *reports.compiler_of(each)) for label, each in made):
            console.note(reason)
    for warning in reports.warnings_of(outcomes):
        console.note(warning)
    print_errors(failures)
    if not verbose and any(isinstance(error, CompileError) for error in failures):
        console.note("`kjit build --verbose` shows the compilers' full output, and commands to repeat it.")
    if written is not None:
        _print_bundle(written, project, is_result=not json)
    if change is not None and out is not None:
        _print_change(change, dry_run=dry_run)
    if not is_done:
        if out is not None and not dry_run:
            console.note(f"The bundle {out} is not written: it must be complete.")
        raise typer.Exit(1)


def _print_bundle(written: Written, project: Project, *, is_result: bool) -> None:
    """Print a bundle that was written, on stdout if it is the result of the command."""
    from kjit.runtime import load

    counts = f"{text.count(written.modules, 'module')}, {text.count(written.libraries, 'library', 'libraries')}"
    needs = "" if written.glibc is None else f"; runs with glibc {written.glibc} or newer"
    (console.say if is_result else console.note)(f"bundle {written.folder}: {counts}, {text.size(written.size)}{needs}")
    beside = project.package_dir / load.BUNDLE
    if written.folder.resolve() != beside.resolve():
        console.note(f"The wrappers look for it in {project.display(beside)}: ship it there.")


def _print_change(change: Change, *, dry_run: bool) -> None:
    """Print the changes of an existing bundle."""
    for names, done, would in (
        (change.replaced, "replaced", "would be replaced"),
        (change.removed, "removed (--only)", "would be removed (--only)"),
        (change.kept, "kept from before", "would be kept"),
    ):
        if names:
            console.note(f"{would if dry_run else done}: {_few(names)}")
    for doubt in change.doubts:
        console.note(f"in doubt: {doubt}")


def _few(names: Sequence[str]) -> str:
    """The first of some names, for display."""
    shown = 6
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _kinds(target: Sequence[str]) -> list[TargetKind] | None:
    """The targets named by `--target`; None if there are none."""
    names = [name for item in target for name in item.replace(",", " ").split()]
    for name in names:
        if name not in KINDS:
            raise UsageError(
                f"'{name}' is not a target.", hint=f"--target {env.one_of(tuple(KINDS))}, or several: cuda,cpu"
            )
    return list(dict.fromkeys(names)) or None


def _print_table(outcomes: list[Outcome]) -> None:
    """Print the built variants; for a dry run, the state of each, with reasons."""
    from kjit.engine.diagnostics.symbols import short_names
    from kjit.engine.reports import compiler_of

    is_dry = any(outcome.state == "stale" for outcome in outcomes)
    is_cuda = any(outcome.variant.target.archs for outcome in outcomes) and not is_dry
    right = ([] if is_dry else ["seconds"]) + ["size"]
    of_kernels = ["registers", "shared memory", "spills", "stack"] if is_cuda else []
    rows = []
    for outcome in outcomes:
        row = [outcome.variant.spec.label, str(outcome.variant.target), outcome.state]
        if not is_dry:
            row.append(f"{outcome.seconds:.1f}" if outcome.state == "built" else "-")
        row.append("-" if outcome.artifact is None else text.size(outcome.artifact.size))
        kernels = _kernels(outcome)
        blank = [""] * (1 + len(right))
        if is_cuda:
            row += _of_kernel(kernels[0]) if len(kernels) == 1 else ["-"] * len(of_kernels)
            row.append("-" if outcome.artifact is None else compiler_of(outcome.artifact)[0] or "-")
        rows.append([*row, outcome.reason] if is_dry else row)
        if is_cuda and len(kernels) > 1:
            names = short_names([kernel.kernel for kernel in kernels])
            for name, kernel in zip(names, kernels, strict=True):
                rows.append([f"  {name}", f"  {kernel.arch}", *blank, *_of_kernel(kernel)])
    last = ["why"] if is_dry else ["compiler"] if is_cuda else []
    text.print_rows(["variant", "target", "state", *right, *of_kernels, *last], rows, right + of_kernels)


def _kernels(outcome: Outcome) -> tuple[KernelResources, ...]:
    from kjit.engine.reports import report_of

    return () if outcome.artifact is None else report_of(outcome.artifact)[1]


def _of_kernel(kernel: KernelResources) -> list[str]:
    """Registers, static shared memory, spilled bytes and stack frame, for the table."""
    spills = kernel.spill_stores + kernel.spill_loads
    return [str(kernel.registers), text.size(kernel.shared), text.size(spills), text.size(kernel.stack)]
