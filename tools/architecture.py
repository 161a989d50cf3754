"""The dependency rules between the parts of kjit, their picture in docs/architecture.md, and the lines of each part.

    python tools/architecture.py [--fix | --sizes]

The imports are read from the code. An import inside a function is one on demand; an import for type checkers is
ignored. Ends with status 1 if a rule is broken, if the picture differs from the code (`--fix` draws it again), or if a
part has more lines than its budget. `--sizes` prints the lines and the budgets.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"

# From top to bottom: a part may import, when it is loaded, itself and the parts of the floors below its own.
FLOORS = (
    ("cli",),
    ("tools", "ops", "compat"),
    ("scaffold",),
    ("testing", "bench", "projects", "adoption"),
    ("planning",),
    ("engine",),
    ("runtime",),
    ("signature",),
    ("values",),
)
# Modules that are no folder; all others outside of folders are tools.
_PARTS = {"__main__": "cli", "benchmark": "bench"}
_PARTS |= dict.fromkeys(
    ("", "_version", "cpp_functions", "cpp_text", "dtypes", "env", "errors", "git", "project", "revision", "spec"),
    "values",
)
# The way up, on demand: a program that only runs kernels does not load what compiles them.
ON_DEMAND = {("runtime", "engine")}

# Lines that each kind of file may have in all. Who needs more deletes something, or says why it is worth more.
BUDGET = {
    "kjit, Python": 34_300,
    "of that, kjit/engine": 12_500,
    "kjit, C++": 23_900,
    "tests": 41_700,
    "docs": 5_700,
}
_CXX = ("", ".cpp", ".cu", ".cuh", ".h", ".hpp")


class Import(NamedTuple):
    """A module imports another: when it is loaded, or on demand."""

    importer: str
    imported: str
    on_demand: bool


def part_of(module: str) -> str:
    """The part that a module of kjit belongs to."""
    name = module.partition(".")[2].partition(".")[0]
    if name in _PARTS:
        return _PARTS[name]
    return name if any(name in floor for floor in FLOORS) else "tools"


def modules_in(package: Path) -> dict[str, Path]:
    """The files of a package's modules by their names."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        words = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(words[:-1] if words[-1] == "__init__" else words)] = path
    return modules


def imports_of(modules: Mapping[str, Path]) -> list[Import]:
    """The imports among these modules."""
    found = set()
    for name, path in modules.items():
        for imported, on_demand in _imports(ast.parse(path.read_bytes()), on_demand=False):
            while imported and imported not in modules:  # a name in a module
                imported = imported.rpartition(".")[0]
            if imported not in ("", name):
                found.add(Import(name, imported, on_demand))
    return sorted(found)


def _imports(node: ast.AST, *, on_demand: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, on_demand) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from ((f"{node.module}.{alias.name}", on_demand) for alias in node.names)
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        for statement in node.orelse:
            yield from _imports(statement, on_demand=on_demand)
    else:
        inner = on_demand or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, on_demand=inner)


def violations(imports: list[Import]) -> list[str]:
    """The imports that the rules do not allow, a sentence each."""
    floor = {part: number for number, parts in enumerate(FLOORS) for part in parts}
    wrong = []
    for each in imports:
        upper, lower = part_of(each.importer), part_of(each.imported)
        if each.imported == "kjit" or upper == lower or floor[upper] < floor[lower]:
            continue
        if not each.on_demand or not {(upper, lower), each[:2]} & ON_DEMAND:
            how = "on demand" if each.on_demand else "when it is loaded"
            wrong.append(f"{each.importer} ({upper}) imports {each.imported} ({lower}) {how}")
    return wrong


def circle(imports: list[Import]) -> list[str]:
    """Modules that import each other in a circle when they are loaded; none if there is no circle."""
    below: dict[str, set[str]] = {}
    for each in imports:
        if not each.on_demand and each.imported != "kjit":
            below.setdefault(each.importer, set()).add(each.imported)
    try:
        graphlib.TopologicalSorter(below).prepare()
    except graphlib.CycleError as error:
        return [*reversed(error.args[1])]
    return []


def picture(imports: list[Import]) -> str:
    """The parts and their imports, as a Mermaid flow chart; parts that all others import (`values`) have no arrows."""
    loaded: set[tuple[str, str]] = set()
    later: set[tuple[str, str]] = set()
    for each in imports:
        pair = part_of(each.importer), part_of(each.imported)
        if pair[0] != pair[1] and "values" not in pair:
            (later if each.on_demand else loaded).add(pair)
    lines = ["flowchart TD"]
    lines += [f"  {upper} --> {lower}" for upper, lower in sorted(loaded)]
    lines += [f"  {upper} -.-> {lower}" for upper, lower in sorted(later - loaded)]
    return "\n".join(lines) + "\n"


def drawn(text: str, chart: str) -> str:
    """`text` with its flow chart replaced by `chart`."""
    return re.sub(r"(^```mermaid\n).*?(?=^```$)", lambda found: found[1] + chart, text, flags=re.MULTILINE | re.DOTALL)


def sizes() -> dict[str, int]:
    """The lines of each kind of file in `BUDGET`."""
    python = modules_in(ROOT / "kjit").values()
    folders = ("include", "csrc", "compat")
    cxx = (path for folder in folders for path in (ROOT / "kjit" / folder).rglob("*") if path.suffix in _CXX)
    tests = (path for path in (ROOT / "tests").rglob("*") if path.suffix in (".py", *_CXX[1:]))
    counted: dict[str, Iterable[Path]] = {
        "kjit, Python": python,
        "of that, kjit/engine": (path for path in python if (ROOT / "kjit" / "engine") in path.parents),
        "kjit, C++": cxx,
        "tests": tests,
        "docs": (ROOT / "docs").rglob("*.md"),
    }
    return {kind: sum(_lines(path) for path in paths if path.is_file()) for kind, paths in counted.items()}


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def main() -> int:
    if sys.argv[1:] not in ([], ["--fix"], ["--sizes"]):
        print(__doc__)
        return 2
    lines = sizes()
    if sys.argv[1:] == ["--sizes"]:
        print("\n".join(f"{kind:<24}{count:>8,}{BUDGET[kind]:>8,}" for kind, count in lines.items()))
        return 0
    imports = imports_of(modules_in(ROOT / "kjit"))
    wrong = violations(imports)
    wrong += [f"{kind}: {n} lines, and {BUDGET[kind]} are allowed" for kind, n in lines.items() if n > BUDGET[kind]]
    if around := circle(imports):
        wrong.append(f"these import each other: {' -> '.join(around)}")
    text = PAGE.read_text("utf-8")
    new = drawn(text, picture(imports))
    if new != text and sys.argv[1:]:
        PAGE.write_text(new, "utf-8")
    elif new != text:
        wrong.append(f"the picture in {PAGE.relative_to(ROOT)} is not that of the code: python {sys.argv[0]} --fix")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
