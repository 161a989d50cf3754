"""Differences between the inputs of two cache keys, as sentences."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kjit.engine.key.paths import shown


def differences(old: Mapping[str, object], new: Mapping[str, object], project: str = "") -> list[str]:
    """The changes from one `inputs` document to another, one line each.

    Args:
        project: the folder that paths are shown relative to.
    """
    lines: list[str] = []
    # The complete flags contain those of the other sections; they alone differ if kjit's defaults have changed.
    for section in ("module", "toolchain", "versions", "flags"):
        before, after = old.get(section), new.get(section)
        if isinstance(before, dict) and isinstance(after, dict) and (section != "flags" or not lines):
            lines += _differences(before, after, "flags for " if section == "flags" else "", project)
    return lines


def _differences(old: Mapping[str, object], new: Mapping[str, object], prefix: str, project: str) -> list[str]:
    lines: list[str] = []
    for name in dict.fromkeys((*new, *old)):
        before, after = old.get(name), new.get(name)
        label = f"{prefix}{name}"
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            if "version" in after and before.get("version") == after["version"]:
                lines.append(_other_compiler(before, after))
            elif "version" in after:
                lines.append(f"the compiler was {_short(before.get('version'))} and is {_short(after['version'])}")
            else:
                lines += _differences(before, after, f"{label} ", project)
        elif isinstance(before, dict) and after is None:
            lines.append(f"{label} is no longer used")
        elif before is None and isinstance(after, dict):
            lines.append(f"{label} is used now")
        elif isinstance(before, list) and isinstance(after, list):
            lines.append(_list_difference(label, before, after, project))
        else:
            lines.append(f"{label} was {_short(before)} and is {_short(after)}")
    return lines


def _other_compiler(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """The difference between two compilers of one version."""
    path = after.get("path")
    if any(before.get(name) != after.get(name) for name in ("path", "size", "mtime_ns")):
        return f"'{path}' was replaced"
    parts = [item for item in after.get("parts") or () if item not in (before.get("parts") or ())]  # type: ignore[attr-defined, operator]
    return f"'{path}' runs another {os.path.basename(parts[0][0])}" if parts else f"'{path}' runs another compiler"


def _few(names: list[str]) -> str:
    shown = 4
    return " ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _list_difference(label: str, before: list[object], after: list[object], project: str) -> str:
    # A file with its identity is a nested list.
    known = {str(item[0]): item for item in before if isinstance(item, list)}
    for item in after:
        if isinstance(item, list) and known.get(str(item[0]), item) != item:
            return f"{shown(str(item[0]), project)} changed"
    gone = _few([_short(item) for item in before if item not in after])
    come = _few([_short(item) for item in after if item not in before])
    if not gone and not come:
        return f"{label}: another order"
    return f"{label}:" + (f" without {gone}" if gone else "") + (f" with {come}" if come else "")


def _short(value: object) -> str:
    if isinstance(value, list):
        return str(value[0]) if value else "none"
    text = str(value).splitlines()[0] if value not in (None, "") else "none"
    return text if len(text) <= 80 else f"{text[:77]}..."
