"""Pages of the documentation: reading them, and running their blocks.

A page is run from top to bottom in a folder of its own, as a reader would type it. The language of a fenced block says
what is done with it:

- `console`: a line `$ command` is given to bash, a line `> ...` carries it on, and the lines up to the next command are
  what it prints (stdout and stderr together). No such lines: the output is not looked at. `cd` and `export` hold until
  the end of the page.
- `python`: executed. `pycon`: a session with `>>>`, whose output is compared. All of a page share one namespace.
- `cpp`, `cuda`: a whole unit; compiled by itself, without warnings.
- `toml`: parsed.
- `diff`: changes the file that the comment before it names. The lines that start with ` ` or `-` are in it, once and
  one after another, and those that start with ` ` or `+` take their place. A line `...` begins another such change.

In expected output `...` stands for anything: for any number of lines where it is alone, else for a part of a line.

Comments right before a block, which the reader of the page does not see, say more about it:

- `<!-- file: kernels/scale.py -->`: the block is the text of this file, which is written and not run; a `diff` changes
  the file.
- `<!-- exit: 1 -->`: the last command ends with this exit status. All others end with 0.
- `<!-- needs: nvcc -->`: left out where that is missing; also `gpu`, `no gpu`, `openmp`, `highway`, `clangd`, `gdb`.
- `<!-- before: command -->`: what brings about the situation that the block is about, or saves the test time.
- `<!-- figures vary -->`: numbers in the output, with units of time and size, need not be the same, nor the spaces
  between columns, nor whether the C++ compiler is gcc or clang.
- `<!-- not run: reason -->`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kjit.engine.toolchain.archs import gpu_archs
from kjit.engine.toolchain.build_flags import cxx_flags, nvcc_flags
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import KjitError
from kjit.project import parse_toml
from kjit.runtime.highway import find_highway
from kjit.spec import Spec, Target

LANGUAGES = ("console", "python", "pycon", "cpp", "cuda", "diff", "toml", "mermaid")
DIRECTIVES = ("file", "exit", "needs", "before", "figures vary", "not run")

_FENCE = re.compile(r"^(`{3,}|~{3,})\s*(\S*)\s*$")
_COMMENT = re.compile(r"^<!--\s*(?P<name>[a-z ]+?)\s*(?::\s*(?P<value>.*?))?\s*-->$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")

# The answers must be those of a plain machine, whoever runs the tests.
_HIDDEN = ("CI", "GITHUB_ACTIONS", "FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS", "PYTHONPATH", "PYTHONSTARTUP")
_HIDDEN_SETTINGS = (
    *("KJIT_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST", "KJIT_NO_COMPILE", "KJIT_LOG"),
    *("KJIT_RECORD", "KJIT_RECORD_VALUES", "KJIT_RECORD_EVERY", "KJIT_RECORD_MAX_SIZE", "KJIT_RECORD_VARIANTS"),
    *("KJIT_SIM", "KJIT_SIM_SEED", "KJIT_SIM_THREADS", "KJIT_SIM_TIMEOUT"),
    *("KJIT_SHARED_CACHE_DIR", "KJIT_CACHE_MAX_SIZE", "KJIT_COMPILER_LAUNCHER"),
)
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of its fence, and the comments before it."""

    page: str
    line: int
    language: str
    text: str
    directives: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a `console` block, the output that is expected (None: any), and its line."""

    text: str
    expected: str | None
    line: int


@dataclass
class Page:
    """A page: its blocks, its headings' anchors, and its links with their lines."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)
    sections: dict[str, str] = field(default_factory=dict)


def read_page(path: Path, name: str) -> Page:
    """Read a page of Markdown.

    Raises:
        ValueError: a fence is not closed, or a comment before a block is not one of the above.
    """
    page = Page(path)
    directives: dict[str, str] = {}
    heading = ""
    lines = iter(enumerate(path.read_text("utf-8").splitlines(), start=1))
    for number, line in lines:
        if fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if inner.rstrip() == fence[1]:
                    break
                body.append(inner)
            else:
                raise ValueError(f"{name}:{number}: the fence is not closed")
            text = "".join(f"{inner}\n" for inner in body)
            page.blocks.append(Block(name, number, fence[2], text, directives))
            page.sections[heading] = page.sections.get(heading, "") + text
            directives = {}
            continue
        if comment := _COMMENT.match(line):
            if comment["name"] not in DIRECTIVES:
                raise ValueError(f"{name}:{number}: unknown comment '{comment['name']}'")
            directives = {**directives, comment["name"]: comment["value"] or ""}
            continue
        if directives:
            raise ValueError(f"{name}:{number}: a comment about a block, and no block follows")
        if title := _HEADING.match(line):
            heading = title[2].replace("`", "")
            page.anchors.append(_unique(_anchor(title[2]), page.anchors))
        page.links += [(number, link) for link in _LINK.findall(line)]
        page.sections[heading] = page.sections.get(heading, "") + line + "\n"
    return page


