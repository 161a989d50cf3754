"""The programs in a folder with a collection of CUDA programs.

A program is a folder whose sources (.cu, and .cpp beside them) define one `main`. If several do, each is a program,
with the sources that have none. Sources that another one includes are not compiled on their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Not `void main`, which is a shader in a string.
_MAIN = re.compile(r"\b(?:int|auto)\s+main\s*\([^;{}()]*\)\s*(?:->\s*int\s*)?(?:try\s*)?\{")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:[^>"\n]*/)?([^>"/\n]+)', re.MULTILINE)
_RUN_RULE = re.compile(r"^run\s*:[^\n]*\n(?:\t[^\n]*\n)*?\t[^\n]*?\./\S+([^\n|&;>]*)", re.MULTILINE)
CPP = (".cpp", ".cc", ".cxx")


@dataclass(frozen=True)
class Program:
    """A program: its name and the sources to compile."""

    name: str
    folder: Path
    sources: tuple[Path, ...]

    @property
    def words(self) -> list[str]:
        """The arguments of the rule `run` of its Makefile."""
        makefile = self.folder / "Makefile"
        found = _RUN_RULE.search(makefile.read_text(errors="replace")) if makefile.is_file() else None
        return [] if found is None else found[1].split()


def find_programs(root: Path) -> Iterator[Program]:
    for folder in sorted({path.parent for path in root.rglob("*.cu")}):
        files = sorted(path for path in folder.iterdir() if path.is_file())
        code = {path: _COMMENT.sub(" ", path.read_text(errors="replace")) for path in files if _is_code(path)}
        included = {name for text in code.values() for name in _INCLUDE.findall(text)}
        sources = [path for path in code if path.suffix in (".cu", *CPP) and path.name not in included]
        mains = [path for path in sources if _MAIN.search(code[path])]
        others = [path for path in sources if path not in mains]
        for main in mains:
            if any(path.suffix == ".cu" for path in (main, *others)):
                name = folder.relative_to(root).as_posix()
                yield Program(name if len(mains) == 1 else f"{name}/{main.stem}", folder, (main, *others))


def _is_code(path: Path) -> bool:
    return path.suffix in (".cu", ".cuh", ".h", ".hpp", ".inl", *CPP)
