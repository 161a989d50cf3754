"""Executes the Python of one page, block by block, in one namespace: a request a line on stdin, an answer on stdout."""

from __future__ import annotations

import doctest
import io
import json
import os
import sys
import traceback
import types
from typing import Any


def execute(request: dict[str, Any], namespace: dict[str, Any]) -> str | None:
    """Run a block. Returns what went wrong, or None."""
    os.chdir(request["folder"])
    if request["language"] == "pycon":
        return _session(request, namespace)
    source = "\n" * request["line"] + request["text"]  # so that a traceback has the lines of the page
    try:
        exec(compile(source, request["place"], "exec", dont_inherit=True), namespace)
    except BaseException:  # noqa: BLE001 (whatever ends a block is the answer)
        return traceback.format_exc()
    return None


def _session(request: dict[str, Any], namespace: dict[str, Any]) -> str | None:
    told = io.StringIO()
    test = doctest.DocTestParser().get_doctest(request["text"], {}, request["place"], request["place"], request["line"])
    test.globs = namespace
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    failed = runner.run(test, out=told.write, clear_globs=False).failed
    return told.getvalue() if failed else None


def main() -> None:
    sys.path.insert(0, "")
    answers, sys.stdout = sys.stdout, sys.stderr
    # A module that others find by its name, as torch.compile does.
    page = sys.modules["__main__"] = types.ModuleType("__main__")
    for line in sys.stdin:
        answers.write(json.dumps(execute(json.loads(line), vars(page))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