def commands_of(block: Block) -> list[Command]:
    """The commands of a `console` block with what each is expected to print."""
    commands: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if line.startswith("$ "):
            commands.append(Command(line[2:], None, number))
            continue
        if not commands:
            raise ValueError(f"{block.page}:{number}: a console block starts with a command: `$ ...`")
        last = commands[-1]
        if line.startswith("> ") and last.expected is None:
            commands[-1] = Command(f"{last.text}\n{line[2:]}", None, last.line)
        else:
            commands[-1] = Command(last.text, f"{last.expected or ''}{line}\n", last.line)
    return commands


def matches(expected: str, printed: str, *, figures_vary: bool = False) -> bool:
    """Whether `printed` is what a page shows, with `...` for anything."""
    write = _loose if figures_vary else re.escape
    pattern = ""
    for line in _tidy(expected).splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += "[^\\n]*?".join(write(part) for part in line.split("...")) + r"[ ]*\n"
    return re.fullmatch(pattern, _tidy(printed)) is not None


def edited(text: str, block: Block) -> str:
    """`text` after the changes of a `diff` block.

    Raises:
        AssertionError: the lines that it starts from are not there, or not once.
    """
    for change in re.split(r"^\.\.\.\n", block.text, flags=re.MULTILINE):
        lines = change.splitlines(keepends=True)
        strange = [line for line in lines if line[0] not in " +-\n"]
        assert not strange, f"{block.place}: a line of a diff starts with a space, - or +: {strange[0]}"
        # A blank line may have lost its space.
        before = "".join(line[1:] or line for line in lines if line[0] != "+")
        after = "".join(line[1:] or line for line in lines if line[0] != "-")
        places = [found.start() for found in re.finditer(f"^{re.escape(before)}", text, re.MULTILINE)]
        count = len(places) if before else 0
        assert count == 1, f"{block.place}: what is to change is in the file {count} times:\n{before}"
        text = text[: places[0]] + after + text[places[0] + len(before) :]
    return text


