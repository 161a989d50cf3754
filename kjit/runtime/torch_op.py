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
functorch transforms. `op_call.py` generates the function that decides.

Why calls of the function use the overload `.out`: PyTorch functionalises it where necessary and reuses buffers where
possible. Autograd does not support ops that write to their arguments, so a call that records a gradient uses
`.default`. Otherwise that overload is for callers by name: saved graphs, C++, code for ops of `torch.library`. A third
overload with the same arguments as one of these is not possible: PyTorch (2.13) distinguishes overloads by arguments
when a library is destroyed, and would keep a dangling one.

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

GRADIENT, HAS_GRADIENT = "register_autograd", "has_gradient"
"""Attributes that every op has."""

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
        gradient = _Gradient(layout)
        kernel: Callable[..., Any] = function
        if env.record_folder() is not None:
            from kjit.runtime.recording import recorded

            kernel = recorded(function, "op")
        defined = _register(kernel, namespace, op_name, layout, outputs, gradient)
        called = generate_call(
            kernel,
            layout,
            outputs,
            registered=gradient.registered,
            recording=gradient.overloads,
            refuse_gradient=gradient.refuse,
        )
        update_wrapper(called, function)
        called.__defaults__ = tuple(p.default for p in layout.inputs if p.default is not p.empty)
        called.__kwdefaults__ = dict.fromkeys(layout.outputs)
        called.__dict__["op"] = defined
        gradient.functions.add(called)

        def register_autograd(
            backward: Callable[..., Any], /, *, setup_context: Callable[..., None] | None = None
        ) -> None:
            if called.__dict__["op"] is not defined:
                raise kjit.UsageError(
                    f"op '{layout.op}' was defined again since this function was made.",
                    hint="register the backward of the newer one",
                )
            gradient.set(backward, setup_context)
            called.__dict__[HAS_GRADIENT] = True
            if not gradient.overloads:
                gradient.record = _recording_kernel(f"{namespace}::{op_name}", gradient)
                gradient.overloads.append(defined)

        called.__dict__[GRADIENT], called.__dict__[HAS_GRADIENT] = register_autograd, False
        return cast("TorchOp[_P, _R]", called)

    return decorate


class _Gradient:
    """The gradient of an op, and the state shared by all functions of its name.

    When a module is run again, PyTorch drops its old op, but its old function may still be in use. So the functions of
    one name share this, and all call the current op.

    Attributes:
        library: its library in PyTorch.
        registered: the overload for calls of the function, one element: `.out`, or `.default` if there is no output.
        overloads: empty; once there is a backward, the overload that records gradients: `.default`.
        record: the function that records them.
        functions: the functions of callers.
    """

    def __init__(self, layout: OpLayout) -> None:
        self.layout = layout
        self.library: Any = None
        self.registered: list[Any] = []
        self.overloads: list[Any] = []
        self.functions: weakref.WeakSet[FunctionType] = weakref.WeakSet()
        self.record: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., None] | None = None

    def follow(self, previous: _Gradient) -> None:
        """Take the place of an op that was dropped."""
        self.registered, self.overloads, self.functions = previous.registered, previous.overloads, previous.functions
        self.overloads.clear()

    def publish(self, default: torch._ops.OpOverload[..., Any], registered: torch._ops.OpOverload[..., Any]) -> None:
        """Set the current op for all functions of this name."""
        self.registered[:] = [registered]
        for function in self.functions:
            function.__dict__["op"] = default

    def set(self, backward: Callable[..., Any], setup_context: Callable[..., None] | None) -> None:
        op = self.layout.op
        if self.layout.mutated or not self.layout.outputs:
            changed = ", ".join(self.layout.mutated)
            raise kjit.UsageError(
                f"op '{op}' changes an input ({changed}), and can have no backward.",
                hint="an op that returns a new output can; or call this one in a torch.autograd.Function",
            )
        if not callable(backward):
            raise kjit.UsageError(f"op '{op}': backward must be a function, not {backward!r}.")
        self.backward, self.setup_context = backward, setup_context

    def refuse(self, tensors: dict[str, Any]) -> None:
        """Raise a `KjitError` if a gradient would be needed for these tensors, by name, and could not be computed.

        Args:
            tensors: each a tensor, a list of them, or None.
        """
        import torch

        op = self.layout.op
        recording = torch.is_grad_enabled()
        for name, tensor in each_tensor(tensors):
            if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
                raise kjit.KjitError(
                    f"op '{op}' has no gradient in forward mode, and '{name}' carries a tangent.",
                    hint=f"use reverse mode (`backward()`), or pass {name}.detach()",
                )
            if not recording or not tensor.requires_grad:
                continue
            if not self.overloads:
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


_registered: dict[str, tuple[str, _Gradient]] = {}
"""By the name of each op: its function, as `module.name`, and its gradient."""


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


