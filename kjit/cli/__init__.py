"""The command line: one file per command, which parses, calls the library, and prints.

Nothing heavy (torch, tvm-ffi, jinja2) is imported before a command that needs it runs: `kjit --help` answers at once.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import signal
import sys
import traceback
from typing import Annotated

import typer

from kjit import __version__, env
from kjit.cli import console
from kjit.cli.bench import bench
from kjit.cli.build import build
from kjit.cli.cache import cache_app
from kjit.cli.clangd import clangd
from kjit.cli.clean_cache import clean_cache
from kjit.cli.doctor import doctor
from kjit.cli.init import init
from kjit.cli.inspect import inspect
from kjit.cli.list import list_ops
from kjit.cli.mv import mv
from kjit.cli.new import Command as NewCommand
from kjit.cli.new import new
from kjit.cli.profile import profile
from kjit.cli.replay import replay_app
from kjit.cli.rm import rm
from kjit.cli.sanitize import sanitize
from kjit.cli.test import Command as TestCommand
from kjit.cli.test import test
from kjit.cli.watch import watch
from kjit.errors import KjitError

_GUESS = re.compile(
    r"\s*(?:\(?Did you mean (?:one of:? )?(.*?)\?\)?|\(Possible (?:options|commands): (.*)\))\.?\s*$", re.DOTALL
)
_UNSET = {"help": False, "install_completion": False, "show_completion": False}

app = typer.Typer(
    name="kjit",
    help="Write, build, test, benchmark and ship small CUDA and C++ kernels for PyTorch.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help with frames and colours would load most of rich and a Markdown parser, which takes longer than everything
    # else.
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        # Without a default these options are None, and typer loads pydantic (60 ms) to check that None is not a bool.
        "default_map": {**_UNSET, "cache": {**_UNSET, "path": _UNSET, "size": _UNSET}, "replay": _UNSET},
    },
)
app.command("init")(init)
app.command("new", cls=NewCommand)(new)
app.command("list")(list_ops)
app.command("rm")(rm)
app.command("mv")(mv)
app.command("test", cls=TestCommand)(test)
app.command("watch")(watch)
app.command("build")(build)
app.command("sanitize")(sanitize)
app.command("profile")(profile)
app.command("bench")(bench)
app.add_typer(replay_app, name="replay")
app.command("inspect")(inspect)
app.command("clangd")(clangd)
app.command("clean-cache")(clean_cache)
cache_app.command("clean")(clean_cache)
app.add_typer(cache_app, name="cache")
app.command("doctor")(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.say(f"kjit {__version__}")
        raise typer.Exit


@app.callback()
def _before_any_command(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show a Python traceback with an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version
    context.obj = {"debug": debug}
    if env.log_level() is not None:
        from kjit.runtime.load import attach_log

        attach_log()


def main() -> None:
    """Run the command line and exit with its status: 0 done, 1 the work failed, 2 wrong usage."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files as their bytes; what another locale cannot encode as escapes.
            stream.reconfigure(errors="surrogateescape" if stream.encoding.lower() == "utf-8" else "backslashreplace")
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()  # here, where a failure can be reported
    except Exception as error:  # noqa: BLE001 (the edge of the program: whatever arrives here is reported)
        if debug:
            traceback.print_exc()
        status = _report(error)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    if "torch" not in sys.modules:
        # Python's last search for garbage takes a sixth of a short command. Triton, which torch imports, complains
        # about what is left.
        gc.freeze()
    sys.exit(status)


def _report(error: Exception) -> int:
    """Print an error in one sentence with a hint, and return the exit status."""
    if isinstance(error, KjitError):
        console.print_error(error.message, error.hint)
        return error.exit_code
    if isinstance(error, console.Unreadable):
        return _report_usage(error)
    if isinstance(error, typer.Abort):
        console.print_error("stopped, as it was not confirmed.", None)
        return 1
    if isinstance(error, BrokenPipeError):
        # The reader of the output has exited (`kjit cache ls | head`): not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    if isinstance(error, OSError):
        console.print_error(*_explain(error))
        return 1
    console.print_error(
        f"kjit failed where it should not: {type(error).__name__}: {error}.",
        "`kjit --debug ...` shows where; please report it with what that prints",
    )
    return 1


def _report_usage(error: Exception) -> int:
    """Print an error of the command line's parser in kjit's form: a sentence, and its suggestion as the hint."""
    message: str = error.format_message()  # type: ignore[attr-defined]
    if type(error).__name__ == "NoArgsIsHelpError":  # `kjit` alone: the message is the help
        console.say(message)
        return 0
    guess = _GUESS.search(message)
    sentence = (message[: guess.start()] if guess is not None else message).strip().rstrip(".")
    words = re.findall(r"[\w-]+", guess[1] or guess[2]) if guess is not None else []
    context = getattr(error, "ctx", None)
    if context is not None:
        command = context.command_path
    else:  # some errors have none
        known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
        named = [word for word in sys.argv[1:] if word in known]
        command = " ".join(["kjit", *named[:1]])
    hint = f"did you mean {' or '.join(words)}?" if words else f"`{command} --help` shows its usage"
    console.print_error(f"{sentence[:1].lower()}{sentence[1:]}.", hint)
    return int(getattr(error, "exit_code", 2))


def _explain(error: OSError) -> tuple[str, str | None]:
    if error.errno == errno.ENOENT and error.filename is None:  # of os.getcwd
        return "the current folder no longer exists.", "cd to one that does"
    hint = {
        errno.ENOSPC: "free some space (`kjit clean-cache` empties kjit's cache)",
        errno.EACCES: "check its permissions, or work in another folder",
        errno.EPERM: "check its permissions, or work in another folder",
    }
    where = "" if error.filename is None else f" ('{error.filename}')"
    return f"{error.strerror or error}{where}.", hint.get(error.errno or 0)
