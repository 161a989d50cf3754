"""Builds of many variants: what is stale, and how they share the machine.

What there is to build is what a project's wrappers declare (`collect`), for what this machine has compilers for or is
asked for (`choose_targets`).

`build` is the miss path of every road: one variant, under the lock of its key, in a staging folder, published only if
nothing that it was made from changed meanwhile. `build_all` runs it for many variants in threads (the work is done by
compilers, each a process of its own), as many at a time as jobs.py allows. What takes longest starts first: begun last,
it would keep one core busy while the others wait. How long something takes, earlier builds of it have told
(`expected_seconds`).

A source that is saved while its compile runs makes what came out of it unfit for the cache: nobody knows which of the
two versions it holds. It is then built once more, from what is there now. If that happens twice, somebody is writing
the file all the time, and the answer is an error. The same goes for a compiler that is exchanged meanwhile.

What compilers refused, and would refuse again, is not compiled again (failures.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kjit import env
from kjit.engine.cache import recall_writer
from kjit.engine.cache.failures import Refusal
from kjit.engine.cache.staging import is_taken_away
from kjit.engine.cache.store import Artifact, Lookup, Store
from kjit.engine.compile.compile import Built, compile_variant, explain_again
from kjit.engine.compile.jobs import Jobs, of_process, parallel_jobs, units
from kjit.engine.diagnostics.diagnostics import KernelResources
from kjit.engine.key.key import FileState, Key
from kjit.engine.key.observation import Observation, Start
from kjit.engine.toolchain.toolchain import Toolchain, find_cuda, resolve_archs
from kjit.errors import CacheError, KjitError, ToolchainError, UsageError
from kjit.project import Project, Raised, run_of_project
from kjit.runtime.declared import DeclaredModule, declared_in, variants_of
from kjit.runtime.stand_in import torch_stand_in
from kjit.spec import Side, Spec, Target, TargetKind, Variant

# Which compiles are the long ones, where no earlier build has told; for CUDA, of one architecture.
_USUAL_SECONDS: Mapping[TargetKind, float] = {"cpu": 1.0, "cuda": 3.0, "sim": 2.0, "sim-check": 3.0}

_ATTEMPTS = 10

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Outcome:
    """What became of one variant.

    Attributes:
        state: `hit` (it was built already), `built`, `failed`, or `stale` (it would have to be built).
        seconds: from asking to having it, waits for other processes included.
        reason: why it had to be built, or would have to; empty for a hit.
        error: for `failed`.
    """

    variant: Variant
    state: Literal["hit", "built", "failed", "stale"]
    seconds: float
    reason: str = ""
    artifact: Artifact | None = None
    error: KjitError | None = None


@dataclass(frozen=True)
class Started:
    """A compile starts, and why."""

    variant: Variant
    reason: str


@dataclass(frozen=True)
class Queued:
    """What `build_all` found to compile, after it has reported all hits.

    Attributes:
        seconds: for each variant, in the order in which they start, what it will take; None where nothing is known.
        jobs: how many are built at once.
    """

    seconds: Mapping[Variant, float | None]
    jobs: int


Event = Queued | Started | Outcome
"""What `build_all` reports while it works: each variant ends with an `Outcome`, some begin with a `Started`; one
`Queued` comes before the first of these."""


def look_up_all(variants: Iterable[Variant], store: Store) -> list[Outcome]:
    """What building `variants` would find: `hit`, `stale` with the reason, or `failed` where that is unknown."""
    return [_look_up(variant, store.find) for variant in dict.fromkeys(variants)]


def _look_up(variant: Variant, find: Callable[[Key], Lookup]) -> Outcome:
    began = time.perf_counter()
    try:
        found = find(Key.of(variant, Toolchain.for_target(variant.target)))
    except KjitError as error:
        return Outcome(variant, "failed", time.perf_counter() - began, error=error)
    state: Literal["hit", "stale"] = "stale" if found.artifact is None else "hit"
    return Outcome(variant, state, time.perf_counter() - began, found.reason, found.artifact)


def expected_seconds(variants: Iterable[Variant], store: Store) -> dict[Variant, float | None]:
    """How long each variant will take to compile: as long as when it was last built for this target, else as the other
    variants of its op; None where neither is in the cache."""
    expected: dict[Variant, float | None] = {}
    told: dict[str, Mapping[tuple[str, str], float]] = {}
    for variant in variants:
        op, target = variant.spec.name, str(variant.target)
        if op not in told:
            told[op] = store.build_seconds(op)
        of_target = sorted(seconds for (each, _), seconds in told[op].items() if each == target)
        middle = of_target[len(of_target) // 2] if of_target else None
        expected[variant] = told[op].get((target, variant.spec.label), middle)
    return expected


class Estimate:
    """How much longer will `build_all` take? It is told every event, and the time (seconds of any clock)."""

    def __init__(self) -> None:
        self._waiting: dict[Variant, float | None] = {}
        self._running: dict[Variant, float] = {}
        self._jobs = 1

    def on_event(self, event: Event, now: float) -> None:
        if isinstance(event, Queued):
            self._waiting = dict(event.seconds)
            self._jobs = event.jobs
        elif isinstance(event, Started):
            self._running.setdefault(event.variant, now)
        else:
            self._running.pop(event.variant, None)
            self._waiting.pop(event.variant, None)

    def expected(self, variant: Variant) -> float | None:
        """Seconds that the compile of `variant` will take from its start; None where nothing is known."""
        return self._waiting.get(variant)

    def seconds_left(self, now: float) -> float | None:
        """Seconds until all is done; None where nothing is known of one of those that are left."""
        left = []
        for variant, seconds in self._waiting.items():
            if seconds is None:
                return None
            left.append(max(seconds - (now - self._running.get(variant, now)), 0.0))
        return max(sum(left) / self._jobs, max(left, default=0.0))


def build(
    variant: Variant,
    store: Store,
    *,
    on_start: Callable[[Started], None] | None = None,
    verbose: bool = False,
    cancel: threading.Event | None = None,
    jobs: Jobs | None = None,
) -> Outcome:
    """Build `variant` unless it is built already, here or by another process that gets there first.

    Args:
        on_start: called right before a compile.
        verbose: put the compilers' whole output into an error's message.
        cancel: set by another thread, ends a wait and a compile.
        jobs: the places for compilers that it shares with other builds; by default those of the process.

    Raises:
        KjitError: it cannot be built (most often a `CompileError`); no artifact was added to the cache.
        CancelledError: `cancel` was set.
    """
    began = time.perf_counter()
    before: Mapping[str, FileState] = {}
    changes = 0
    for _ in range(_ATTEMPTS):
        toolchain = Toolchain.for_target(variant.target, thorough=True)
        key = Key.of(variant, toolchain)
        found = store.fetch(key)
        if found.artifact is not None:
            return Outcome(variant, "hit", time.perf_counter() - began, artifact=found.artifact)
        home = store.writable()
        with home.lock(key, cancel):
            # Another process may have built it while this one waited for the lock.
            found = home.find(key) if home is store else Lookup(home.find(key).artifact, found.reason)
            if found.artifact is not None:
                return Outcome(variant, "hit", time.perf_counter() - began, artifact=found.artifact)
            places = of_process(variant, cancel) if jobs is None else jobs.take(units(variant.spec), cancel)
            with home.staging() as staging, contextlib.ExitStack() as stack:
                said = home.recall_failure(key)
                again = None if said is None else explain_again(variant, toolchain, staging, said, verbose=verbose)
                if again is not None:
                    raise again
                at_once = stack.enter_context(places)
                if on_start is not None:
                    on_start(Started(variant, found.reason))
                start = Start.now()
                refusals: list[Refusal] = []
                try:
                    built = compile_variant(
                        variant,
                        toolchain,
                        staging,
                        verbose=verbose,
                        cancel=cancel,
                        on_refusal=refusals.append,
                        jobs=at_once,
                    )
                    observed = Observation.of(built.headers, key, toolchain, others=built.others, sought=built.sought)
                    known = {**before, **{state.path: state for state in key.sources}}
                    changed = observed.changed_since(start.earliest_ns(), known)
                    if Toolchain.for_target(variant.target, thorough=True) != toolchain:
                        changed.append(str(toolchain.cxx.path))
                    if not changed:
                        artifact = home.publish(key, built.library, observed.reads, _report(built), staging)
                        return Outcome(variant, "built", time.perf_counter() - began, found.reason, artifact)
                except (OSError, KjitError) as error:
                    if not is_taken_away(staging, error):
                        for refusal in refusals:
                            home.remember_failure(key, toolchain, refusal, start)
                        raise
                    _log.info("%s: built once more, because the cache was emptied meanwhile: %s", variant.label, error)
                    continue
        changes += 1
        if changes == 2:
            if not os.path.exists(changed[0]):
                raise KjitError(
                    f"{variant.label} is not built, because the compiler read '{changed[0]}', as it says, and there is "
                    "no such file.",
                    hint="if a tab or a backslash is in the header's name, rename it; else build it again",
                )
            raise KjitError(
                f"{variant.label} is not built, because '{changed[0]}' changed during the compile, twice.",
                hint="build it again when nothing writes the file any more",
            )
        _log.info("%s: built once more, because it changed meanwhile: %s", variant.label, ", ".join(changed))
        before = observed.states
    raise CacheError(f"{variant.label} is not built, because the cache '{store.root}' is being emptied all the time.")


def build_all(
    variants: Iterable[Variant],
    store: Store,
    *,
    jobs: int | None = None,
    on_event: Callable[[Event], None] | None = None,
    verbose: bool = False,
    must_last: bool = False,
    cancel: threading.Event | None = None,
) -> list[Outcome]:
    """Build many variants at once. One that fails does not stop the others.

    An exception that is no `KjitError`, Ctrl-C above all, ends every compile that is under way, leaves the cache
    as if they had not begun, and is raised again. This takes some seconds, and is not to be interrupted: a second
    Ctrl-C is for the caller to hold back.

    Args:
        jobs: compile at most so many units at once; by default as `parallel_jobs` says. Free memory may allow fewer.
        on_event: called with each event, one at a time and not from this thread.
        verbose: put the compilers' whole output into errors' messages.
        must_last: what is built has to be there when this process has ended.
        cancel: set by another thread or a signal's handler, ends the compiles as an exception does.

    Returns:
        One outcome a variant, in their order; a variant that is given twice has one.

    Raises:
        CancelledError: `cancel` was set.
        CacheError: with `must_last`, something has to be built and the cache cannot be written. Nothing was compiled.
    """
    todo = list(dict.fromkeys(variants))
    reporting = threading.Lock()
    cancel = threading.Event() if cancel is None else cancel

    def report(event: Event) -> None:
        if on_event is not None:
            with reporting:
                on_event(event)

    def work(variant: Variant) -> Outcome:
        began = time.perf_counter()
        try:
            outcome = build(variant, store, on_start=report, verbose=verbose, cancel=cancel, jobs=shared)
        except KjitError as error:
            outcome = Outcome(variant, "failed", time.perf_counter() - began, error=error)
        report(outcome)
        return outcome

    # What is built already is not queued after what compiles.
    outcomes: dict[Variant, Outcome] = {}
    for variant in todo:
        outcomes[variant] = _look_up(variant, store.fetch)
        if outcomes[variant].state != "stale":
            report(outcomes[variant])
    stale = [variant for variant in todo if outcomes[variant].state == "stale"]
    if stale and must_last:
        store.writable(must_last=True)
    at_once = parallel_jobs(stale, jobs)
    shared = Jobs(at_once)
    at_once = max(min(at_once, len(stale)), 1)
    expected = expected_seconds(stale, store)
    order = sorted(stale, key=lambda variant: expected[variant] or _usual_seconds(variant.target), reverse=True)
    if stale:
        report(Queued({variant: expected[variant] for variant in order}, at_once))

    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="kjit-build") as pool:
        try:
            # Inside the `try` too: an interrupt may come when the first compile runs and the last is not yet submitted.
            futures = {variant: pool.submit(work, variant) for variant in order}
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            outcomes |= {variant: future.result() for variant, future in futures.items()}
        except BaseException:
            # The pool's end waits for its threads, and each of them for its compilers to be gone.
            cancel.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for variant, outcome in outcomes.items():
        if outcome.artifact is not None:
            recall_writer.remember(variant, store, outcome.artifact)
    return [outcomes[variant] for variant in todo]


@dataclass(frozen=True)
class Collected:
    """What the wrappers of a project declare.

    Attributes:
        modules: what is built ahead of use for each declared op, with the name of the first wrapper that has it.
        failures: wrappers that cannot be asked, and why.
        without: wrappers that declare nothing, and so cannot be built ahead of use.
    """

    modules: list[tuple[str, list[Spec]]]
    failures: list[tuple[str, KjitError]]
    without: list[str]

    def specs(self) -> list[Spec]:
        return list(dict.fromkeys(spec for _, specs in self.modules for spec in specs))

    def variants(self, targets: Sequence[Target]) -> list[Variant]:
        every = (each for _, specs in self.modules for spec in specs for each in variants_of(spec, targets))
        return list(dict.fromkeys(every))


def collect(project: Project, ops: Sequence[str] = ()) -> Collected:
    """Import the wrappers of `ops` (default: all of the project) and find the declared ops in them.

    What they print goes to stderr.

    Raises:
        UsageError: there is no such op.
    """
    collected = Collected([], [], [])
    known: set[int] = set()
    for op in project.check_ops(list(ops)):
        try:
            module = project.import_wrapper(op)
        except KjitError as error:
            collected.failures.append((op, error))
            continue
        found = declared_in(vars(module))
        if not found:
            collected.without.append(op)
        for declared in found:
            if id(declared) in known:
                continue
            known.add(id(declared))
            specs = run_of_project(declared.specs)
            if isinstance(specs, Raised):
                collected.failures.append((op, _failed_declaration(op, declared, specs.error)))
            else:
                collected.modules.append((op, specs))
    return collected


def collect_quickly(project: Project, ops: Sequence[str] = ()) -> Collected:
    """The same without torch, where the wrappers need none to be imported: to tell what would be built, not to build.

    Raises:
        UsageError: as above.
    """
    with torch_stand_in(project.import_root) as stand_in:
        if stand_in is not None:
            collected = collect(project, ops)
            if stand_in.is_enough and not collected.failures:
                return collected
    return collect(project, ops)


def choose_targets(
    specs: Sequence[Spec],
    kinds: Sequence[TargetKind] | None = None,
    archs: Sequence[str] = (),
    *,
    needs_all: bool = False,
) -> tuple[list[Target], list[str]]:
    """The targets to build `specs` for, and what was left out and why, a sentence each.

    Args:
        kinds: what was asked for; by default the GPU and the CPU, where there are sources for them and compilers on
            this machine, and the simulator if `KJIT_SIM` asks for it.
        archs: CUDA architectures that were asked for; by default as `resolve_archs` finds them.
        needs_all: a missing compiler is an error by default, too: nothing is left out.

    Raises:
        UsageError: nothing has a source for what was asked for.
        ToolchainError: a compiler for it is missing, or no architecture is known.
    """
    if archs and kinds is not None and "cuda" not in kinds:
        raise UsageError("--arch is for CUDA, and --target leaves CUDA out.", hint="drop one of the two")
    targets: list[Target] = []
    left_out: list[str] = []
    missing: ToolchainError | None = None
    simulation = env.simulation() if kinds is None else None
    for kind, side in _SIDES.items():
        with_source = sorted({spec.name for spec in specs if side in spec.kinds})
        asked = kind in kinds if kinds is not None else kind == "cuda" and bool(archs)
        if not asked and (kinds is not None or not with_source or kind not in ("cuda", "cpu", simulation)):
            continue
        if not with_source:
            raise UsageError(f"none of these ops has a {_SOURCE[side]} source.", hint=_add_source(specs))
        try:
            if kind != "cuda":
                targets.append(Toolchain.for_target(Target(kind)).target)
                continue
            find_cuda()
        except ToolchainError as error:
            if asked:
                raise
            if needs_all:
                others = sorted({each for spec in specs for each in spec.kinds} - {side})
                instead = f"; `--target {others[0]}` leaves {kind} out" if others else ""
                raise ToolchainError(error.message, hint=f"{error.hint or 'fix it'}{instead}") from None
            missing = missing or error
            left_out.append(f"{kind} is left out ({', '.join(with_source)}): {error.message}")
            continue
        targets += map(Target.cuda, resolve_archs(archs or None))
    if not targets and missing is not None:
        raise missing
    if kinds is not None:
        for kind in kinds:
            lacking = sorted({spec.name for spec in specs if _SIDES[kind] not in spec.kinds})
            left_out += [
                f"{name} has no {_SOURCE[_SIDES[kind]]} source, and is not built for {kind}" for name in lacking
            ]
    return targets, left_out


def report_of(artifact: Artifact) -> tuple[float, tuple[KernelResources, ...], str]:
    """What the build of `artifact` reported: seconds, what each CUDA kernel needs, warnings."""
    told = artifact.build
    seconds, resources, warnings = told.get("seconds"), told.get("resources"), told.get("warnings")
    return (
        seconds if isinstance(seconds, float) else 0.0,
        tuple(KernelResources(**item) for item in resources) if isinstance(resources, list) else (),
        warnings if isinstance(warnings, str) else "",
    )


def compiler_of(artifact: Artifact) -> tuple[str, str]:
    """What compiled the kernels of `artifact`, and why it was nvcc where NVRTC was there; empty where nobody knows."""
    compiler, why = artifact.build.get("compiler"), artifact.build.get("why_nvcc")
    return compiler if isinstance(compiler, str) else "", why if isinstance(why, str) else ""


def warnings_of(outcomes: Iterable[Outcome]) -> list[str]:
    """What the compilers said besides where something was built: each warning once, however many variants it came
    with."""
    told = [report_of(each.artifact)[2] for each in outcomes if each.state == "built" and each.artifact is not None]
    return [part for part in dict.fromkeys(part for text in told for part in text.split("\n\n")) if part]


def _usual_seconds(target: Target) -> float:
    return _USUAL_SECONDS[target.kind] * (1 + len(target.others) / 2)


_SIDES: Mapping[TargetKind, Side] = {"cuda": "cuda", "cpu": "cpu", "sim": "cuda", "sim-check": "cuda"}
_SOURCE: Mapping[Side, str] = {"cuda": "CUDA", "cpu": "C++"}


def _add_source(specs: Sequence[Spec]) -> str | None:
    return f"they have sources for {' and '.join(specs[0].kinds)}" if specs else None


def _failed_declaration(op: str, declared: DeclaredModule[Any], error: BaseException) -> KjitError:
    if isinstance(error, KjitError):
        return KjitError(f"{op}: {error.message}", hint=error.hint)
    return KjitError(
        f"{op}: the declaration {declared.__name__} fails: {type(error).__name__}: {error}",
        hint=f"correct the function {declared.__name__} in the wrapper of {op}",
    )


def _report(built: Built) -> dict[str, object]:
    return {
        "seconds": built.seconds,
        "resources": [asdict(kernel) for kernel in built.resources],
        "commands": list(built.commands),
        "warnings": built.warnings,
        "compiler": built.compiler,
        "why_nvcc": built.why_nvcc,
    }