def _owner(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _unregistered(function: Callable[_P, _R], name: str, stand_in: StandIn) -> Callable[_P, _R]:
    """`function`, unregistered, while declarations are read: then it is not called, but may be given a gradient."""
    owner = _owner(function)
    if stand_in.ops.setdefault(name, owner) != owner:
        stand_in.refuse(name)  # an error, which `_forget_previous` reports
    function.__dict__[GRADIENT] = lambda *_, **__: None
    return function


def _register(
    function: Callable[..., object],
    namespace: str,
    op_name: str,
    layout: OpLayout,
    outputs: Callable[..., object] | None,
    gradient: _Gradient,
) -> torch._ops.OpOverload[..., Any]:
    """Define the op in PyTorch, and return its overload `.default`.

    `torch.library.custom_op` is not used: it allows tensors that require a gradient in an op that writes to its
    arguments, and the gradient is silently lost.
    """
    import torch

    schema = _schema(layout, op_name, functional=True)
    out_schema = _schema(layout, f"{op_name}.out") if layout.outputs else None
    owner = _owner(function)
    previous = _forget_previous(namespace, op_name, owner)
    if previous is not None:
        gradient.follow(previous)
    gradient.library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]

    def fake(*args: Any) -> Any:
        from kjit.runtime import special_tensors

        return special_tensors.fake_outputs(layout, outputs, _by_name(layout, args))

    default = _define(function, namespace, schema, fake, layout, gradient)
    registered = default
    if out_schema is not None:

        def fill(*args: Any, **outs: Any) -> None:
            function(*args, **_by_name(layout, (), outs))

        def fake_fill(*args: Any, **outs: Any) -> None:
            from kjit.runtime import special_tensors

            special_tensors.require_data(layout, _by_name(layout, args, outs))

        registered = _define(fill, namespace, out_schema, fake_fill, layout, gradient)
    # torch.ops lives as long as the process, and so must the registration.
    _registered[f"{namespace}::{op_name}"] = (owner, gradient)
    gradient.publish(default, registered)
    return default


def _define(
    kernel: Callable[..., object],
    namespace: str,
    schema: str,
    fake: Callable[..., Any],
    layout: OpLayout,
    gradient: _Gradient,
) -> torch._ops.OpOverload[..., Any]:
    """Define one overload: kernel, fake, and autograd. It writes to its keyword arguments."""
    import torch

    library = gradient.library
    library.define(schema, tags=torch.Tag.pt2_compliant_tag)
    name = schema.partition("(")[0]
    op_name, _, overload_name = name.partition(".")
    overload: Any = getattr(getattr(getattr(torch.ops, namespace), op_name), overload_name or "default")
    changed = tuple(index for index, p in enumerate(layout.inputs) if p.name in layout.mutated)
    writes = bool(changed or overload_name)

    def autograd(keyset: Any, *args: Any, **outs: Any) -> Any:
        given = {key: value for key, value in _by_name(layout, args, outs).items() if key in layout.with_tensors}
        if gradient.record is not None and not writes and not _has_tangent(given):
            return gradient.record(keyset, *args)
        gradient.refuse(given)
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


def _has_tangent(tensors: dict[str, Any]) -> bool:
    """Whether one of them has a forward-mode tangent."""
    import torch

    unpack: Any = torch.autograd.forward_ad.unpack_dual
    return any(unpack(tensor).tangent is not None for _, tensor in each_tensor(tensors))


def _recording_kernel(name: str, gradient: _Gradient) -> Callable[..., Any]:
    """A function that records a gradient of the op `name`, with the current backward of `gradient`.

    PyTorch creates it for a library. It is not registered directly, as it does not reject tangents.
    """
    import torch

    kernels: list[Callable[..., Any]] = []

    class Kept:
        def impl(self, _: str, kernel: Callable[..., Any], key: str, *, with_keyset: bool) -> None:
            assert key == "Autograd"
            assert with_keyset
            kernels.append(kernel)

    def backward(ctx: Any, *grads: Any) -> Any:
        assert gradient.backward is not None  # set before this is made
        return gradient.backward(ctx, *grads)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if gradient.setup_context is not None:
            gradient.setup_context(ctx, inputs, output)

    torch.library.register_autograd(name, backward, setup_context=setup_context, lib=cast("Any", Kept()))
    return kernels[0]


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


def _forget_previous(namespace: str, op_name: str, owner: str) -> _Gradient | None:
    """Free the name when its module is run again (a notebook cell, `importlib.reload`); the last definition counts.

    Returns:
        The gradient of the previous definition, if there was one.

    Raises:
        UsageError: the name belongs to another function.
    """
    import torch

    if getattr(getattr(torch.ops, namespace), op_name, None) is None:
        return None
    name = f"{namespace}::{op_name}"
    previous, gradient = _registered.get(name, ("an op that was not registered by kjit", None))
    if previous != owner or gradient is None:
        raise kjit.UsageError(
            f"the op '{name}' is already taken by {previous}.",
            hint='choose another name with @kjit.torch_op(name="space::op", ...)',
        )
    gradient.library._destroy()
    # The last reference: the destructor of the library clears torch.ops, and must not run after the new definition.
    gradient.library = None
    return gradient


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
