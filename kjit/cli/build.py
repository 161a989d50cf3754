"""`kjit build`: compile every declared variant ahead of use."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kjit import env
from kjit.cli import complete, console, text
from kjit.errors import CompileError, KjitError, UsageError
from kjit.spec import TargetKind

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

    from kjit.engine.bundle_writer import Change, Written
    from kjit.engine.cache.artifact import Artifact
    from kjit.engine.cache.store import Store
    from kjit.engine.diagnostics.resources import KernelResources
    from kjit.engine.outcomes import Event, Outcome
    from kjit.project import Project
    from kjit.spec import Variant

_ENDED_BY = 128  # plus the signal's number, as in shells
_WORTH_TELLING_S = 10.0
_DEAF_S = 10.0  # to a second signal: longer than the grace period in run.py


def build(
    ops: Annotated[
        list[str] | None,
        typer.Argument(metavar="OP", help="Only these ops; default all.", autocompletion=complete.ops),
    ] = None,
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
    arch: Annotated[
        list[str] | None,
        typer.Option("--arch", metavar="LIST", help="CUDA architectures, like 8.0,9.0a; default the GPUs present."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="LIST", help="cuda, cpu, sim, sim-check; default: cuda and cpu, if they can be built."
        ),
    ] = None,
    cuda_compiler: Annotated[
        str | None,
        typer.Option(
            "--cuda-compiler",
            metavar="NAME",
            help="auto, nvcc or nvrtc; default: KJIT_CUDA_COMPILER, else auto.",
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
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
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
    from kjit.engine import bundle_writer, pool, reports
    from kjit.engine.cache.store import Store
    from kjit.planning import wrappers
    from kjit.planning.targets import choose_targets
    from kjit.project import find_project

    kinds = _kinds(target or ())
    if cuda_compiler is not None:
        if cuda_compiler not in ("auto", "nvcc", "nvrtc"):
            raise UsageError(f"--cuda-compiler is '{cuda_compiler}'.", hint="say auto, nvcc or nvrtc")
        os.environ[env.CUDA_COMPILER] = cuda_compiler
    if only and out is None:
        raise UsageError("--only is about a bundle, and there is no --out.", hint="name its folder with --out")
    if out is not None:
        bundle_writer.check_folder(out, only=only)
    project = find_project()
    if recorded is not None and ops:
        raise UsageError("--from lists what is built, and so do names of ops.", hint="leave out one of the two")
    variants: list[Variant] = []
    left_out: list[str] = []
    if recorded is not None:
        from kjit.planning import recorded as records

        variants, gone = records.read(recorded, project)
        collected = wrappers.Collected([(each.spec.name, [each.spec]) for each in variants], gone, [])
    else:
        collected = (wrappers.collect_quickly if dry_run else wrappers.collect)(project, ops or ())
    for op in collected.without:
        console.note(f"{op} declares no module (kjit.module), so there is nothing to build ahead of use.")
    print_errors(error for _, error in collected.failures)
    specs = collected.specs()
    if variants and not kinds and not arch:
        if out is not None:
            variants = _of_bundle_for(variants)
    elif specs:
        targets, left_out = choose_targets(specs, kinds, arch or (), needs_all=out is not None)
        variants = collected.variants(targets if out is None else bundle_writer.targets_of_bundle(targets))
        for sentence in left_out:
            console.note(sentence)
    elif not collected.failures:
        why = "no wrapper here declares a module (kjit.module)" if recorded is None else f"{recorded} lists no variant"
        console.note(f"Nothing to build: {why}.")

    store = Store.open()
    outcomes, beside = (
        (pool.look_up_all(variants, store), [])
        if dry_run
        else build_variants(variants, store, jobs, verbose, out is not None)
    )
    failures = [outcome.error for outcome in outcomes if outcome.error is not None]
    is_done = not failures and not collected.failures
    written = change = None
    if out is not None and is_done and outcomes and not dry_run:
        built = [(each.variant, each.artifact) for each in outcomes if each.artifact is not None]
        written = bundle_writer.write(out, [*built, *beside], only=only)
        change = written.change
    elif out is not None and is_done and dry_run:
        change = bundle_writer.preview(out, variants, only=only)
        # Whether kjit's own module is needed is known only when wrappers are imported with torch.
        lists = {name: _of_wrappers(getattr(change, name)) for name in ("kept", "others", "removed", "replaced")}
        change = dataclasses.replace(change, **lists)
    if json:
        failed = [{"op": op, "error": error.message} for op, error in collected.failures]
        document: dict[str, object] = {"variants": [*map(_to_json, outcomes)], "wrappers": failed}
        console.print_json(
            document
            | {
                "left_out": left_out,
                "bundle": (None if written is None else _of_bundle(written)),
                "change": (None if change is None else dataclasses.asdict(change)),
            }
        )
    elif outcomes:
        _print_table(outcomes)
    for warning in reports.warnings_of(outcomes):
        console.note(warning)
    print_errors(failures)
    if not verbose and any(isinstance(error, CompileError) for error in failures):
        console.note("`kjit build --verbose` shows the compilers' full output, and commands to repeat it.")
    repeated = sum(1 for error in failures if isinstance(error, CompileError) and error.is_repeated)
    if repeated:
        which = "It was" if repeated == len(failures) == 1 else f"{repeated} of them were"
        console.note(f"{which} not compiled again: nothing that this depends on has changed since it failed.")
    if written is not None:
        _tell_of_bundle(written, project, is_result=not json)
    if change is not None and out is not None:
        _tell_of_change(change, dry_run=dry_run, declares_all=not ops)
    if not is_done:
        if out is not None and not dry_run:
            console.note(f"The bundle {out} is not written: it must be complete.")
        raise typer.Exit(1)


def _of_bundle_for(variants: list[Variant]) -> list[Variant]:
    """The variants to build so that a bundle serves `variants`."""
    from kjit.engine import bundle_writer
    from kjit.spec import Variant

    specs = dict.fromkeys(each.spec for each in variants)
    targets = {spec: [each.target for each in variants if each.spec == spec] for spec in specs}
    return [Variant(spec, target) for spec in specs for target in bundle_writer.targets_of_bundle(targets[spec])]


def _of_bundle(written: Written) -> dict[str, object]:
    return {
        "folder": str(written.folder),
        "modules": written.modules,
        "libraries": written.libraries,
        "size": written.size,
        "glibc": written.glibc,
    }


def _tell_of_bundle(written: Written, project: Project, *, is_result: bool) -> None:
    from kjit.runtime import load

    counts = f"{text.count(written.modules, 'module')}, {text.count(written.libraries, 'library', 'libraries')}"
    needs = "" if written.glibc is None else f"; runs with glibc {written.glibc} or newer"
    (console.say if is_result else console.note)(f"bundle {written.folder}: {counts}, {text.size(written.size)}{needs}")
    beside = project.package_dir / load.BUNDLE
    if written.folder.resolve() != beside.resolve():
        console.note(f"The wrappers look for it in {project.display(beside)}: ship it there.")


def _tell_of_change(change: Change, *, dry_run: bool, declares_all: bool) -> None:
    """Print the changes of an existing bundle."""
    for names, done, would in (
        (change.replaced, "replaced", "would be replaced"),
        (change.removed, "removed (--only)", "would be removed (--only)"),
        (change.kept, "kept from before", "would be kept"),
    ):
        if names:
            console.note(f"{would if dry_run else done}: {_few(names)}")
    others = _of_wrappers(change.others)
    if change.kept and others and declares_all:
        console.note(f"No wrapper declares {_few(others)} any longer; --only removes that.")
    for doubt in change.doubts:
        console.note(f"in doubt: {doubt}")


def _of_wrappers(names: Iterable[str]) -> tuple[str, ...]:
    """The modules and libraries that are not kjit's own."""
    from kjit.runtime.native import NAME

    return tuple(name for name in names if not name.startswith(NAME))


