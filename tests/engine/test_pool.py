"""Many variants in parallel: order, events, failures, interrupts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.engine.builder import build
from kjit.engine.cache import toolchains
from kjit.engine.cache.store import Store
from kjit.engine.outcomes import Event, Outcome, Queued, Started
from kjit.engine.pool import build_all
from kjit.errors import CompileError
from kjit.runtime import LAYOUT, manifest
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]
CPU = Target.cpu()


def header_of(spec: Spec) -> Path:
    return Path(spec.cpp_files[0]).with_suffix(".h")


class TestBuildAll:
    def test_what_is_built_ahead_of_use_is_found_without_compilers(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifest, "_SETTLING_NS", 0)
        monkeypatch.setattr(toolchains, "_is_own_code_known", lambda: True)
        variant = Variant(answer_op(tmp_path / "project"), Target.cpu())
        for _ in range(2):
            (outcome,) = build_all([variant], store)
            assert outcome.artifact is not None
            assert manifest.find(variant, str(store.root)) == outcome.artifact.path
            shutil.rmtree(store.root / LAYOUT / manifest.TOOLCHAINS)

    def test_every_variant_has_one_outcome_in_the_order_given(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variants = [Variant(answer_op(tmp_path, f"answer{n}"), CPU) for n in range(3)]
        outcomes = build_all([*variants, variants[0]], store, jobs=2)
        assert [outcome.variant for outcome in outcomes] == variants
        assert {outcome.state for outcome in outcomes} == {"built"}

    def test_one_failure_does_not_stop_the_others(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        specs = [answer_op(tmp_path, f"answer{n}") for n in range(3)]
        header_of(specs[0]).write_text("#error broken\n")
        outcomes = build_all([Variant(spec, CPU) for spec in specs], store, jobs=1)
        assert [outcome.state for outcome in outcomes] == ["failed", "built", "built"]
        assert isinstance(outcomes[0].error, CompileError)

    def test_a_missing_source_does_not_stop_the_others(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        missing = Spec("missing", cpp_files=[tmp_path / "missing.cpp"])
        outcomes = build_all([Variant(missing, CPU), Variant(answer_op(tmp_path), CPU)], store)
        assert [outcome.state for outcome in outcomes] == ["failed", "built"]

    def test_events_tell_what_starts_and_how_it_ends(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        events: list[Event] = []
        (outcome,) = build_all([variant], store, on_event=events.append)
        assert events == [Queued({variant: None}, 1), Started(variant, "it was never built here"), outcome]

    def test_hits_are_reported_before_anything_is_compiled(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variants = [Variant(answer_op(tmp_path, f"answer{n}"), CPU) for n in range(2)]
        build(variants[1], store)
        events: list[Event] = []
        build_all(variants, store, on_event=events.append)
        assert [(type(event), getattr(event, "state", None)) for event in events] == [
            (Outcome, "hit"),
            (Queued, None),
            (Started, None),
            (Outcome, "built"),
        ]

    def test_what_took_longest_when_it_was_last_built_starts_first(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = {("cpu", "answer<1>"): 1.0, ("cpu", "answer<2>"): 3.0}
        monkeypatch.setattr(Store, "build_seconds", lambda *_: seconds)
        variants = [Variant(answer_op(tmp_path, "answer", 42, n), CPU) for n in "123"]
        events: list[Event] = []
        build_all(variants, store, jobs=1, on_event=events.append)
        # Of the third nothing is known; it counts as the other variants of its op do.
        (queued,) = [event for event in events if isinstance(event, Queued)]
        assert dict(queued.seconds) == {variants[1]: 3.0, variants[2]: 3.0, variants[0]: 1.0}
        assert [event.variant for event in events if isinstance(event, Started)] == list(queued.seconds)

    def test_an_interrupt_ends_the_compiles_and_leaves_nothing_half_done(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        specs = [answer_op(tmp_path, f"answer{n}") for n in range(3)]
        for spec in specs:  # no compile ends by itself: nobody writes into the pipe
            header_of(spec).write_text('#include "never"\n')
        os.mkfifo(header_of(specs[0]).with_name("never"))
        events: list[Event] = []

        def interrupt(event: Event) -> None:
            events.append(event)
            if sum(isinstance(each, Started) for each in events) == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            build_all([Variant(spec, CPU) for spec in specs], store, jobs=2, on_event=interrupt)
        assert [event for event in events if isinstance(event, Outcome)] == []
        assert list(store.entries()) == []
        assert list((store.root / LAYOUT / "staging").iterdir()) == []
