"""One command of a build."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kjit.engine.compile.support import SupportObject


@dataclass(frozen=True)
class Step:
    """One command: what it makes, and from which generated text (if any).

    `support` is set for the part of kjit that is kept from build to build; its command runs only if it is not there.
    `reads` are files that it reads besides those of its depfile. `asking` is the command that tells what it read where
    it misses a header (missing.py); the last word is its source. `is_of_unit` is set for those that compile a unit,
    which take time and memory. `program` is the module beside this one that the command runs, if it is one of kjit's.
    """

    output: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    support: SupportObject | None = None
    reads: tuple[str, ...] = ()
    asking: tuple[str, ...] = ()
    is_of_unit: bool = False
    program: str | None = None

    @property
    def command(self) -> str:
        return shlex.join(self.arguments)

    @property
    def log(self) -> str:
        return f"{self.output}.log"

    @property
    def answer(self) -> str:
        """What `asking` prints."""
        return f"{self.output}.answer"

    @property
    def depfile(self) -> str:
        return f"{self.output}.d"


@dataclass(frozen=True)
class Unit:
    """What is compiled into `<name>.o`: a file, or a generated text (`path` is what it is called then)."""

    name: str
    path: str
    text: str | None

    @property
    def generated(self) -> tuple[tuple[str, str], ...]:
        return () if self.text is None else ((self.path, self.text),)


def leading_to(step: Step, steps: Sequence[Step]) -> list[Step]:
    """`step`, after the steps that it depends on."""
    inputs = [each for each in steps if each.output in step.inputs]
    return [before for each in inputs for before in leading_to(each, steps)] + [step]
