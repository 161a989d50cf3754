"""Calls of ops: their signatures, and the generated functions.

`read_layout` classifies the parameters of a function by the rules in `torch_op.py`. The function for callers is
generated for its signature, as packing `*args` and `**kwargs` would cost as much as all its checks. The two paths of a
call are described in `torch_op.py`.
"""

from __future__ import annotations

import inspect
import numbers
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, GenericAlias
from typing import TYPE_CHECKING, Any, cast

import kjit

if TYPE_CHECKING:
    import torch

TAKEN = ("mode", "node")
"""Parameters of functions in PyTorch (2.13) that compile an op, and also get the op's arguments by keyword."""


class OpLayout:
    """A function's parameters by kind.

    Args:
        op: the function's name.
        inputs: the parameters before the `*`, with evaluated annotations.
        outputs: the names of the parameters after it.
        mutated: the inputs that the op changes.
        allocation: the arguments of `outputs=`, as written in a call.

    Attributes:
        tensors: all parameters that are tensors or None.
        optional: those of them that may be None.
        lists: all parameters that are lists of tensors.
        with_tensors: all of `tensors` and `lists`.
        registered: the name of each parameter in PyTorch: with an underscore if PyTorch uses the name itself.
    """

    def __init__(
        self,
        op: str,
        inputs: tuple[inspect.Parameter, ...],
        outputs: tuple[str, ...],
        mutated: tuple[str, ...],
        allocation: tuple[str, ...],
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.mutated = mutated
        self.allocation = allocation
        self.tensors = (*(p.name for p in inputs if _is_tensor(p.annotation)), *outputs)
        self.optional = (*(p.name for p in inputs if _is_optional_tensor(p.annotation)), *outputs)
        self.lists = tuple(p.name for p in inputs if _is_tensor_list(p.annotation))
        self.with_tensors = (*self.tensors, *self.lists)
        names = [*(p.name for p in inputs), *outputs]
        self.registered = {name: name for name in names}
        for name in set(TAKEN) & set(names):
            while self.registered[name] in (*TAKEN, *names):
                self.registered[name] += "_"


def read_layout(
    function: Callable[..., object], outputs: Callable[..., object] | None, mutated: tuple[str, ...]
) -> OpLayout:
    """Classify a function's parameters.

    Args:
        function: the function of an op.
        outputs: the function that allocates its outputs.
        mutated: the inputs that it changes.

    Raises:
        UsageError: the signature does not follow the rules.
    """
    op = function.__name__
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        raise kjit.UsageError(
            f"op '{op}': its annotations name '{error.name}', which its module does not define.",
            hint="import it at the top of the module, outside `if TYPE_CHECKING`",
        ) from error
    inputs: list[inspect.Parameter] = []
    outs: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise kjit.UsageError(
                f"op '{op}': '{parameter}' is not possible; parameters are plain ones, then `*, out=None`."
            )
        if parameter.name not in hints:
            raise kjit.UsageError(f"op '{op}': parameter '{parameter.name}' has no type annotation.")
        annotation = hints[parameter.name]
        if parameter.kind is parameter.KEYWORD_ONLY:
            if not _is_optional_tensor(annotation) or parameter.default is not None:
                raise kjit.UsageError(
                    f"op '{op}': '{parameter}' is an output, as it is keyword-only, but not an optional tensor.",
                    hint=f"write `{parameter.name}: torch.Tensor | None = None`, or move it before the `*`",
                )
            outs.append(parameter.name)
        elif _hides_tensors(annotation):
            raise kjit.UsageError(
                f"op '{op}': '{parameter}' has tensors in it, and gradients there would go unnoticed.",
                hint=f"write `{parameter.name}: list[torch.Tensor]`, or make each tensor a parameter of its own",
            )
        elif _is_tensor_list(annotation) and parameter.default is not parameter.empty:
            raise kjit.UsageError(f"op '{op}': '{parameter}' is a list of tensors, which can have no default.")
        else:
            inputs.append(parameter.replace(annotation=annotation))
    allocation = () if outputs is None else _allocation(op, [p.name for p in inputs], outputs)
    layout = OpLayout(op, tuple(inputs), tuple(outs), mutated, allocation)
    _check_effects(layout, hints.get("return", inspect.Signature.empty), outputs)
    return layout


def generate_call(
    function: Callable[..., object],
    layout: OpLayout,
    outputs: Callable[..., object] | None,
    overloads: Sequence[object],
) -> FunctionType:
    """Compile the function for callers.

    Args:
        function: the op's function, which calls the kernel.
        layout: its parameters.
        outputs: the function that allocates the outputs.
        overloads: the registered op: `.default` and, if there are outputs, `.out`. They may change between calls.
    """
    import torch

    known = {
        "function": function,
        "outputs": outputs,
        "overloads": overloads,
        "require_tensors": _require_tensors,
        "require_numbers": _require_numbers,
        "explain": _explain,
        "are_plain": _are_plain,
        "require_grad": _require_grad,
        "lack_data": _lack_data,
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "is_dynamo_compiling": torch.compiler.is_dynamo_compiling,
        "is_grad_enabled": torch.is_grad_enabled,
        "count_dispatch_modes": torch._C._len_torch_dispatch_stack,
        "is_jit_tracing": torch._C._is_tracing,
        "increment_version": torch._C._increment_version,
        "forward_mode": torch.autograd.forward_ad,
    }
    # The function's globals: cheaper than a closure, whose cells are copied at each call. Without a `__name__`,
    # torch.compile does not look for their module. The prefix avoids clashes with the op's own parameters.
    space = {f"_kjit_{name}": value for name, value in known.items()}
    exec(compile(_source(layout), f"<kjit.torch_op {layout.op}>", "exec"), space)
    return cast("FunctionType", space.pop("call"))


def _explain(subject: str, arguments: Mapping[str, object]) -> None:
    """Like `unusable.explain`."""
    from kjit.runtime import unusable

    unusable.explain(subject, arguments)


def each_tensor(arguments: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in an op's tensors and lists, each with its expression: `x`, `xs[2]`."""
    for name, value in arguments.items():
        if isinstance(value, (list, tuple)):
            yield from ((f"{name}[{index}]", tensor) for index, tensor in enumerate(value))
        elif value is not None:
            yield name, value


def _are_plain(*lists: object) -> bool:
    """Whether these lists can bypass PyTorch, if no gradient is recorded."""
    import torch

    plain = (torch.Tensor, torch.nn.Parameter)
    return all(
        type(tensors) in (list, tuple)
        and all(type(tensor) in plain and not tensor.is_conj() and not tensor.is_neg() for tensor in tensors)
        for tensors in cast("tuple[list[torch.Tensor], ...]", lists)
    )


def _require_grad(*lists: Sequence[torch.Tensor]) -> bool:
    return any(tensor.requires_grad for tensors in lists for tensor in tensors)


def _lack_data(*tensors: torch.Tensor | None) -> bool:
    """Whether a call with these failed because one has no data: on the meta device, a zero tensor, or wrapped by
    functorch. Then it has not changed anything."""
    import torch

    return torch._C._functorch.peek_interpreter_stack() is not None or any(
        tensor is not None and (tensor.is_meta or tensor._is_zerotensor()) for tensor in tensors
    )


def _require_tensors(
    op: str, arguments: dict[str, object], optional: dict[str, object], lists: dict[str, object]
) -> None:
    import torch

    for name, value in lists.items():
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{op}(): argument '{name}' must be a list of tensors, not {type(value).__name__}")
    given = {name: value for name, value in optional.items() if value is not None} | dict(each_tensor(lists))
    for name, value in (arguments | given).items():
        if not torch.overrides.is_tensor_like(value):  # type: ignore[no-untyped-call]
            raise TypeError(f"{op}(): argument '{name}' must be a tensor, not {type(value).__name__}")
        if getattr(value, "is_nested", False):  # PyTorch's error would only name the op
            _explain(f"op '{op}'", {name: value})


def _require_numbers(op: str, arguments: dict[str, tuple[object, str]]) -> None:
    """Accept as numbers only what the kernel's export does: PyTorch would also convert tensors, whose gradient would be
    lost.

    Args:
        op: the function's name.
        arguments: the arguments by name, each with the name of its type.
    """
    import torch

    accepted: dict[str, tuple[type, ...]] = {
        "bool": (bool, torch.SymBool),
        "int": (numbers.Integral, torch.SymInt),
        "float": (numbers.Real, torch.SymInt, torch.SymFloat),
    }
    for name, (value, kind) in arguments.items():
        is_flag = kind == "bool" and isinstance(value, numbers.Integral) and value in (0, 1)
        if not isinstance(value, accepted[kind]) and not is_flag:
            what = "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__
            raise TypeError(f"{op}(): argument '{name}' must be {kind}, not {what}")


def _source(layout: OpLayout) -> str:
    """Two functions: `_kjit_call_op`, the path through PyTorch, and `call`, which decides.

    All names in them other than parameters begin with `_kjit_`, as parameters may have any other name.
    """
    import torch

    tensors, optional, outs, lists = layout.tensors, layout.optional, layout.outputs, layout.lists
    every_list = ", ".join(lists)
    allocation = ", ".join(layout.allocation)
    returned = "" if not outs else f" {outs[0]}" if len(outs) == 1 else f" ({', '.join(outs)})"
    inputs = [p.name for p in layout.inputs]
    parameters = ", ".join([*inputs, *(["*", *outs] if outs else [])])
    arguments = ", ".join([*inputs, *(f"{out}={out}" for out in outs)])
    registered_arguments = ", ".join([*inputs, *(f"{layout.registered[out]}={out}" for out in outs)])

    # The other outputs, if some are given: all but one of several.
    allocate = []
    if len(outs) > 1:
        allocate = [
            f"if {' or '.join(f'{out} is None' for out in outs)}:",
            f"    _kjit_new = _kjit_outputs({allocation})",
            *(f"    {out} = _kjit_new[{index}] if {out} is None else {out}" for index, out in enumerate(outs)),
        ]

    def plain(name: str) -> str:
        known = f"{name}.__class__ is _kjit_Tensor or {name}.__class__ is _kjit_Parameter"
        return f"({name} is None or {known})" if name in optional else f"({known})"

    def given_and(name: str, question: str) -> str:
        return f"({name} is not None and {question})" if name in optional else f"({question})"

    def requires_grad(name: str) -> str:
        return given_and(name, f"{name}.requires_grad")

    def differs_from_memory(name: str) -> str:
        # As its negative or its conjugate, which only a complex one can be. A dtype is an attribute; the bits are calls
        # that release the interpreter's lock.
        return given_and(name, f"({name}.is_neg() or {name}.dtype.is_complex and {name}.is_conj())")

    # The cheapest first.
    direct = [
        *map(plain, tensors),
        "_kjit_forward_mode._current_level < 0",
        # For torch.jit.trace, which is not visible in tensors. No single call of PyTorch covers this and another check.
        "not _kjit_is_jit_tracing()",
        "not _kjit_count_dispatch_modes()",
        *(f"not {differs_from_memory(name)}" for name in tensors),
        *([f"_kjit_are_plain({every_list})"] if lists else []),
    ]
    is_direct = " and ".join(direct)
    # One check of the thread costs less than checks of three tensors.
    in_lists = [f"_kjit_require_grad({every_list})"] if lists else []
    required = [*map(requires_grad, tensors), *in_lists]
    unneeded = [f"not ({' or '.join(required)})", "not _kjit_is_grad_enabled()"]
    if len(tensors) > 2 or lists:
        unneeded.reverse()

    def by_name(names: Iterable[str]) -> str:
        return f"{{{', '.join(f'{name!r}: {name}' for name in names)}}}"

    kinds = [name for name in tensors if name not in optional], optional, lists
    scalar = [p for p in layout.inputs if p.annotation in (float, int, bool)]
    scalars = ", ".join(f"'{p.name}': ({p.name}, '{p.annotation.__name__}')" for p in scalar)
    require_numbers = [f"_kjit_require_numbers({layout.op!r}, {{{scalars}}})"] if scalars else []
    unpacked = [f"*{name}" if name in lists else name for name in (*tensors, *lists)]
    written = [f"*{name}" if name in lists else name for name in (*layout.mutated, *outs)]
    count = [f"_kjit_increment_version(({', '.join(written)},))"]
    if not set(written).isdisjoint(optional):
        count = [f"if {written[0]} is not None:", f"    {count[0]}"]
        if len(written) > 1:
            given = f"[_kjit_t for _kjit_t in ({', '.join(written)}) if _kjit_t is not None]"
            count = [f"_kjit_increment_version({given})"]
    dtypes = [p.name for p in layout.inputs if p.annotation is torch.dtype]
    explain = f"_kjit_explain({f'op {layout.op!r}'!r}, {by_name([*tensors, *lists, *dtypes])})"
    in_pytorch = [f"return _kjit_overloads[0]({', '.join(inputs)})"]
    if outs:
        in_pytorch = [
            f"if {' and '.join(f'{out} is None' for out in outs)}:",
            f"    {in_pytorch[0]}",
            *allocate,
            f"_kjit_overloads[1]({registered_arguments})",
            f"return{returned}",
        ]

    lines = [
        f"def _kjit_call_op({parameters}):",
        *(f"    {line}" for line in in_pytorch),
        f"def call({parameters}):",
        "    if _kjit_is_dynamo_compiling():",
        f"        return _kjit_call_op({arguments})",
        f"    if {is_direct}:",
        f"        if {' or '.join(unneeded)}:",
        "            try:",
        f"                _kjit_result = _kjit_function({arguments})",
        # The check here, rather than at the top, costs nothing in calls that succeed.
        "            except (RuntimeError, ValueError):",
        f"                if not _kjit_lack_data({', '.join(unpacked)}):",
        f"                    {explain}",
        "                    raise",
        "            else:",
        *(f"                {line}" for line in count),
        "                return _kjit_result",
        f"    _kjit_require_tensors({layout.op!r}, {', '.join(map(by_name, kinds))})",
        *(f"    {line}" for line in require_numbers),
        f"    return _kjit_call_op({arguments})",
    ]
    return "\n".join(lines)


def _allocation(op: str, inputs: list[str], outputs: Callable[..., object]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(outputs).parameters.values()
    except ValueError as error:
        # A built-in such as torch.empty_like has no signature; with a single input it is clear.
        if len(inputs) == 1:
            return tuple(inputs)
        raise kjit.UsageError(
            f"op '{op}': `outputs=` is a built-in function without a signature.",
            hint="write a function of those inputs: outputs=lambda x: torch.empty_like(x)",
        ) from error
    for parameter in parameters:
        if parameter.name not in inputs:
            raise kjit.UsageError(
                f"op '{op}': `outputs=` takes '{parameter}', which is not an input of the op.",
                hint=f"its parameters are chosen by name from: {', '.join(inputs)}",
            )
    return tuple(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)


def _check_effects(layout: OpLayout, returned: object, outputs: Callable[..., object] | None) -> None:
    """Check the declared outputs and mutated arguments against the parameters."""
    import torch

    op, outs = layout.op, layout.outputs
    for name in layout.mutated:
        if name not in (*layout.tensors, *layout.lists) or name in outs:
            raise kjit.UsageError(f"op '{op}': mutates_args names '{name}', which is not one of its tensor inputs.")
    if not outs and not layout.mutated:
        raise kjit.UsageError(
            f"op '{op}' has no output and changes no input.",
            hint="give it a parameter `*, out: torch.Tensor | None = None` and `outputs=`, or `mutates_args=`",
        )
    if bool(outs) != (outputs is not None):
        raise kjit.UsageError(
            f"op '{op}' has outputs ({', '.join(outs)}), but no `outputs=`, which allocates them."
            if outs
            else f"op '{op}' has `outputs=`, but no output parameter."
        )
    expected: object = type(None)
    shown = "None"
    if len(outs) == 1:
        expected, shown = torch.Tensor, "torch.Tensor"
    elif outs:
        expected = GenericAlias(tuple, (torch.Tensor,) * len(outs))
        shown = f"tuple[{', '.join(['torch.Tensor'] * len(outs))}]"
    if returned != expected:
        raise kjit.UsageError(f"op '{op}' must be annotated to return {shown}: its outputs, in their order.")


def _is_optional_tensor(annotation: object) -> bool:
    import torch

    return set(typing.get_args(annotation)) == {torch.Tensor, type(None)}


def _is_tensor(annotation: object) -> bool:
    import torch

    return annotation is torch.Tensor or _is_optional_tensor(annotation)


def _is_tensor_list(annotation: object) -> bool:
    import torch

    return typing.get_origin(annotation) in (list, Sequence) and typing.get_args(annotation) == (torch.Tensor,)


def _hides_tensors(annotation: object) -> bool:
    """Whether a type other than a tensor or a list of tensors contains tensors."""
    import torch

    def inside(each: object) -> bool:
        return each is torch.Tensor or any(map(inside, typing.get_args(each)))

    return not (_is_tensor(annotation) or _is_tensor_list(annotation)) and inside(annotation)
