"""kjit.engine.plan: one variant, many variants, many processes, and sources that change meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kjit.engine import plan
from kjit.engine.cache import recall_writer
from kjit.engine.cache.store import Store
from kjit.engine.compile import compile as compile_module
from kjit.engine.compile import run
from kjit.engine.plan import (
    Estimate,
    Event,
    Outcome,
    Queued,
    Started,
    build,
    build_all,
    expected_seconds,
    look_up_all,
)
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError, CompileError, ToolchainError, UsageError
from kjit.project import find_project
from kjit.runtime import recall
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]
CPU = Target.cpu()


@pytest.fixture
def store(cache_dir: Path) -> Store:
    del cache_dir
    return Store.open()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that waits for a pipe here is deaf: it need not be asked for long."""
    monkeypatch.setattr(run, "_GRACE_S", 0.05)


def header_of(spec: Spec) -> Path:
    return Path(spec.cpp_files[0]).with_suffix(".h")


class TestBuild:
    def test_a_variant_is_built_once_and_found_from_then_on(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        first, second = build(variant, store), build(variant, store)
        assert (first.state, second.state) == ("built", "hit")
        assert first.artifact is not None
        assert second.artifact is not None
        assert first.artifact.library == second.artifact.library

    def test_the_headers_that_the_compiler_read_are_compared(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        spec = answer_op(tmp_path)
        build(Variant(spec, CPU), store)
        header_of(spec).write_text("#define ANSWER 43\n")
        (outcome,) = look_up_all([Variant(spec, CPU)], store)
        assert (outcome.state, outcome.reason) == ("stale", "csrc/answer.h changed")
        assert build(Variant(spec, CPU), store).state == "built"

    def test_a_compile_is_announced_with_its_reason_and_a_hit_is_not(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        started: list[Started] = []
        build(variant, store, on_start=started.append)
        build(variant, store, on_start=started.append)
        assert started == [Started(variant, "it was never built here")]

    def test_a_failure_leaves_nothing_behind(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        spec = answer_op(tmp_path)
        header_of(spec).write_text("#error broken\n")
        with pytest.raises(CompileError):
            build(Variant(spec, CPU), store)
        assert list(store.entries()) == []
        assert list((store.root / "v1" / "staging").iterdir()) == []

    def test_a_cancelled_build_leaves_nothing_behind(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        cancel = threading.Event()
        spec = answer_op(tmp_path)
        os.mkfifo(header_of(spec).with_name("never"))
        header_of(spec).write_text('#include "never"\n')  # nobody writes into the pipe: the compiler waits
        with pytest.raises(CancelledError):
            build(Variant(spec, CPU), store, on_start=lambda _: cancel.set(), cancel=cancel)
        assert list(store.entries()) == []
        assert list((store.root / "v1" / "staging").iterdir()) == []


class TestBuildAll:
    def test_what_is_built_ahead_of_use_is_recalled(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recall, "_SETTLING_NS", 0)
        monkeypatch.setattr(recall_writer, "_is_own_code_known", lambda: True)
        variant = Variant(answer_op(tmp_path / "project"), Target.cpu())
        name = recall.request(recall.words_of(variant), "cpu", str(store.root))
        for _ in range(2):
            (outcome,) = build_all([variant], store)
            assert outcome.artifact is not None
            assert recall.find(name, str(store.root)) == outcome.artifact.path
            shutil.rmtree(store.root / "v1" / "recalls")

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
        assert list((store.root / "v1" / "staging").iterdir()) == []


def test_a_cache_that_is_removed_during_the_compile_is_filled_again(
    store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant, real = Variant(answer_op(tmp_path / "project"), CPU), compile_module.compile_variant

    def compile_variant(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(plan, "compile_variant", real)
        shutil.rmtree(store.root)
        return real(*args, **kwargs)

    monkeypatch.setattr(plan, "compile_variant", compile_variant)
    assert build(variant, store).state == "built"
    assert build(variant, store).state == "hit"


def test_a_cache_that_is_removed_all_the_time_is_an_error(
    store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_variant(*args: Any, **kwargs: Any) -> Any:
        shutil.rmtree(store.root)
        return compile_module.compile_variant(*args, **kwargs)

    monkeypatch.setattr(plan, "compile_variant", compile_variant)
    with pytest.raises(CacheError, match="is being emptied all the time"):
        build(Variant(answer_op(tmp_path / "project"), CPU), store)


class TestCollect:
    @pytest.fixture
    def write(self, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str, str], None]:
        """A function that writes a wrapper; each test has a package of its own, as Python keeps what it imported."""
        package = f"pkg_{abs(hash(request.node.nodeid))}"
        (tmp_path / "pyproject.toml").write_text(f'[tool.kjit]\npackage = "{package}"\n')
        (tmp_path / package).mkdir()

        def write(op: str, text: str) -> None:
            (tmp_path / package / f"{op}.py").write_text("import kjit\n" + textwrap.dedent(text))

        return write

    def collect(self, tmp_path: Path, *ops: str) -> plan.Collected:
        before = sys.path[:]
        try:
            return plan.collect(find_project(tmp_path), ops)
        finally:
            sys.path[:] = before

    ONE = """
        @kjit.module(variants=kjit.product(n=[1, 2]))
        def _module(n):
            return kjit.Spec("one", str(n), cpp_files=["/x/one.cpp"])
    """

    def test_every_declared_variant_is_found(self, tmp_path: Path, write: Callable[[str, str], None]) -> None:
        write("one", self.ONE)
        labels = [variant.label for variant in self.collect(tmp_path).variants([CPU])]
        assert labels == ["one<1> cpu", "one<2> cpu"]

    def test_a_wrapper_that_fails_to_import_does_not_hide_the_others(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("broken", "import no_such_module\n")
        write("one", self.ONE)
        collected = self.collect(tmp_path)
        assert [op for op, _ in collected.modules] == ["one"]
        ((op, error),) = collected.failures
        assert op == "broken"
        assert "broken.py" in error.message
        assert "no_such_module" in error.message

    def test_a_declaration_that_fails_does_not_hide_the_others(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("broken", "@kjit.module()\ndef _module():\n    return 1 / 0\n")
        write("one", self.ONE)
        collected = self.collect(tmp_path)
        assert [op for op, _ in collected.modules] == ["one"]
        ((op, error),) = collected.failures
        assert (op, error.message) == (
            "broken",
            "broken: the declaration _module fails: ZeroDivisionError: division by zero",
        )

    @pytest.mark.parametrize(
        ("statement", "reason"),
        [
            ("sys.exit(3)", "SystemExit: 3"),
            # As pytest's own, which this test would pass on to pytest if it came through.
            ("raise type('Skipped', (BaseException,), {})('no GPU')", "Skipped: no GPU"),
        ],
    )
    def test_a_declaration_that_exits_or_skips_does_not_end_the_command(
        self, tmp_path: Path, write: Callable[[str, str], None], statement: str, reason: str
    ) -> None:
        write("broken", f"import sys\n@kjit.module()\ndef _module():\n    {statement}\n")
        write("one", self.ONE)
        collected = self.collect(tmp_path)
        assert [op for op, _ in collected.modules] == ["one"]
        assert [error.message for _, error in collected.failures] == [
            f"broken: the declaration _module fails: {reason}"
        ]

    def test_ctrl_c_in_a_declaration_is_no_failure_of_it(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("slow", "@kjit.module()\ndef _module():\n    raise KeyboardInterrupt\n")
        with pytest.raises(KeyboardInterrupt):
            self.collect(tmp_path)

    def test_a_wrapper_without_a_declaration_is_named(self, tmp_path: Path, write: Callable[[str, str], None]) -> None:
        write("plain", "x = 1\n")
        assert self.collect(tmp_path).without == ["plain"]

    def test_a_declaration_that_two_wrappers_share_is_built_once(
        self, tmp_path: Path, write: Callable[[str, str], None]
    ) -> None:
        write("one", self.ONE)
        write("two", "from .one import _module\n")
        assert len(self.collect(tmp_path).variants([CPU])) == 2

    def test_only_the_ops_that_were_asked_for(self, tmp_path: Path, write: Callable[[str, str], None]) -> None:
        write("one", self.ONE)
        write("broken", "import no_such_module\n")
        assert self.collect(tmp_path, "one").failures == []

    def test_an_unknown_op_is_refused(self, tmp_path: Path, write: Callable[[str, str], None]) -> None:
        write("one", self.ONE)
        with pytest.raises(UsageError, match=r"no op 'on'(.|\n)*did you mean one"):
            self.collect(tmp_path, "on")


class TestChooseTargets:
    CPP = Spec("cpp", cpp_files=["/x.cpp"])
    CUDA = Spec("cuda", cuda_files=["/x.cuh"])

    @pytest.fixture
    def no_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find_cuda() -> None:
            raise ToolchainError("No CUDA compiler (nvcc) was found.")

        monkeypatch.setattr(plan, "find_cuda", find_cuda)

    @pytest.fixture
    def cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "find_cuda", lambda: None)
        monkeypatch.setattr(plan, "resolve_archs", lambda names: [Target.cuda(name).arch for name in names or ["8.0"]])

    @pytest.mark.usefixtures("cuda")
    def test_by_default_what_there_are_sources_for(self) -> None:
        assert plan.choose_targets([self.CPP]) == ([CPU], [])
        assert plan.choose_targets([self.CUDA, self.CPP]) == ([Target.cuda("8.0"), CPU], [])

    @pytest.mark.usefixtures("no_cuda")
    def test_by_default_cuda_is_left_out_without_a_compiler_and_that_is_said(self) -> None:
        targets, left_out = plan.choose_targets([self.CUDA, self.CPP])
        assert targets == [CPU]
        assert left_out == ["cuda is left out (cuda): No CUDA compiler (nvcc) was found."]

    @pytest.mark.usefixtures("no_cuda")
    def test_nothing_left_is_an_error(self) -> None:
        with pytest.raises(ToolchainError, match="No CUDA compiler"):
            plan.choose_targets([self.CUDA])

    @pytest.mark.usefixtures("no_cuda")
    @pytest.mark.parametrize("ask", [{"kinds": ["cuda"]}, {"archs": ["9.0a"]}])
    def test_what_was_asked_for_is_never_left_out(self, ask: dict[str, Any]) -> None:
        with pytest.raises(ToolchainError, match="No CUDA compiler"):
            plan.choose_targets([self.CUDA, self.CPP], **ask)

    @pytest.mark.usefixtures("cuda")
    def test_each_architecture_is_a_target(self) -> None:
        targets, _ = plan.choose_targets([self.CUDA], None, ["8.0", "9.0a"])
        assert targets == [Target.cuda("8.0"), Target.cuda("9.0a")]

    @pytest.mark.usefixtures("cuda")
    def test_an_op_without_the_source_that_was_asked_for_is_named(self) -> None:
        targets, left_out = plan.choose_targets([self.CUDA, self.CPP], ["cpu"])
        assert targets == [CPU]
        assert left_out == ["cuda has no C++ source, and is not built for cpu"]

    @pytest.mark.usefixtures("cuda")
    def test_no_op_with_the_source_that_was_asked_for_is_an_error(self) -> None:
        with pytest.raises(UsageError, match=r"none of these ops has a CUDA source"):
            plan.choose_targets([self.CPP], ["cuda"])

    @pytest.mark.usefixtures("cuda")
    def test_the_simulator_is_built_for_when_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Toolchain(Target.sim(), None, None)  # type: ignore[arg-type]
        monkeypatch.setattr(Toolchain, "for_target", lambda target: replace(found, target=target))
        assert plan.choose_targets([self.CUDA], ["sim", "sim-check"])[0] == [Target.sim(), Target.sim(check=True)]
        _, left_out = plan.choose_targets([self.CUDA, self.CPP], ["sim"])
        assert left_out == ["cpp has no CUDA source, and is not built for sim"]
        monkeypatch.setenv("KJIT_SIM", "check")
        targets, _ = plan.choose_targets([self.CUDA])
        assert targets == [Target.cuda("8.0"), Target.sim(check=True)]

    @pytest.mark.usefixtures("no_cuda")
    def test_where_nothing_may_be_left_out_a_missing_compiler_is_an_error_that_says_both_ways_out(self) -> None:
        with pytest.raises(ToolchainError, match=r"No CUDA compiler(.|\n)*`--target cpu` leaves cuda out"):
            plan.choose_targets([self.CUDA, self.CPP], needs_all=True)

    def test_an_architecture_without_cuda_is_a_contradiction(self) -> None:
        with pytest.raises(UsageError, match="--arch is for CUDA"):
            plan.choose_targets([self.CPP], ["cpu"], ["9.0a"])


class TestExpectedSeconds:
    def test_a_build_tells_how_long_the_next_one_will_take(
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
            monkeypatch.setattr(plan, "_report", lambda _, seconds=seconds: {"seconds": seconds})
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


@pytest.mark.nvcc
def test_what_kernels_need_is_kept_in_the_artifact(store: Store, tmp_path: Path) -> None:
    (tmp_path / "fill.cu").write_text("__global__ void fill(float* p) { p[threadIdx.x] = 1; }\n")
    variant = Variant(Spec("fill", cuda_files=[tmp_path / "fill.cu"]), Target.cuda("9.0a"))
    build(variant, store)
    outcome = build(variant, store)
    assert outcome.state == "hit"
    assert outcome.artifact is not None
    _, (kernel,), _ = plan.report_of(outcome.artifact)
    assert (kernel.kernel, kernel.arch) == ("fill", "sm_90a")
    assert kernel.registers > 0