def _few(names: Sequence[str]) -> str:
    shown = 6
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _kinds(target: Sequence[str]) -> list[TargetKind] | None:
    known: dict[str, TargetKind] = {"cuda": "cuda", "cpu": "cpu", "sim": "sim", "sim-check": "sim-check"}
    names = [name for item in target for name in item.replace(",", " ").split()]
    for name in names:
        if name not in known:
            raise UsageError(
                f"'{name}' is not a target.", hint="--target cuda, cpu, sim or sim-check, or several: cuda,cpu"
            )
    return list(dict.fromkeys(known[name] for name in names)) or None


def build_variants(
    variants: list[Variant], store: Store, jobs: int | None, verbose: bool, to_ship: bool
) -> tuple[list[Outcome], list[tuple[Variant, Artifact]]]:
    """The outcome of each variant, and the artifacts that ops need in addition to their modules."""
    from kjit.engine import pool
    from kjit.engine.compile.jobs import parallel_jobs, units_of

    at_once = parallel_jobs(variants, jobs)
    if jobs is not None and at_once < min(jobs, units_of(variants)):
        console.note(f"{text.count(at_once, 'compile')} at once instead of {jobs}: there is not enough free memory.")
    with (
        _ended_by_signals() as cancel,
        _progress(len(variants), verbose) as on_event,
        _beside(store, to_ship) as beside,
    ):
        outcomes = pool.build_all(
            variants, store, jobs=jobs, on_event=on_event, verbose=verbose, must_last=not to_ship, cancel=cancel
        )
    return outcomes, beside


