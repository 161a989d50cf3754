"""Expected build times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kjit.engine import reports
from kjit.engine.builder import build
from kjit.engine.cache.store import Store
from kjit.engine.estimate import Estimate, expected_seconds
from kjit.engine.outcomes import Outcome, Queued, Started
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]
CPU = Target.cpu()


def header_of(spec: Spec) -> Path:
    return Path(spec.cpp_files[0]).with_suffix(".h")


class TestExpectedSeconds:
    def test_the_time_of_a_build_is_the_estimate_for_the_next_one(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        spec = answer_op(tmp_path)
        outcome = build(Variant(spec, CPU), store)
        assert outcome.artifact is not None
        header_of(spec).write_text("#define ANSWER 43\n")
        assert expected_seconds([Variant(spec, CPU)], store) == {Variant(spec, CPU): outcome.artifact.build["seconds"]}

    def test_of_several_builds_the_last_counts(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        for seconds, content in ((5.0, "#define ANSWER 1\n"), (2.0, "#define ANSWER 2\n")):
            header_of(variant.spec).write_text(content)
            monkeypatch.setattr(reports, "written", lambda _, seconds=seconds: {"seconds": seconds})
            build(variant, store)
        assert expected_seconds([variant], store) == {variant: 2.0}

    def test_nothing_is_known_of_an_op_that_was_never_built_for_the_target(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        spec = answer_op(tmp_path)
        build(Variant(spec, CPU), store)
        other = Variant(spec, Target.cpu("x86-64-v2"))
        assert expected_seconds([other], store) == {other: None}


class TestEstimate:
    A, B, C = (Variant(Spec(name, cpp_files=[f"/{name}.cpp"]), CPU) for name in "abc")

    def test_what_is_left_is_shared_by_the_jobs_and_never_less_than_the_longest(self) -> None:
        estimate = Estimate()
        estimate.on_event(Queued({self.A: 10.0, self.B: 4.0, self.C: 4.0}, 2), 0.0)
        assert estimate.seconds_left(0.0) == 10.0
        estimate.on_event(Started(self.A, ""), 0.0)
        estimate.on_event(Started(self.B, ""), 0.0)
        assert estimate.seconds_left(3.0) == 7.0
        estimate.on_event(Outcome(self.A, "built", 4.0), 4.0)
        assert estimate.seconds_left(4.0) == 4.0
        assert estimate.expected(self.C) == 4.0

    def test_nothing_is_promised_while_one_is_unknown(self) -> None:
        estimate = Estimate()
        estimate.on_event(Queued({self.A: None, self.B: 4.0}, 1), 0.0)
        assert estimate.seconds_left(0.0) is None
        estimate.on_event(Outcome(self.A, "failed", 1.0), 1.0)
        assert estimate.seconds_left(1.0) == 4.0
