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
from kjit.engine.outcomes import Event, Outcome, Started
from kjit.engine.pool import build_all
from kjit.errors import CompileError, UsageError
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
        specs = [answer_op(tmp_path, f"answer{n}") for n in range(2)]
        header_of(specs[0]).write_text("#error broken\n")
        specs.insert(0, Spec("missing", cpp_files=[tmp_path / "missing.cpp"]))
        outcomes = build_all([Variant(spec, CPU) for spec in specs], store, jobs=1)
        assert [outcome.state for outcome in outcomes] == ["failed", "failed", "built"]
        assert [type(outcome.error) for outcome in outcomes] == [UsageError, CompileError, type(None)]

    def test_events_tell_what_starts_and_how_it_ends(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        events: list[Event] = []
        (outcome,) = build_all([variant], store, on_event=events.append)
        assert events == [Started(variant, "it was never built here"), outcome]

    def test_hits_are_reported_before_anything_is_compiled(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variants = [Variant(answer_op(tmp_path, f"answer{n}"), CPU) for n in range(2)]
        build(variants[1], store)
        events: list[Event] = []
        build_all(variants, store, on_event=events.append)
        assert [(type(event), getattr(event, "state", None)) for event in events] == [
            (Outcome, "hit"),
            (Started, None),
            (Outcome, "built"),
        ]

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
