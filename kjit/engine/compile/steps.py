"""The commands of a build, and what they are made of."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kjit.engine.compile.quoting import Links
    from kjit.engine.compile.support import SupportObject
    from kjit.engine.toolchain.toolchain import Toolchain
    from kjit.spec import Spec


class Build(NamedTuple):
    """The build that a unit's commands are part of.

    Attributes:
        links: plain names for paths that a compiler would misread.
        launcher: the words before each command that makes an object.
        reads: the files that flags name.
    """

    spec: Spec
    toolchain: Toolchain
    links: Links
    launcher: tuple[str, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One command of a build.

    Attributes:
        output: the file that it makes.
        arguments: the program and its arguments.
        inputs: the outputs of other commands that it reads.
        generated: the generated files that it reads: name and text.
        support: the object that it makes, if all modules share it; the command runs only if no build has kept it.
        reads: files that it reads and does not list in its depfile.
    """

    output: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    support: SupportObject | None = None
    reads: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return shlex.join(self.arguments)

    @property
    def depfile(self) -> str:
        return f"{self.output}.d"


@dataclass(frozen=True)
class Unit:
    """The source of `<name>.o`: a file, or a generated text that is called `path`."""

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
