"""The cores and the memory available to this process, including limits of containers."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cores() -> int:
    """The cores available to this process, by affinity and container quotas."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    for folder in _control_groups("cpu"):
        quota = _text(f"{folder}/cpu.max").split()
        quota = quota or [_text(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(quota) == 2 and quota[0].isdecimal():
            count = min(count, -(-int(quota[0]) // int(quota[1])))
    return count


def free_memory() -> int | None:
    """Bytes available without swapping, on the machine and in this process's containers; None if unknown."""
    free: list[int] = []
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", _text("/proc/meminfo"), re.MULTILINE)
    if available:
        free.append(int(available[1]) << 10)
    for folder in _control_groups("memory"):
        # Names of version 2 of control groups, then of version 1.
        limit = (_text(f"{folder}/memory.max") or _text(f"{folder}/memory.limit_in_bytes")).strip()
        used = (_text(f"{folder}/memory.current") or _text(f"{folder}/memory.usage_in_bytes")).strip()
        if limit.isdecimal() and used.isdecimal():
            # Cached files count as used, although the kernel can drop them.
            dropped = re.findall(r"^(?:total_)?inactive_file (\d+)$", _text(f"{folder}/memory.stat"), re.MULTILINE)
            free.append(int(limit) - int(used) + max(map(int, dropped), default=0))
    return min(free, default=None)


def _control_groups(controller: str) -> list[str]:
    """The folders of the control groups that limit this process: its own and all ancestors.

    Source: cgroups(7). In a container, the outermost visible group is often its own, whatever the path says.
    """
    folders = []
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = f"/sys/fs/cgroup/{controller}" if controllers else "/sys/fs/cgroup"
        while path not in ("", "/"):
            folders.append(f"{root}{path}")
            path = os.path.dirname(path)
        folders.append(root)
    return folders


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