class Runner:
    """Carries out the blocks of one page, in `folder`."""

    def __init__(self, folder: Path, cache_dir: Path) -> None:
        self.home = folder
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN + _HIDDEN_SETTINGS}
        self.environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "KJIT_CACHE_DIR": str(cache_dir),
            "COLUMNS": "120",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PYTHONWARNINGS": "ignore",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        self._python: subprocess.Popen[str] | None = None

    def run(self, block: Block) -> str | None:
        """Carry out a block.

        Returns:
            Why it was left out, or None.

        Raises:
            AssertionError: something else came out than the page says.
        """
        given = block.directives
        if "not run" in given:
            assert given["not run"], f"{block.place}: say why it is not run"
            return given["not run"]
        for need in filter(None, (part.strip() for part in given.get("needs", "").split(","))):
            if not NEEDS[need]():
                return f"needs {need}"
        if "before" in given:
            status, printed = self._shell(given["before"])
            assert status == 0, f"{block.place}: the command before it failed:\n{printed}"
        if "file" in given:
            path = self.folder / given["file"]
            if block.language == "diff":
                path.write_text(edited(path.read_text("utf-8"), block), "utf-8")
                return None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
            return None
        {
            "console": self._console,
            "python": self._execute,
            "pycon": self._execute,
            "cpp": self._compile,
            "cuda": self._compile,
            "toml": _parse_toml,
        }[block.language](block)
        return None

    def _console(self, block: Block) -> None:
        commands = commands_of(block)
        for command in commands:
            wanted = int(block.directives.get("exit", "0")) if command is commands[-1] else 0
            status, printed = self._shell(command.text)
            where = f"{block.page}:{command.line}: $ {command.text}"
            assert status == wanted, f"{where}\nends with {status} and not with {wanted}. It printed:\n{printed}"
            if command.expected is not None:
                loose = "figures vary" in block.directives
                assert matches(command.expected, printed, figures_vary=loose), (
                    f"{where}\nprints something else:\n{_difference(command.expected, printed)}"
                )

    def _shell(self, command: str) -> tuple[int, str]:
        """Run a command where the last one ended; what it prints, and its exit status."""
        script = f'{command}\n_status=$?\npwd > "{self.home}.pwd"\nenv -0 > "{self.home}.env"\nexit $_status\n'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
        )
        self.folder = Path(Path(f"{self.home}.pwd").read_text().strip())
        pairs = Path(f"{self.home}.env").read_text().split("\0")
        self.environment = dict(pair.split("=", 1) for pair in pairs if pair)
        return done.returncode, done.stdout.decode(errors="replace")

    def _execute(self, block: Block) -> None:
        """Execute Python in the page's own process."""
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "python_page.py")],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._python.stdin is not None and self._python.stdout is not None
        request = {
            "language": block.language,
            "text": block.text,
            "place": block.place,
            "folder": str(self.folder),
            "line": block.line,
        }
        self._python.stdin.write(json.dumps(request) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        assert answer, f"{block.place}: the process ended"
        failure = json.loads(answer)
        assert failure is None, f"{block.place}:\n{failure}"

    def _compile(self, block: Block) -> None:
        """Compile a unit as a build of kjit would, and throw the result away."""
        unit = self.home.parent / f"unit{block.line}.{'cu' if block.language == 'cuda' else 'cpp'}"
        unit.write_text(block.text, "utf-8")
        if block.language == "cuda":
            if not _HAS_NVCC():
                return
            toolchain = Toolchain.for_target(Target.cuda("9.0a"))
            assert toolchain.cuda is not None
            flags = nvcc_flags(toolchain, Spec("page", cuda_files=[unit]))
            command = [str(toolchain.cuda.nvcc.path), *flags, "-Werror", "all-warnings", "-cubin"]
            command += ["-o", f"{unit}.cubin", str(unit)]
        else:
            toolchain = Toolchain.for_target(Target.cpu())
            flags = cxx_flags(toolchain, Spec("page", cpp_files=[unit]))
            command = [str(toolchain.cxx.path), *flags, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=_TIMEOUT_S)
        assert done.returncode == 0, f"{block.place} does not compile:\n{done.stdout}{done.stderr}"

    def close(self) -> None:
        if self._python is not None:
            self._python.communicate(timeout=30)


@contextlib.contextmanager
def runner(folder: Path, cache_dir: Path) -> Iterator[Runner]:
    """A runner in `folder`, which is made; its processes end with the block."""
    folder.mkdir()
    page = Runner(folder, cache_dir)
    try:
        yield page
    finally:
        page.close()


def _is_found(find: Callable[[], object]) -> bool:
    try:
        find()
    except KjitError:
        return False
    return True


_HAS_NVCC = cache(lambda: _is_found(find_cuda))
_HAS_GPU = cache(lambda: bool(gpu_archs()))

NEEDS: dict[str, Callable[[], bool]] = {
    "nvcc": _HAS_NVCC,
    "openmp": lambda: Toolchain.for_target(Target.cpu()).has_openmp,  # for torch.compile on the CPU
    "highway": lambda: _is_found(find_highway),
    "gpu": _HAS_GPU,
    "no gpu": lambda: not _HAS_GPU(),
    "clangd": lambda: (Path(sys.executable).parent / "clangd").exists() or shutil.which("clangd") is not None,
    "gdb": lambda: shutil.which("gdb") is not None,
}


def _parse_toml(block: Block) -> None:
    parse_toml(block.text, Path(block.place))


def _anchor(heading: str) -> str:
    """As GitHub makes it: small letters, no punctuation, hyphens for spaces."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def _unique(anchor: str, taken: list[str]) -> str:
    candidate, count = anchor, 0
    while candidate in taken:
        count += 1
        candidate = f"{anchor}-{count}"
    return candidate


def _tidy(text: str) -> str:
    """Without blank lines at the ends and spaces at the ends of lines."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in "\n".join(lines).strip("\n").splitlines())


def _loose(text: str) -> str:
    """A pattern for `text` in which every number may be another (with its unit), columns and rules be wider, and gcc be
    clang."""
    pattern = ""
    for part in re.findall(r"\s+|─+|\d[\d.,]*(?: (?:[smhdw]|B|[KMG]iB)\b)?|[^\s─\d]+", text):
        if part.isspace():
            pattern += r"\s*"
        elif part[0] == "─":
            pattern += "─+"
        elif part == "gcc":
            pattern += "(?:gcc|clang)"
        elif not part[0].isdigit():
            pattern += re.escape(part)
        elif part[-1] == "B":
            pattern += r"\d[\d.,]* (?:B|[KMG]iB)"
        else:
            pattern += r"\d[\d.,]*" + (" [smhdw]" if part[-1].isalpha() else "")
    return pattern


def _difference(expected: str, printed: str) -> str:
    wanted, got = _tidy(expected).splitlines(), _tidy(printed).splitlines()
    return "\n".join(difflib.unified_diff(wanted, got, "on the page", "printed", lineterm="", n=5))
