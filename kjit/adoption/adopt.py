"""An op from an existing kernel: its function, a signature for it, and the call that passes it tensors.

The file stays as it is: an op's own file includes it, checks the tensors and calls its host function or launches its
kernel. What C++ parameters do not say (the sizes of a tensor) is not guessed: without a signature, an error asks for
one, with an example.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kjit.adoption.call import argument, template_arguments
from kjit.adoption.proposal import example
from kjit.adoption.roles import PAGE, Roles, is_callable
from kjit.cpp_functions import Function, Source, read_source
from kjit.errors import UsageError
from kjit.signature.parser import parse_signature
from kjit.signature.signature import Signature

_TORCH = re.compile(r"(?:torch|ATen|c10|pybind11)/")


@dataclass(frozen=True)
class Adoption:
    """A function of a file, as an op.

    Args:
        path: of the file.
        function: the function that is called or launched.
        signature: of the op.
        arguments: of the call, as expressions of parameters and of symbols that the op's checks bind.
        template: its template's arguments, `<T>`; empty without a template.
        class_template: those of the class around it.
        notes: guesses that should be reviewed, one sentence each.
        own_includes: files in quotes that it includes.
    """

    path: Path
    function: Function
    signature: Signature
    arguments: tuple[str, ...]
    template: str
    class_template: str
    notes: tuple[str, ...]
    own_includes: tuple[str, ...]

    @property
    def counted(self) -> str:
        """The result that the initial grid has a thread for each element of."""
        return (*self.signature.outputs, *self.signature.mutated)[0].name

    @property
    def is_empty(self) -> str:
        """The condition that there is nothing to write, in C++."""
        results = (*self.signature.outputs, *(t for t in self.signature.mutated if not (t.optional or t.listed)))
        return " && ".join(f"{result.name}.numel() == 0" for result in results) or "false"

    @property
    def takes_tvm_types(self) -> bool:
        """Whether its parameters are those of tvm-ffi's own C++."""
        return any("tvm::" in parameter.type for parameter in self.function.parameters)

    @property
    def callee(self) -> str:
        """The function or the kernel, with its template's arguments."""
        scope = "".join(f"{name}::" for name in self.function.scope).removesuffix("::")
        return f"{scope}{self.class_template}{'::' if scope else ''}{self.function.name}{self.template}"

    @property
    def returns_error(self) -> bool:
        """Whether its return value is an error code."""
        return self.function.returns == "cudaError_t"

    @property
    def needs_shared(self) -> bool:
        """Whether it uses dynamic shared memory."""
        return self.function.is_kernel and re.search(r"\bextern\b[^;]*__shared__", self.function.body) is not None

    @property
    def block(self) -> int:
        """Threads in a block."""
        return self.function.bounds or 256


def adopt(path: Path, op: str, *, function: str | None, signature: str | None) -> Adoption:
    """Find the function of a file for an op, a signature, and the arguments of the call.

    Args:
        path: of the CUDA file.
        op: the name of the op.
        function: the name of a function in it; None: the only one.
        signature: in the signature language; None: what pointers, one size and numbers imply.

    Raises:
        UsageError: the file cannot be read or needs torch's headers; it has no such function, or several; there is no
            signature, or the function's parameters do not match it.
    """
    shown = str(path)
    path = Path(os.path.abspath(path))
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--from: '{shown}' cannot be read: {error.strerror}.") from error
    source = read_source(text)
    for name, line in source.includes:
        if _TORCH.match(name):
            raise UsageError(
                f"--from: {shown}:{line} includes <{name}>, and torch's headers are no part of kjit's builds.",
                hint=f"put the kernel into a file without it, and take that; {PAGE} has what stands for torch's words",
            )
    chosen = _choose(source, function, shown)
    roles = Roles(source, chosen, op, shown, f"{shown}:{chosen.line}")
    for parameter in chosen.parameters:
        if parameter.type.count("*") > 1:
            raise roles.refuse(
                f"'{parameter.type} {parameter.name}' points to pointers.", f"write the op by hand: {PAGE}"
            )
    if signature is None:
        signature = example(roles)
        if roles.takes_views or len(roles.sizes) != 1:
            chosen_by = f" --function {chosen.qualified}" if len(source.functions) > 1 else ""
            raise roles.refuse(
                f"a signature is needed, as the parameters of '{chosen.name}' do not say which tensor has which sizes.",
                f'for example: kjit new {op} "{signature}" --from {shown}{chosen_by}',
            )
    parsed = parse_signature(signature)
    arguments = tuple(argument(roles, parameter, parsed) for parameter in chosen.parameters)
    return Adoption(
        path,
        chosen,
        parsed,
        arguments,
        template_arguments(roles, chosen.template, parsed),
        template_arguments(roles, chosen.class_template, parsed),
        tuple(_notes(roles)),
        source.own_includes,
    )


def _choose(source: Source, name: str | None, shown: str) -> Function:
    """The function of that name; without a name, the only host function, else the only kernel."""
    if name is not None:
        named = [f for f in source.functions if name in (f.qualified, f.name)]
        if len(named) == 1:
            return named[0]
        others = ", ".join(f.qualified for f in source.functions) or "none"
        reason = f"has {len(named)} functions" if named else "has no function"
        raise UsageError(f"--function: '{shown}' {reason} '{name}'.", hint=f"it has: {others}")
    callable_ones = [f for f in source.functions if not f.is_kernel and is_callable(f)]
    kernels = [f for f in source.functions if f.is_kernel]
    for candidates in (callable_ones, kernels):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            listed = "\n".join(f"    {shown}:{f.line}: {f}" for f in candidates)
            raise UsageError(
                f"--from: '{shown}' has several functions:\n{listed}",
                hint=f"say which one: --function {candidates[0].qualified}",
            )
    raise UsageError(
        f"--from: '{shown}' has neither a __global__ kernel nor a function that takes pointers or TensorViews.",
        hint="a function has to have its body in the file; device functions cannot be called",
    )


def _notes(roles: Roles) -> Sequence[str]:
    """The guesses, one sentence each."""
    notes = []
    if roles.function.is_kernel:
        notes.append(f"how '{roles.function.name}' is launched is a guess, a thread for each element: look at the grid")
    has_stream = any(roles.is_stream(parameter) for parameter in roles.function.parameters)
    if not roles.function.is_kernel and not roles.takes_views and not has_stream:
        notes.append(f"'{roles.function.name}' takes no cudaStream_t, and PyTorch's stream may be another than its own")
    return notes