def _beside(store: Store, to_ship: bool) -> contextlib.AbstractContextManager[list[tuple[Variant, Artifact]]]:
    """Compile what ops need in addition to their modules, if any wrapper defines an op."""
    if "kjit.runtime.torch_op" not in sys.modules:
        return contextlib.nullcontext([])
    from kjit.engine.compile import eager_calls

    return eager_calls.building(store, to_ship=to_ship)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    """End the compilers when this process is terminated (by Ctrl-C, CI, or a closed terminal).

    That takes a few seconds at most (run.py), during which a second signal is ignored, as it would leave the work half
    done; later ones are not, in case something hangs. Yields an event that is set by the signal: Python drops an
    exception raised in a `__del__` or a callback of a weak reference, and the event reaches the waiting code anyway.
    """
    cancel = threading.Event()
    heard, heard_at = signal.SIGINT, -math.inf

    def leave(number: int, frame: object) -> None:
        nonlocal heard, heard_at
        del frame
        now = time.monotonic()
        if now - heard_at < _DEAF_S:
            return
        heard, heard_at = signal.Signals(number), now
        cancel.set()
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Ignored signals stay ignored: SIGHUP under nohup, SIGINT in background jobs of a script.
    listened = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in listened}
    try:
        yield cancel
    except (KeyboardInterrupt, CancelledError):
        if heard == signal.SIGINT:
            console.note("Interrupted. Finished artifacts are kept.")
        raise typer.Exit(_ENDED_BY + heard) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _progress(total: int, verbose: bool) -> Iterator[Callable[[Event], None]]:
    """A function for events: a live display on a terminal, otherwise (in a pipe, in CI) one line each."""
    from kjit.engine.estimate import Estimate
    from kjit.engine.outcomes import Queued, Started

    done = 0
    estimate = Estimate()

    def log(event: Event) -> None:
        nonlocal done
        estimate.on_event(event, time.monotonic())
        if isinstance(event, Queued):
            return
        if isinstance(event, Started):
            console.note(f"compiling {event.variant.label}: {event.reason}")
            return
        done += 1
        if event.state != "hit":
            left = estimate.seconds_left(time.monotonic()) or 0.0
            more = f", about {text.seconds(left)} left" if left >= _WORTH_TELLING_S else ""
            console.note(f"[{done}/{total}] {event.state} {event.variant.label} in {event.seconds:.1f} s{more}")
        if verbose and event.artifact is not None and event.state == "built":
            _print_commands(event)

    if not console.is_live() or verbose or not total:
        yield log
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
    from rich.text import Text

    class Done(MofNCompleteColumn):
        """The number of finished variants, in the line of the total only."""

        def render(self, task: Task) -> Text:
            return Text() if task.total is None else super().render(task)

    class Times(ProgressColumn):
        """Elapsed and expected time of a compile, and of the total."""

        def render(self, task: Task) -> Text:
            since = text.seconds(task.elapsed or 0.0)
            variant = task.fields.get("variant")
            if variant is None:
                left = estimate.seconds_left(time.monotonic())
                return Text(f"{since}, about {text.seconds(left)} left" if left else since)
            expected = estimate.expected(variant)
            return Text(since if expected is None else f"{since} of about {text.seconds(expected)}")

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Done(), Times())
    with Progress(*columns, console=console.err(), transient=True) as progress:
        everything = progress.add_task("building", total=total)
        running: dict[Variant, Any] = {}

        def show(event: Event) -> None:
            estimate.on_event(event, time.monotonic())
            if isinstance(event, Queued):
                return
            if isinstance(event, Started):
                if event.variant not in running:  # else it is compiled again
                    label = f"  {event.variant.label}"
                    running[event.variant] = progress.add_task(label, total=None, variant=event.variant)
                return
            if event.variant in running:
                progress.remove_task(running.pop(event.variant))
            progress.advance(everything)

        yield show


