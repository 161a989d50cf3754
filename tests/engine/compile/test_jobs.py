"""kjit.engine.compile.jobs: the number of units compiled at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjit.engine.compile.jobs import most_jobs, parallel_jobs
from kjit.spec import Spec, Target, Variant

CPU = Target.cpu()


class TestParallelJobs:
    VARIANTS = tuple(Variant(Spec(f"op{n}", cpp_files=["/x.cpp"]), CPU) for n in range(100))

    @pytest.fixture
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int | None], None]:
        def have(cores: int, free: int | None) -> None:
            monkeypatch.setattr("kjit.engine.toolchain.machine.cores", lambda: cores)
            monkeypatch.setattr("kjit.engine.toolchain.machine.free_memory", lambda: free)

        return have

    @pytest.mark.parametrize(("cores", "jobs"), [(1, 2), (2, 3), (8, 9), (16, 18), (64, 72)])
    def test_one_a_core_and_one_more_for_each_eight(
        self, machine: Callable[[int, int | None], None], cores: int, jobs: int
    ) -> None:
        machine(cores, None)
        assert parallel_jobs(self.VARIANTS) == jobs

    def test_no_more_than_were_asked_for(self, machine: Callable[[int, int | None], None]) -> None:
        machine(8, None)
        assert parallel_jobs(self.VARIANTS, 3) == 3

    def test_no_more_than_fit_into_free_memory_even_when_asked_for(
        self, machine: Callable[[int, int | None], None]
    ) -> None:
        machine(64, 4 << 30)
        assert parallel_jobs(self.VARIANTS) == parallel_jobs(self.VARIANTS, 64) == 8

    def test_always_one(self, machine: Callable[[int, int | None], None]) -> None:
        machine(64, -1)
        assert parallel_jobs(self.VARIANTS) == 1

    def test_no_more_than_there_is_to_do(self, machine: Callable[[int, int | None], None]) -> None:
        machine(64, None)
        assert parallel_jobs(self.VARIANTS[:2]) == 2
        assert most_jobs(self.VARIANTS[:2]) == 72

    def test_architectures_of_one_library_are_compiled_side_by_side(
        self, machine: Callable[[int, int | None], None]
    ) -> None:
        machine(64, 12 << 30)
        spec = Spec("op", cuda_files=["/x.cu"])
        alone, together = Target.cuda("8.0"), Target.cuda("8.0", "8.6")
        assert [parallel_jobs([Variant(spec, target)] * 9) for target in (alone, together)] == [8, 4]

    def test_each_unit_of_a_module_counts(self, machine: Callable[[int, int | None], None]) -> None:
        files = [f"/{n}.cu" for n in range(20)]
        each_by_itself = Variant(Spec("op", cuda_files=files), Target.cuda("8.0"))
        in_one = Variant(Spec("op", cuda_files=files, cuda_wrappers=["run"]), Target.cuda("8.0"))
        with_host = Variant(Spec("op", cuda_files=files[:2], cpp_files=["/x.cpp"]), Target.cuda("8.0"))
        machine(8, None)
        assert [parallel_jobs([variant]) for variant in (each_by_itself, in_one, with_host)] == [9, 1, 3]
        machine(8, 6 << 30)
        assert parallel_jobs([each_by_itself]) == 4
