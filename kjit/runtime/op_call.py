"""How does a call of an op reach its kernel, and how much of PyTorch does it pass on the way?

The function that callers get is generated for its signature, because packing `*args` and `**kwargs` again would cost as
much as all its checks. The two roads that it chooses between are told in `torch_op.py`.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from kjit.runtime.op_layout import OpLayout
from kjit.runtime.unusable import explain

if TYPE_CHECKING:
    import torch


def generate_call(
    function: Callable[..., object],
    layout: OpLayout,
    outputs: Callable[..., object] | None,
    *,
    registered: Sequence[object],
    recording: Sequence[object],
    refuse_gradient: Callable[[dict[str, torch.Tensor | None]], None],
) -> FunctionType:
    """Compile the function that callers get.

    Args:
        function: what calls the kernel.
        layout: its parameters.
        outputs: allocates the outputs.
        registered: the registered op, one element, which may be another one at the next call.
        recording: empty, or the overload of it that records gradients.
        refuse_gradient: raises an error where one of these tensors needs a gradient.
    """
    import torch

    known = {
        "function": function,
        "outputs": outputs,
        "registered": registered,
        "recording": recording,
        "refuse_gradient": refuse_gradient,
        "require_tensors": _require_tensors,
        "require_numbers": _require_numbers,
        "explain": explain,
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "is_dynamo_compiling": torch.compiler.is_dynamo_compiling,
        "is_grad_enabled": torch.is_grad_enabled,
        "count_dispatch_modes": torch._C._len_torch_dispatch_stack,
        "is_jit_tracing": torch._C._is_tracing,
        "top_transform": torch._C._functorch.peek_interpreter_stack,
        "increment_version": torch._C._increment_version,
        "forward_mode": torch.autograd.forward_ad,
        "direct": None,
        "through_pytorch": NotImplemented,
    }
    source = _source(layout)
    # What the source uses comes as the parameters of a factory, so that it is a closure: faster than globals, and there
    # is nothing for torch.compile to look up by name in a module that does not exist. The prefix keeps them apart from
    # the op's own parameters.
    names = ", ".join(f"_kjit_{name}" for name in known)
    body = "\n".join(f"    {line}" for line in source.splitlines())
    space: dict[str, Any] = {}
    exec(compile(f"def factory({names}):\n{body}\n    return call\n", f"<kjit.torch_op {layout.op}>", "exec"), space)
    return cast("FunctionType", space["factory"](*known.values()))


def _require_tensors(op: str, arguments: dict[str, object], optional: dict[str, object]) -> None:
    import torch

    given = {name: value for name, value in optional.items() if value is not None}
    for name, value in (arguments | given).items():
        if not torch.overrides.is_tensor_like(value):  # type: ignore[no-untyped-call]
            raise TypeError(f"{op}(): argument '{name}' must be a tensor, not {type(value).__name__}")
        if getattr(value, "is_nested", False):  # of which PyTorch's error is the name of the op
            explain(f"op '{op}'", {name: value})


def _require_numbers(op: str, arguments: dict[str, tuple[object, str]]) -> None:
    """Take for a number what the kernel's export does: PyTorch would convert much more, tensors too, whose gradient
    would be lost.

    Args:
        op: the function's name.
        arguments: by name, each with its type's name.
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
    """Two functions: `_kjit_call_op`, the road through PyTorch, and `call`, which decides.

    Every name in them that is not a parameter's starts with `_kjit_`, for an op's parameters have any others.
    """
    tensors, optional, outs = layout.tensors, layout.optional, layout.outputs
    allocation = ", ".join(layout.allocation)
    returned = "" if not outs else f" {outs[0]}" if len(outs) == 1 else f" ({', '.join(outs)})"
    inputs = ", ".join(p.name for p in layout.inputs)

    allocate = []
    if len(outs) == 1:
        allocate = [f"if {outs[0]} is None:", f"    {outs[0]} = _kjit_outputs({allocation})"]
    elif outs:
        allocate = [
            f"if {' or '.join(f'{out} is None' for out in outs)}:",
            f"    _kjit_new = _kjit_outputs({allocation})",
            *(f"    {out} = _kjit_new[{index}] if {out} is None else {out}" for index, out in enumerate(outs)),
        ]

    def plain(name: str) -> str:
        known = f"{name}.__class__ is _kjit_Tensor or {name}.__class__ is _kjit_Parameter"
        return f"({name} is None or {known})" if name in optional else f"({known})"

    def given_and(name: str, property_: str) -> str:
        return f"{name} is not None and {name}.{property_}" if name in optional else f"{name}.{property_}"

    def requires_grad(name: str) -> str:
        return given_and(name, "requires_grad")

    def has_no_data(name: str) -> str:
        question = f"({name}.is_meta or {name}._is_zerotensor())"
        return f"{name} is not None and {question}" if name in optional else question

    direct = [
        *map(plain, tensors),
        "not _kjit_count_dispatch_modes()",
        # Of torch.jit.trace, which shows in no tensor. No one call of PyTorch answers this question and another.
        "not _kjit_is_jit_tracing()",
        "_kjit_forward_mode._current_level < 0",
        # Such a tensor is the conjugate or the opposite of what lies in memory.
        *(f"not ({given_and(name, 'is_conj()')}) and not ({given_and(name, 'is_neg()')})" for name in tensors),
    ]
    is_direct = " and ".join(direct)
    # One question about the thread costs less than those about three tensors.
    unneeded = [f"not ({' or '.join(f'({requires_grad(name)})' for name in tensors)})", "not _kjit_is_grad_enabled()"]
    if len(tensors) > 2:
        unneeded.reverse()

    given_inputs = [name for name in tensors if name not in outs]
    named = ", ".join(f"'{name}': {name}" for name in tensors)
    required = ", ".join(f"'{name}': {name}" for name in tensors if name not in optional)
    possible = ", ".join(f"'{name}': {name}" for name in optional)
    scalars = ", ".join(f"'{p.name}': ({p.name}, '{p.annotation.__name__}')" for p in layout.scalars)
    require_numbers = [f"_kjit_require_numbers({layout.op!r}, {{{scalars}}})"] if scalars else []
    written = [*layout.mutated, *outs]
    count = [f"_kjit_increment_version(({', '.join(written)},))"]
    if may_be_missing := [f"{name} is not None" for name in written if name in optional]:
        count = [f"if {' and '.join(may_be_missing)}:", f"    {count[0]}"]
        if len(written) > 1:
            given = f"[_kjit_t for _kjit_t in ({', '.join(written)}) if _kjit_t is not None]"
            count += ["else:", f"    _kjit_increment_version({given})"]

    record = []
    if outs and not layout.mutated and given_inputs:
        nothing_given = " and ".join(f"{out} is None" for out in outs)
        wanted = " or ".join(map(requires_grad, given_inputs))
        record = [
            f"if _kjit_recording and {nothing_given} and _kjit_is_grad_enabled() and ({wanted}):",
            f"    return _kjit_recording[0]({inputs})",
        ]

    lines = [
        f"def _kjit_call_op({layout.parameters}):",
        *(f"    {line}" for line in record),
        *(f"    {line}" for line in allocate),
        f"    _kjit_registered[0]({layout.arguments})",
        f"    return{returned}",
        f"def call({layout.parameters}):",
        "    if _kjit_is_dynamo_compiling():",
        f"        return _kjit_call_op({layout.arguments})",
        # On Python 3.11 only (native.py). On others, this function runs where that could not tell.
        "    if _kjit_direct is not None:",
        f"        _kjit_result = _kjit_direct({layout.arguments})",
        "        if _kjit_result is not _kjit_through_pytorch:",
        "            return _kjit_result",
        f"    if {is_direct} and ({' or '.join(unneeded)}):",
        "        try:",
        f"            _kjit_result = _kjit_function({layout.arguments})",
        # A kernel cannot have run on a tensor without data, such as one on the meta device, a zero tensor, and what a
        # transformation of functorch wraps, so that this failed before it changed anything. Asking here rather than at
        # the top keeps the question out of every other call.
        "        except RuntimeError:",
        f"            if _kjit_top_transform() is None and not ({' or '.join(map(has_no_data, tensors))}):",
        f"                _kjit_explain({f'op {layout.op!r}'!r}, {{{named}}})",
        "                raise",
        "        else:",
        *(f"            {line}" for line in count),
        "            return _kjit_result",
        # A gradient is needed: there was no other reason.
        f"    elif {is_direct}:",
        *(f"        {line}" for line in (*require_numbers, *record)),
        f"        _kjit_refuse_gradient({{{named}}})",
        f"    _kjit_require_tensors({layout.op!r}, {{{required}}}, {{{possible}}})",
        *(f"    {line}" for line in require_numbers),
        f"    return _kjit_call_op({layout.arguments})",
    ]
    return "\n".join(lines)
