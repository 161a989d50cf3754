'''Ops for PyTorch: a plain Python function in eager mode, a `torch.library` op otherwise.

A complete wrapper:

    from __future__ import annotations

    import torch

    import kjit

    def _empty(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @kjit.torch_op(outputs=_empty)
    def scale(x: torch.Tensor, alpha: float = 2.0, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return x * alpha."""
        if out is None:
            out = _empty(x)
        _scale(x.dtype, device=x).scale(x, alpha, out)
        return out

    y = scale(x, 3.0)                # allocates
    scale(x, 3.0, out=y)             # destination-passing
    torch.compile(scale, fullgraph=True)(x, 3.0)
    torch.library.opcheck(scale.op, (x, 3.0))

The rules:
- Inputs come before the `*`: tensors, optional tensors, lists of tensors, numbers, bools, strings, dtypes, lists of
  numbers. Tensors in a list are checked for gradients and for being plain like any other tensor.
- Outputs come after the `*`: every keyword-only parameter is one, `torch.Tensor | None = None`. `outputs` is a function
  whose parameters are some of the inputs, by name; it allocates the outputs and returns one tensor, or a tuple of them
  in order. It must only create tensors (no kernel), as `torch.compile` runs it on tensors without data. The op returns
  its output, or the tuple of its outputs. A caller may pass any of them.
- An op that changes an input names it: `@kjit.torch_op(mutates_args=("x",))`. Without outputs it returns None:

    @kjit.torch_op(mutates_args=("x",))
    def bump_(x: torch.Tensor, amount: int = 1) -> None:
        _bump(amount, device=x).bump_(x)

- An op that returns its outputs can have a gradient: `register_autograd` has the parameters of
  `torch.library.register_autograd`, and works in eager mode and under `torch.compile`:

    def _setup(ctx, inputs, output):
        _, ctx.alpha = inputs

    def _backward(ctx, grad):
        return scale(grad.contiguous(), ctx.alpha), None  # one for each input; grad may have any strides

    scale.register_autograd(_backward, setup_context=_setup)

- `scale.op` is the registered op `torch.ops.<package>.scale.default`, which returns new outputs like any op of
  `torch.library`. `torch.ops.<package>.scale.out` writes to given outputs, all passed by keyword, and returns nothing.
  `@kjit.torch_op(name="space::op", ...)` chooses another name. The parameters `mode` and `node` are called `mode_` and
  `node_` there: functions that PyTorch compiles ops with have parameters of these names.

Why calls take two paths: PyTorch's dispatcher costs several microseconds per call, longer than most small kernels run,
and does nothing useful for plain tensors outside a transformation. The registered op is used by everything else:
`torch.compile`, `torch.export` and `torch.jit.trace`, fake and meta tensors, tensor subclasses, dispatch modes,
functorch transforms, and calls that record a gradient. `op_call.py` generates the function that decides. It calls
`.default`, for which rules of other libraries are written (sharding of DTensor, `register_vmap`), and `.out` only if an
output is given. A third overload with the same arguments as one of these is not possible: PyTorch (2.13) distinguishes
overloads by arguments when a library is destroyed, and would keep a dangling one.

No gradient is ever silently wrong: if an input requires one and there is no backward, if `out=` is given as well, and
in forward mode (`torch.func.jvp`), a call is an error; and the version counters of written tensors are incremented, so
that autograd notices if it had saved the old values.

Calls with tensors that differ from their memory (conjugate, negative, zero) go through PyTorch, and the registered op
passes materialised copies to the kernel (special_tensors.py). Writes are copied back; writing to a zero tensor is an
error.

Ops use some private names of PyTorch. They are listed in `UNPROMISED`, so that a torch without one of them is a clear
error when the first op is defined, and not an `AttributeError` in the middle of a call. docs/versions.md has the whole
list.

The trade-offs: tensors made in inference mode can be written to outside of it; and eager calls are invisible to a
`TorchFunctionMode` and to the profiler's list of ATen ops (not to the GPU's timeline).
'''

from __future__ import annotations

import inspect
import os
import typing
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce, update_wrapper
from types import FunctionType, GenericAlias
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