def _print_table(outcomes: list[Outcome]) -> None:
    """Print the built variants; for a dry run, the state of each, with reasons."""
    from rich.markup import escape

    from kjit.engine.diagnostics.symbols import short_names
    from kjit.engine.reports import compiler_of

    is_dry = any(outcome.state == "stale" for outcome in outcomes)
    is_cuda = any(outcome.variant.target.kind == "cuda" for outcome in outcomes) and not is_dry
    of_build = () if is_dry else ("seconds",)
    of_kernels = ("registers", "shared memory", "spills", "stack") if is_cuda else ()
    last = ("why",) if is_dry else ("compiler",) if is_cuda else ()
    table = text.table(("variant", "target", "state"), (*of_build, "size", *of_kernels), last)
    colors = {"hit": "green", "built": "green", "stale": "yellow", "failed": "red"}
    for outcome in outcomes:
        row = [outcome.variant.spec.label, str(outcome.variant.target)]
        row.append(f"[{colors[outcome.state]}]{outcome.state}[/]")
        if not is_dry:
            row.append(f"{outcome.seconds:.1f}" if outcome.state == "built" else "-")
        row.append("-" if outcome.artifact is None else text.size(outcome.artifact.size))
        kernels = _kernels(outcome)
        if is_cuda:
            row += _of_kernel(kernels[0]) if len(kernels) == 1 else ["-"] * len(of_kernels)
            row.append("-" if outcome.artifact is None else compiler_of(outcome.artifact)[0] or "-")
        table.add_row(*row, *([escape(outcome.reason)] if is_dry else []))
        if is_cuda and len(kernels) > 1:
            names = short_names([kernel.kernel for kernel in kernels])
            for name, kernel in zip(names, kernels, strict=True):
                of_variant = [""] * (len(row) - 2 - len(of_kernels) - len(last))
                table.add_row(f"  {escape(name)}", f"  {kernel.arch}", *of_variant, *_of_kernel(kernel))
    text.print_table(table)


def _kernels(outcome: Outcome) -> tuple[KernelResources, ...]:
    from kjit.engine.reports import report_of

    return () if outcome.artifact is None else report_of(outcome.artifact)[1]


def _of_kernel(kernel: KernelResources) -> list[str]:
    """Registers, static shared memory, spilled bytes and stack frame, for the table."""
    spills = kernel.spill_stores + kernel.spill_loads
    return [str(kernel.registers), text.size(kernel.shared), text.size(spills), text.size(kernel.stack)]


def _print_commands(outcome: Outcome) -> None:
    from kjit.engine.reports import compiler_of

    assert outcome.artifact is not None  # it was built
    compiler, why = compiler_of(outcome.artifact)
    console.note(f"  by {compiler}, because {why}" if why else f"  by {compiler}")
    commands = outcome.artifact.build.get("commands")
    for command in commands if isinstance(commands, list) else []:
        console.note(f"  {command}")


def print_errors(errors: Iterable[KjitError]) -> None:
    """Print each error once, as a mistake in a source affects all its variants."""
    known: set[str] = set()
    for error in errors:
        head, _, detail = error.message.partition("\n")
        if not isinstance(error, CompileError):
            detail = error.message
        # The template arguments differ between variants.
        same = "\n".join(line for line in detail.splitlines() if not line.startswith(("  in ", "  at ")))
        if same not in known:
            console.print_error(error.message, error.hint)
        elif isinstance(error, CompileError):
            console.print_error(f"{head} (as above)", None)
        known.add(same)


def _to_json(outcome: Outcome) -> dict[str, object]:
    from dataclasses import asdict

    from kjit.engine.reports import compiler_of, report_of

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
