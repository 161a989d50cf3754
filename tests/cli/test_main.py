from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from kjit import cli
from kjit.errors import CompileError, KjitError, UsageError

COMMANDS = tuple(typer.main.get_command(cli.app).commands)
HEAVY = ("torch", "tvm_ffi", "triton", "jinja2", "numpy", "matplotlib", "pydantic", "rich.markdown")
SCRIPT = Path(sys.executable).with_name("kjit")
# By Python itself: pip writes a script that a shell starts where the path of Python has a space, or is long.
STARTED = shlex.join([sys.executable, str(SCRIPT)])

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kjit_here(kjit_in: Kjit, tmp_path: Path) -> Kjit:
    """A function that runs `kjit` in an empty folder."""
    return lambda *arguments, **environment: kjit_in(tmp_path, *arguments, COLUMNS="120", **environment)


def _run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


_HELP_OF_EACH = f"""
import sys
from kjit.cli import main
for command in sys.argv[1:]:
    sys.argv = ["kjit", *command.split(), "--help"]
    try:
        main()
    except SystemExit as leaving:
        loaded = [name for name in {HEAVY!r} if name in sys.modules]
        print(command, leaving.code or 0, *loaded, sep=":", file=sys.stderr)
"""


def test_help_loads_nothing_heavy() -> None:
    commands = ["", *COMMANDS, "cache ls"]
    done = _run(sys.executable, "-c", _HELP_OF_EACH, *commands)
    assert done.stderr.splitlines() == [f"{command}:0" for command in commands]


@pytest.mark.parametrize("command", [(), ("cache",)])
def test_without_arguments_help_is_shown(kjit_here: Kjit, command: tuple[str, ...]) -> None:
    done = kjit_here(*command)
    assert done.returncode == 0
    assert done.stdout.strip() == kjit_here(*command, "--help").stdout.strip() != ""
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["no-such-command"], "no such command 'no-such-command'.", "`kjit --help` shows its usage"),
        (["cache", "lss"], "no such command 'lss'.", "did you mean ls?"),
        (["bench", "--jsn"], "no such option: --jsn.", "did you mean --csv or --json?"),
        (
            ["bench", "--baseline"],
            "option '--baseline' requires an argument.",
            "`kjit bench --help` shows its usage",
        ),
        (["new"], "missing argument 'op'.", "`kjit new --help` shows its usage"),
        (["new", "it's"], """"it's" has "'" in it: a name is letters, digits and underscores.""", "for example: it_s"),
    ],
)
def test_what_was_probably_meant_is_the_hint(kjit_here: Kjit, args: list[str], message: str, hint: str) -> None:
    done = kjit_here(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {message}\nhint: {hint}\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody_reads:
        done = subprocess.run([SCRIPT, "--help"], stdout=nobody_reads, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""


def test_a_folder_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    script = f"mkdir gone; cd gone; rmdir ../gone; {STARTED} build"
    done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the current folder no longer exists.\nhint: cd to one that does\n"


def test_the_shell_completes_commands_and_the_ops_of_the_project(kjit_in: Kjit, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kjit]\n")
    for op in ("scale", "scan", "add"):
        (tmp_path / "kernels").mkdir(exist_ok=True)
        (tmp_path / "kernels" / f"{op}.py").touch()
    for folder, words, expected in (
        (tmp_path / "kernels", "kjit bench sc", ["scale", "scan"]),
        (tmp_path.parent, "kjit bench sc", []),
        (tmp_path, "kjit cl", ["clangd", "clean-cache"]),
    ):
        at = str(len(words.split()) - 1)
        done = kjit_in(folder, COMP_WORDS=words, COMP_CWORD=at, _KJIT_COMPLETE="complete_bash")
        assert (done.stdout.split(), done.stderr) == (expected, "")


@pytest.mark.parametrize(
    ("error", "status", "shown"),
    [
        (KjitError("it broke.", hint="fix it"), 1, "error: it broke.\nhint: fix it\n"),
        (UsageError("not like this."), 2, "error: not like this.\n"),
        (CompileError("scale.cuh:3: no [bold] here", log="", command=""), 1, "error: scale.cuh:3: no [bold] here\n"),
        (typer.Exit(1), 1, ""),
        (typer.Abort(), 1, "error: stopped, as it was not confirmed.\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/file"),
            1,
            (
                "error: No space left on device ('/full/file').\n"
                "hint: free some space (`kjit clean-cache` empties kjit's cache)\n"
            ),
        ),
        (
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "gone"),
            1,
            "error: No such file or directory ('gone').\n",
        ),
        (
            ZeroDivisionError("by zero"),
            1,
            (
                "error: kjit failed where it should not: ZeroDivisionError: by zero.\n"
                "hint: `kjit --debug ...` shows where; please report it with what that prints\n"
            ),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_every_kind_of_error_has_its_sentence_and_status(
    error: BaseException,
    status: int,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    application = typer.Typer()

    @application.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", application)
    monkeypatch.setattr(sys, "argv", ["kjit"])
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == status
    assert capsys.readouterr().err == shown