import kjit
from kjit import env
from kjit.runtime.op_call import OpLayout, each_tensor, generate_call, read_layout
from kjit.runtime.stand_in import StandIn, torch_stub

if TYPE_CHECKING:
    import torch

UNPROMISED = (
    "torch._C._AutoDispatchBelowADInplaceOrView",
    "torch._C._AutoDispatchBelowAutograd",
    "torch._C._after_ADInplaceOrView_keyset",
    "torch._C._after_autograd_keyset",
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._increment_version",
    "torch._C._is_tracing",
    "torch._C._len_torch_dispatch_stack",
    "torch._ops.OpOverload.redispatch",
    "torch.Tensor._is_zerotensor",
    "torch.autograd.forward_ad._current_level",
    "torch.library.Library._destroy",
)

GRADIENT = "register_autograd"
"""An attribute that every op has."""

NEWEST_TORCH = "2.15"
"""The newest torch that this kjit was tested with; docs/versions.md has the others."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

if TYPE_CHECKING:
    _R_co = TypeVar("_R_co", covariant=True)

    class TorchOp(Protocol[_P, _R_co]):
        """A function decorated by `torch_op`: the same signature, and the registered op."""

        __name__: str
        __wrapped__: Callable[..., Any]

        @property
        def op(self) -> torch._ops.OpOverload[..., Any]:
            """The op in `torch.ops`, for `torch.library.opcheck`: the overload `.default`."""

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...

        def register_autograd(
            self, backward: Callable[..., Any], /, *, setup_context: Callable[..., None] | None = None
        ) -> None:
            """Define the op's gradient, in eager mode and under `torch.compile`; the last definition counts.

            Args:
                backward: called as `backward(ctx, grad)`, with one gradient for each output; returns one for each
                    input, or None. It must consist of ops that PyTorch knows, including other ops of kjit.
                setup_context: called as `setup_context(ctx, inputs, output)`, to save values for `backward`: tensors
                    with `ctx.save_for_backward`, others as attributes of `ctx`.

            Raises:
                UsageError: the op changes an input, or has no output.
            """


def torch_op(
    name: str | None = None,
    *,
    outputs: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]] | None = None,
    mutates_args: Iterable[str] = (),
) -> Callable[[Callable[_P, _R]], TorchOp[_P, _R]]:
    """Make a function on tensors an op that `torch.compile` and the rest of PyTorch understand.

    The module's docstring has an example and the rules for the function's signature. The result is called like the
    function. A tensor that requires a gradient, while gradients are recorded, is an error, unless the op has a backward
    (`register_autograd`).

    Args:
        name: `space::op`; default: the function's package and name, `kernels::scale` for `scale` in `kernels/scale.py`.
        outputs: a function of some of the inputs, by name, that allocates the outputs (the keyword-only parameters).
        mutates_args: the inputs that the op changes in place.

    Raises:
        UsageError: the signature does not follow the rules, or another function has the name.
        KjitError: this torch lacks something that ops rely on (`UNPROMISED`).
    """
    if isinstance(mutates_args, str):
        raise kjit.UsageError(f"mutates_args must be a list of names, not the one string '{mutates_args}'.")
    mutated = tuple(mutates_args)

    def decorate(function: Callable[_P, _R]) -> TorchOp[_P, _R]:
        layout = read_layout(function, outputs, mutated)
        namespace, op_name = _split_name(name or _default_name(function), layout)
        stand_in = torch_stub()
        if stand_in is not None:
            return cast("TorchOp[_P, _R]", _unregistered(function, f"{namespace}::{op_name}", stand_in))
        require_torch()
        kernel: Callable[..., Any] = function
        if env.record_folder() is not None:
            from kjit.runtime.recording import recorded

            kernel = recorded(function)
        op = _define(kernel, namespace, op_name, layout, outputs)
        called = generate_call(kernel, layout, outputs, op.overloads)
        update_wrapper(called, function)
        called.__defaults__ = tuple(p.default for p in layout.inputs if p.default is not p.empty)
        called.__kwdefaults__ = dict.fromkeys(layout.outputs)
        called.__dict__["op"] = op.overloads[0]
        called.__dict__[GRADIENT] = op.register_autograd
        op.functions.add(called)
        return cast("TorchOp[_P, _R]", called)

    return decorate


class _Op:
    """An op in PyTorch.

    When a module is run again, PyTorch drops its old op, but its old function may still be in use. So the functions of
    one name share this, and all call the current op.

    Args:
        name: `kernels::scale`.
        owner: the function, as `module.name`.

    Attributes:
        library: its library in PyTorch.
        layout: its parameters.
        overloads: `.default` and, if there are outputs, `.out`.
        record: once there is a backward, the function that records a gradient.
        functions: the functions of callers.
    """

    library: Any
    layout: OpLayout

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        self.overloads: list[torch._ops.OpOverload[..., Any]] = []
        self.record: Callable[..., Any] | None = None
        self.functions: weakref.WeakSet[FunctionType] = weakref.WeakSet()

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., None] | None = None
    ) -> None:
        """As in `TorchOp`."""
        import torch

        op = self.layout.op
        if self.layout.mutated or not self.layout.outputs:
            changed = ", ".join(self.layout.mutated)
            raise kjit.UsageError(
                f"op '{op}' changes an input ({changed}), and can have no backward.",
                hint="an op that returns a new output can; or call this one in a torch.autograd.Function",
            )

        class Library:
            """Takes the function that PyTorch makes: it is not registered, as it does not reject tangents."""

            @staticmethod
            def impl(_: str, kernel: Callable[..., Any], key: str, *, with_keyset: bool) -> None:
                assert key == "Autograd"
                assert with_keyset
                self.record = kernel

        def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if setup_context is not None:
                setup_context(ctx, inputs, output)  # by position: PyTorch calls it with keywords

        torch.library.register_autograd(self.name, backward, setup_context=setup, lib=cast("Any", Library))

    def refuse_gradients(self, tensors: dict[str, Any], *, can_record: bool) -> None:
        """Raise a `KjitError` if a gradient would be needed for these tensors, by name, and could not be computed.

        Args:
            tensors: each a tensor, a list of them, or None.
            can_record: whether this call can record one in reverse mode.
        """
        import torch

        op = self.layout.op
        is_needed = torch.is_grad_enabled() and not can_record
        for name, tensor in each_tensor(tensors):
            if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
                raise kjit.KjitError(
                    f"op '{op}' has no gradient in forward mode, and '{name}' carries a tangent.",
                    hint=f"use reverse mode (`backward()`), or pass {name}.detach()",
                )
            if not is_needed or not tensor.requires_grad:
                continue
            if self.record is None:
                raise kjit.KjitError(
                    f"op '{op}' has no gradient, but '{name}' requires one.",
                    hint=f"call it under torch.no_grad(), pass {name}.detach(), or give it a backward with"
                    f" {op}.register_autograd(...)",
                )
            raise kjit.KjitError(
                f"op '{op}' cannot write to a tensor that it is given and record a gradient, and '{name}' requires"
                " one.",
                hint=f"leave {'= and '.join(self.layout.outputs)}= away, or call it under torch.no_grad()",
            )


def has_gradient(op: Callable[..., Any]) -> bool:
    """Whether an op has a backward."""
    return op.__dict__[GRADIENT].__self__.record is not None


_ops: dict[str, _Op] = {}
"""By name. torch.ops lives as long as the process, and so must the registration."""


def _default_name(function: Callable[..., object]) -> str:
    """`kernels::scale` for `kernels/scale.py`, `my_package_kernels::scale` for `my_package/kernels/scale.py`."""
    module = function.__module__
    package = module.rpartition(".")[0] or module
    # The name of a module may be `<run_path>`.
    namespace = "".join(letter if letter.isalnum() else "_" for letter in package)
    return f"{namespace}::{function.__name__}"


def _split_name(name: str, layout: OpLayout) -> tuple[str, str]:
    namespace, separator, op_name = name.partition("::")
    if not (separator and namespace and op_name.isidentifier()):
        raise kjit.UsageError(
            f"op '{layout.op}': '{name}' is not a name for an op.", hint="write it like `kernels::scale`"
        )
    return namespace, op_name


def _unregistered(function: Callable[_P, _R], name: str, stand_in: StandIn) -> Callable[_P, _R]:
    """`function`, unregistered, while declarations are read: then it is not called, but may be given a gradient."""
    owner = f"{function.__module__}.{function.__qualname__}"
    if stand_in.ops.setdefault(name, owner) != owner:
        stand_in.refuse(name)  # an error, which `_free` reports
    function.__dict__[GRADIENT] = lambda *_, **__: None
    return function


def _define(
    function: Callable[..., object],
    namespace: str,
    op_name: str,
    layout: OpLayout,
    outputs: Callable[..., object] | None,
) -> _Op:
    """Define the op in PyTorch.

    `torch.library.custom_op` is not used: it allows tensors that require a gradient in an op that writes to its
    arguments, and the gradient is silently lost.
    """
    import torch

    schema = _schema(layout, op_name, functional=True)
    out_schema = _schema(layout, f"{op_name}.out") if layout.outputs else None
    op = _free(namespace, op_name, f"{function.__module__}.{function.__qualname__}")
    op.library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    op.layout = layout

    def fake(*args: Any) -> Any:
        from kjit.runtime import special_tensors

        return special_tensors.fake_outputs(layout, outputs, _by_name(layout, args))

    def fill(*args: Any, **outs: Any) -> None:
        function(*args, **_by_name(layout, (), outs))

    def fake_fill(*args: Any, **outs: Any) -> None:
        from kjit.runtime import special_tensors

        special_tensors.require_data(layout, _by_name(layout, args, outs))

    op.overloads[:] = [_define_overload(op, function, schema, fake)]
    if out_schema is not None:
        op.overloads.append(_define_overload(op, fill, out_schema, fake_fill))
    for called in op.functions:
        called.__dict__["op"] = op.overloads[0]
    return op


def _define_overload(
    op: _Op, kernel: Callable[..., object], schema: str, fake: Callable[..., Any]
) -> torch._ops.OpOverload[..., Any]:
    """Define one overload: kernel, fake, and autograd. It writes to its keyword arguments."""
    import torch

    library, layout = op.library, op.layout
    library.define(schema, tags=torch.Tag.pt2_compliant_tag)
    name = schema.partition("(")[0]
    op_name, _, overload_name = name.partition(".")
    namespace = op.name.partition("::")[0]
    overload: Any = getattr(getattr(getattr(torch.ops, namespace), op_name), overload_name or "default")
    changed = tuple(index for index, p in enumerate(layout.inputs) if p.name in layout.mutated)
    writes = bool(changed or overload_name)

    def autograd(keyset: Any, *args: Any, **outs: Any) -> Any:
        given = {key: value for key, value in _by_name(layout, args, outs).items() if key in layout.with_tensors}
        record = None if writes else op.record
        op.refuse_gradients(given, can_record=record is not None)
        if record is not None:
            return record(keyset, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *args, **outs)

    def count_versions(keyset: Any, *args: Any, **outs: Any) -> Any:
        # PyTorch drops trailing arguments that equal their defaults, which are not tensors.
        written = outs | {str(index): args[index] for index in changed if index < len(args)}
        torch._C._increment_version([tensor for _, tensor in each_tensor(written)])
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return overload.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *args, **outs)

    def make_physical(*args: Any, **outs: Any) -> Any:
        # PyTorch's own fallback does this only for written tensors that an op returns.
        from kjit.runtime import special_tensors

        given = _by_name(layout, args, outs)
        physical = special_tensors.materialised(layout, given)
        result = overload(
            *(physical[p.name] for p in layout.inputs[: len(args)]),
            **{layout.registered[out]: physical[out] for out in layout.outputs if out in given},
        )
        written = (*layout.mutated, *layout.outputs)
        before, after = ({name: of[name] for name in written if name in of} for of in (given, physical))
        for (_, target), (_, source) in zip(each_tensor(before), each_tensor(after), strict=True):
            if target is not source:
                target.copy_(source)
        return result

    library.impl(name, kernel, "CompositeExplicitAutograd")
    for key in ("Conjugate", "Negative", "ZeroTensor"):
        library.impl(name, make_physical, key)
    # Avoids its call of `inspect` for the calling module, which would iterate over all modules of the process.
    if (known := getattr(inspect, "modulesbyfile", None)) is not None:
        known.setdefault(os.path.abspath(__file__), __name__)
    torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
    library.impl(name, autograd, "Autograd", with_keyset=True)
    if writes:
        library.impl(name, count_versions, "ADInplaceOrView", with_keyset=True)
    return cast("torch._ops.OpOverload[..., Any]", overload)


def _by_name(layout: OpLayout, args: Iterable[Any], outs: dict[str, Any] | None = None) -> dict[str, Any]:
    """The arguments of a call of the registered op by the names of the function's parameters."""
    given = dict(zip((p.name for p in layout.inputs), args, strict=False))
    if outs:
        given |= {name: outs[layout.registered[name]] for name in layout.outputs if layout.registered[name] in outs}
    return given


