"""Which functions can be ops of PyTorch, and what is each of their parameters? The rules are in `torch_op.py`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import GenericAlias

from kjit.errors import UsageError
from kjit.runtime.native import OPTIONAL, TENSOR, WRITTEN


@dataclass(frozen=True)
class OpLayout:
    """A function's parameters, sorted by what they are.

    Args:
        op: the function's name.
        inputs: the parameters before the `*`, their annotations evaluated.
        outputs: the names behind it.
        mutated: those of the inputs that the op changes.
        allocation: the arguments with which `outputs=` is called, as written in a call.
    """

    op: str
    inputs: tuple[inspect.Parameter, ...]
    outputs: tuple[str, ...]
    mutated: tuple[str, ...]
    allocation: tuple[str, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Every parameter that is a tensor, or None in place of one."""
        return (*(p.name for p in self.inputs if _is_tensor(p.annotation)), *self.outputs)

    @property
    def optional(self) -> tuple[str, ...]:
        """Those of `tensors` that may be None."""
        return (*(p.name for p in self.inputs if _is_optional_tensor(p.annotation)), *self.outputs)

    @property
    def scalars(self) -> tuple[inspect.Parameter, ...]:
        """The inputs that are a number, a whole one or a truth value."""
        return tuple(p for p in self.inputs if p.annotation in (float, int, bool))

    @property
    def kinds(self) -> dict[str, int]:
        """What each of `tensors` is, as `native.py` has it."""
        written = {*self.mutated, *self.outputs}
        return {
            name: TENSOR | (OPTIONAL if name in self.optional else 0) | (WRITTEN if name in written else 0)
            for name in self.tensors
        }

    @property
    def parameters(self) -> str:
        """As written in a definition: `x, alpha, *, out`."""
        names = [p.name for p in self.inputs]
        return ", ".join(names + (["*", *self.outputs] if self.outputs else []))

    @property
    def arguments(self) -> str:
        """As written in a call: `x, alpha, out=out`."""
        return ", ".join([*(p.name for p in self.inputs), *(f"{out}={out}" for out in self.outputs)])


def read_layout(
    function: Callable[..., object], outputs: Callable[..., object] | None, mutated: tuple[str, ...]
) -> OpLayout:
    """Sort a function's parameters.

    Args:
        function: to become an op.
        outputs: what allocates its outputs.
        mutated: the inputs that it changes.

    Raises:
        UsageError: the signature does not follow the rules.
    """
    op = function.__name__
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        raise UsageError(
            f"op '{op}': its annotations name '{error.name}', which its module does not define.",
            hint="import it at the top of the module, outside `if TYPE_CHECKING`",
        ) from error
    inputs: list[inspect.Parameter] = []
    outs: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(
                f"op '{op}': '{parameter}' is not possible; parameters are plain ones, then `*, out=None`."
            )
        if parameter.name not in hints:
            raise UsageError(f"op '{op}': parameter '{parameter.name}' has no type annotation.")
        annotation = hints[parameter.name]
        if parameter.kind is parameter.KEYWORD_ONLY:
            if not _is_optional_tensor(annotation) or parameter.default is not None:
                raise UsageError(
                    f"op '{op}': '{parameter}' is an output, as it is keyword-only, but not an optional tensor.",
                    hint=f"write `{parameter.name}: torch.Tensor | None = None`, or move it before the `*`",
                )
            outs.append(parameter.name)
        elif _hides_tensors(annotation):
            raise UsageError(
                f"op '{op}': '{parameter}' is a list of tensors, and gradients in a list would go unnoticed.",
                hint="make each tensor a parameter of its own, or stack them into one",
            )
        else:
            inputs.append(parameter.replace(annotation=annotation))
    allocation = () if outputs is None else _allocation(op, [p.name for p in inputs], outputs)
    layout = OpLayout(op, tuple(inputs), tuple(outs), mutated, allocation)
    _check_effects(layout, hints.get("return", inspect.Signature.empty), outputs)
    return layout


def _allocation(op: str, inputs: list[str], outputs: Callable[..., object]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(outputs).parameters.values()
    except ValueError as error:
        # A built-in such as torch.empty_like does not tell its parameters; a single input leaves no doubt.
        if len(inputs) == 1:
            return tuple(inputs)
        raise UsageError(
            f"op '{op}': `outputs=` is a built-in, which does not say which inputs it takes.",
            hint="write a function of those inputs: outputs=lambda x: torch.empty_like(x)",
        ) from error
    for parameter in parameters:
        if parameter.name not in inputs:
            raise UsageError(
                f"op '{op}': `outputs=` takes '{parameter}', which is not an input of the op.",
                hint=f"its parameters are chosen by name from: {', '.join(inputs)}",
            )
    return tuple(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)


def _check_effects(layout: OpLayout, returned: object, outputs: Callable[..., object] | None) -> None:
    """Hold what the op says that it returns and changes against its parameters."""
    import torch

    op, outs = layout.op, layout.outputs
    for name in layout.mutated:
        if name not in layout.tensors or name in outs:
            raise UsageError(f"op '{op}': mutates_args names '{name}', which is not one of its tensor inputs.")
    if not outs and not layout.mutated:
        raise UsageError(
            f"op '{op}' has no output and changes no input.",
            hint="give it a parameter `*, out: torch.Tensor | None = None` and `outputs=`, or `mutates_args=`",
        )
    if bool(outs) != (outputs is not None):
        raise UsageError(
            f"op '{op}' takes {', '.join(outs)} but was given no `outputs=`, which says what to allocate."
            if outs
            else f"op '{op}' was given `outputs=` but has no output parameter."
        )
    expected: object = type(None)
    shown = "None"
    if len(outs) == 1:
        expected, shown = torch.Tensor, "torch.Tensor"
    elif outs:
        expected = GenericAlias(tuple, (torch.Tensor,) * len(outs))
        shown = f"tuple[{', '.join(['torch.Tensor'] * len(outs))}]"
    if returned != expected:
        raise UsageError(f"op '{op}' must be annotated to return {shown}: its outputs, in their order.")


def _is_optional_tensor(annotation: object) -> bool:
    import torch

    return set(typing.get_args(annotation)) == {torch.Tensor, type(None)}


def _is_tensor(annotation: object) -> bool:
    import torch

    return annotation is torch.Tensor or _is_optional_tensor(annotation)


def _hides_tensors(annotation: object) -> bool:
    """Whether tensors are inside of what is no tensor itself."""
    import torch

    def inside(each: object) -> bool:
        return each is torch.Tensor or any(map(inside, typing.get_args(each)))

    return not _is_tensor(annotation) and inside(annotation)
