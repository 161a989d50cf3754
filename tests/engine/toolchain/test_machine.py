"""kjit.engine.toolchain.machine: the cores and the memory for this process, on Linux from the kernel's files."""

from __future__ import annotations

import os

import pytest

from kjit.engine.toolchain import machine


@pytest.mark.parametrize(
    "files",
    [
        {
            "/proc/self/cgroup": "0::/user.slice/job\n",
            "/sys/fs/cgroup/user.slice/memory.max": "4000",
            "/sys/fs/cgroup/user.slice/memory.current": "3000",
            "/sys/fs/cgroup/user.slice/memory.stat": "anon 2500\ninactive_file 500\n",
            "/sys/fs/cgroup/user.slice/job/memory.max": "max",
            "/sys/fs/cgroup/user.slice/job/cpu.max": "150000 100000",
        },
        {
            "/proc/self/cgroup": "4:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "4000",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": "3000",
            "/sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
            "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
            "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_the_limits_of_every_container_around_this_process_hold(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_text", lambda path: files.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert (machine.cores(), machine.free_memory()) == (2, 1500)


def test_this_machine_has_cores_and_memory() -> None:
    assert machine.cores() >= 1
    assert (machine.free_memory() or 1) > 0