def _schema(layout: OpLayout, op_name: str, *, functional: bool = False) -> str:
    import torch

    def prototype() -> None: ...

    called = layout.registered
    inputs = [p.replace(name=called[p.name], annotation=_spelt(p.annotation)) for p in layout.inputs]
    outs = [
        inspect.Parameter(called[o], inspect.Parameter.KEYWORD_ONLY, annotation=torch.Tensor) for o in layout.outputs
    ]
    mutated = tuple(called[name] for name in (*layout.mutated, *layout.outputs))
    returned: object = None
    if functional and outs:
        returned = torch.Tensor if len(outs) == 1 else GenericAlias(tuple, (torch.Tensor,) * len(outs))
        outs, mutated = [], mutated[: len(layout.mutated)]
    prototype.__signature__ = inspect.Signature([*inputs, *outs], return_annotation=returned)  # type: ignore[attr-defined]
    try:
        return torch.library.infer_schema(prototype, op_name=op_name, mutates_args=mutated)
    except ValueError as error:
        raise kjit.UsageError(f"op '{layout.op}': PyTorch cannot express its signature: {error}.") from error


def _spelt(annotation: Any) -> Any:
    """An annotation that every torch accepts: 2.6 knows `typing.List[int]`, but not `list[int]`."""
    arguments = tuple(map(_spelt, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (list, Sequence):
        return cast("Any", typing.List)[arguments]  # noqa: UP006
    return cast("Any", typing.Union)[arguments] if type(None) in arguments else annotation


def _free(namespace: str, op_name: str, owner: str) -> _Op:
    """Free the name when its module is run again (a notebook cell, `importlib.reload`); the last definition counts.

    Returns:
        The op to define: the previous one, or a new one.

    Raises:
        UsageError: the name belongs to another function.
    """
    import torch

    name = f"{namespace}::{op_name}"
    if getattr(getattr(torch.ops, namespace), op_name, None) is None:
        return _ops.setdefault(name, _Op(name, owner))
    op = _ops.get(name)
    if op is None or op.owner != owner:
        taken_by = "an op that was not registered by kjit" if op is None else op.owner
        raise kjit.UsageError(
            f"the op '{name}' is already taken by {taken_by}.",
            hint='choose another name with @kjit.torch_op(name="space::op", ...)',
        )
    op.library._destroy()
    # The last reference: the destructor of the library clears torch.ops, and must not run after the new definition.
    op.library = op.record = None
    return op


@lru_cache(maxsize=1)
def require_torch() -> None:
    """Raise a `KjitError` if the installed torch lacks one of `UNPROMISED`."""
    import torch

    missing = [name for name in UNPROMISED if not _has(torch, name)]
    if missing:
        raise kjit.KjitError(
            f"torch {torch.__version__} has no {', '.join(missing)}, which ops of kjit {kjit.__version__} need.",
            hint=f"install a newer kjit, or the newest torch that this one was tested with: pip install"
            f" 'torch=={NEWEST_TORCH}.*'",
        )


def _has(torch: object, name: str) -> bool:
    _, *parts = name.split(".")
    try:
        reduce(getattr, parts, torch)
    except AttributeError:
        return False
    return True
