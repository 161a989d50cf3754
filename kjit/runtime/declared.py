"""How does a wrapper describe its modules once, for loading and for `kjit build` alike?

A declared op is a function from values to a `Spec`, together with the values that it is built for ahead of use. A call
loads the module for the values given; `kjit build` goes through the declared ones. Both ask the same function, so they
cannot disagree. There is no registry: whoever builds a project imports its wrappers and looks at their variables.

The second call for the same values is on the path of every launch, so it is one dictionary look-up; only where values
of another type could be equal (`1`, `True` and `1.0` are) the types are compared too. The function that does it is
generated for the declared parameters: packing `*args` and `**kwargs` would take longer than the look-up.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from kjit.errors import UsageError
from kjit.runtime import simulation
from kjit.runtime.once import COMPOUND, typed
from kjit.spec import Spec, Target, Variant

if TYPE_CHECKING:
    import torch
    import tvm_ffi
    from typing_extensions import Self

E = TypeVar("E")


def product(**values: Iterable[object]) -> tuple[Mapping[str, object], ...]:
    """Every combination of the values of each name: `product(dtype=[a, b], n=[1, 2])` are four mappings.

    Several products are joined with `+`.

    Raises:
        UsageError: a name has no values, or one value where a list belongs.
    """
    lists: dict[str, list[object]] = {}
    for name, given in values.items():
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(f"product: {name} must be a list of values, not {given!r}.", hint=f"{name}=[{given!r}]")
        lists[name] = list(given)
        if not lists[name]:
            raise UsageError(f"product: {name} has no values.")
    return tuple(dict(zip(lists, combination, strict=True)) for combination in itertools.product(*lists.values()))


@overload
def module(
    *, variants: Iterable[Mapping[str, object]] = ...
) -> Callable[[Callable[..., Spec]], DeclaredModule[tvm_ffi.Module]]: ...
@overload
def module(
    *, exports: Callable[..., E], variants: Iterable[Mapping[str, object]] = ...
) -> Callable[[Callable[..., Spec]], DeclaredModule[E]]: ...
def module(
    *, exports: Callable[..., Any] | None = None, variants: Iterable[Mapping[str, object]] = ({},)
) -> Callable[[Callable[..., Spec]], DeclaredModule[Any]]:
    """Declare an op: the decorated function makes the `Spec` for given values.

        class Exports(Protocol):
            def scale(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...

        @kjit.module(exports=Exports, variants=kjit.product(dtype=[torch.float32, torch.float16]))
        def _scale(dtype):
            args = kjit.make_cpp_args(dtype)
            return kjit.Spec("scale", *args, cuda_files=[CSRC / "scale.cuh"],
                             cuda_wrappers=[("scale", f"Scale<{args}>::run")])

        _scale(x.dtype, device=x.device).scale(x, out)

    Args:
        exports: a `Protocol` with a method for each export, as which type checkers and editors take the loaded modules.
            kjit holds its names against those of each `Spec`. Without it the modules are of type `tvm_ffi.Module`, of
            which nothing is known.
        variants: the values that `kjit build` builds it for, each a mapping from the function's parameters; usually a
            `product(...)`. By default the function takes no values and there is one variant. A call with other values
            works too: that module is compiled at its first use.

    Raises:
        UsageError: a variant does not fit the function's parameters.
    """
    given = tuple(variants)
    # `exports` is a class, and not annotated as `type[E]`: mypy takes no Protocol for that.
    names = None if exports is None else _method_names(cast("type", exports))

    def declare(fn: Callable[..., Spec]) -> DeclaredModule[Any]:
        return DeclaredModule(fn, given, names)

    return declare


# A call of an instance goes through C this way, where a method `__call__` would cost as much as all the rest of it.
class DeclaredModule(functools.partial[E]):
    """A declared op. Call it with the values of its function and a device to get the loaded module, an `E` to the type
    checker.

        _scale(torch.float32, device=x.device)

    `device` (a `torch.device`, a string or None) is where the module runs; None will do where the op has a source for
    one kind of device only. A module that was never built is compiled. Whether the CPU means the simulator, `KJIT_SIM`
    says at the first call for some values.

    Raises (the call):
        UsageError: the op has no source for that device.
        KjitError: as for `load_jit`.
    """

    def __new__(
        cls,
        fn: Callable[..., Spec],
        variants: tuple[Mapping[str, object], ...],
        exports: frozenset[str] | None = None,
    ) -> Self:
        del variants, exports  # for __init__
        known: dict[object, tuple[tuple[type, ...] | None, tvm_ffi.Module]] = {}
        self = super().__new__(cls, _generate_call(fn, known, lambda *values: self._load(*values)))
        self._known = known
        return self

    def __init__(
        self,
        fn: Callable[..., Spec],
        variants: tuple[Mapping[str, object], ...],
        exports: frozenset[str] | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._exports = exports
        self._signature = inspect.signature(fn)
        self._values = variants
        # Two kinds of key: the values as a caller wrote them, and their one canonical form.
        self._modules: dict[object, tvm_ffi.Module] = {}
        # By device and values: the module, and the types of the values where these have to be compared.
        self._known: dict[object, tuple[tuple[type, ...] | None, tvm_ffi.Module]]
        # What these two held when calls went elsewhere with CPU tensors.
        self._aside: dict[object, tuple[dict[object, Any], dict[object, Any]]] = {}
        self._mode: object = None
        simulation.follow(self)
        for values in variants:
            try:
                self._signature.bind(**values)
            except TypeError as error:
                raise UsageError(
                    f"{self.name}: the variant {dict(values)} does not fit the function: {error}."
                ) from None

    def __repr__(self) -> str:
        return f"<kjit.DeclaredModule {self.__module__}.{self.name}>"

    @property
    def name(self) -> str:
        """The function's name."""
        return self._fn.__name__

    def spec(self, *values: Any, **named: Any) -> Spec:
        """What is built for these values."""
        spec = self._fn(*values, **named)
        if not isinstance(spec, Spec):
            raise UsageError(
                f"{self.name} must return a kjit.Spec, and returned {spec!r}.", hint='return kjit.Spec("name", ...)'
            )
        for wrappers in (spec.cuda_wrappers, spec.cpp_wrappers):
            self._check_exports({name for name, _ in wrappers if not name.startswith("_")})
        return spec

    def specs(self) -> list[Spec]:
        """What is built ahead of use, for all targets together."""
        return list(dict.fromkeys(self.spec(**values) for values in self._values))

    def variants(self, targets: Iterable[Target]) -> list[Variant]:
        """What is built ahead of use for each of `targets` that the op has a source for."""
        wanted = list(targets)
        return [
            Variant(spec.only(target.side), target)
            for spec in self.specs()
            for target in wanted
            if target.side in spec.kinds
        ]

    def cache_clear(self) -> None:
        """Forget what was loaded: the next call looks at the sources again."""
        self._modules.clear()
        self._known.clear()
        self._aside.clear()

    def switch(self, mode: object) -> None:
        """As `simulation.py` says: the modules of one mode go, those of another come."""
        if mode == self._mode:
            return
        kept = self._modules, self._known
        self._aside[self._mode] = (kept[0].copy(), kept[1].copy())
        self._mode = mode
        for keeper, saved in zip(kept, self._aside.pop(mode, ({}, {})), strict=True):
            keeper.clear()
            keeper.update(saved)

    def _check_exports(self, exported: set[str]) -> None:
        if self._exports is None or not exported:
            return  # a source without wrappers exports for itself, and does not tell what
        for name in sorted(exported ^ self._exports):
            raise UsageError(
                f"{self.name}: its Spec exports '{name}', and the class given as `exports=` has no such method."
                if name in exported
                else f"{self.name}: the class given as `exports=` has a method '{name}', and its Spec exports no such"
                " function.",
                hint=f"the Spec exports: {', '.join(sorted(exported))}",
            )

    def _load(self, device: torch.device | str | None, *values: Any) -> tvm_ffi.Module:
        """The module for the values of all parameters, in their order; a call asks only when it does not know."""
        as_written = (device, *map(typed, values))
        found = self._modules.get(as_written)
        if found is None:
            # Both know more than a call of a loaded module needs.
            from kjit.runtime.load import load_variant, target_of

            canonical = (None, str(device), *map(typed, values))
            found = self._modules.get(canonical)
            if found is None:
                # Two threads may come here at once: below them one compiles and the other waits; both get one module.
                spec = self.spec(**dict(zip(self._signature.parameters, values, strict=True)))
                target = target_of(spec, device)
                found = load_variant(
                    Variant(spec.only(target.side), target),
                    hint=self._how_to_prebuild(target),
                    wrapper=self._fn.__globals__.get("__file__"),
                )
                self._modules[canonical] = found
            self._modules[as_written] = found
        if not any(isinstance(value, COMPOUND) for value in values):
            key = (device, *values)
            self._known[key] = None if all(map(_is_alone, values)) else (*map(type, values),), found
        return found

    def _how_to_prebuild(self, target: Target) -> str:
        op = self.__module__.rpartition(".")[2]  # the wrapper is called as its op is
        where = f"--target {target.kind}" if target.arch is None else f"--target cuda --arch {target.arch}"
        return f"`kjit build {op} {where}` in its project builds it ahead of use"


def _method_names(exports: type) -> frozenset[str]:
    """The public methods of a class and of those that it is derived from."""
    if not isinstance(exports, type):
        raise UsageError(f"exports= must be a class with a method for each export, not {exports!r}.")
    own = [each for each in exports.__mro__ if each.__module__ not in ("builtins", "typing", "typing_extensions")]
    return frozenset(name for each in own for name in vars(each) if not name.startswith("_"))


def _generate_call(
    fn: Callable[..., Spec], known: Mapping[object, object], load: Callable[..., object]
) -> FunctionType:
    """The function behind a declared op: `fn`'s parameters and `device`, which looks the module up in `known`."""
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UsageError(f"{fn.__name__}: a declared op has plain parameters, and '{parameter}' is none.")
        if parameter.name == "device":
            raise UsageError(
                f"{fn.__name__}: a declared op has no parameter 'device'.",
                hint="device= chooses between the CUDA side and the C++ side of the Spec that the function returns",
            )
    plain = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    values = "".join(f", {name}" for name in plain + named)
    types = "".join(f"_kjit_type({name}), " for name in plain + named)
    # What it uses comes as parameters of a factory: a closure is faster than globals, and the prefix keeps its names
    # apart from those of the op.
    source = f"""
def factory(_kjit_known, _kjit_load, _kjit_type):
    def call({", ".join([*plain, "*", *named, "device"])}):
        _kjit_found = _kjit_known((device{values},))
        if _kjit_found is not None and (_kjit_found[0] is None or _kjit_found[0] == ({types})):
            return _kjit_found[1]
        return _kjit_load(device{values})
    return call
"""
    space: dict[str, Any] = {}
    exec(compile(source, f"<kjit.module {fn.__name__}>", "exec"), space)
    call = cast("FunctionType", space["factory"](known.get, load, type))
    call.__name__, call.__qualname__ = fn.__name__, fn.__qualname__
    call.__defaults__ = tuple(p.default for p in parameters if p.name in plain and p.default is not p.empty)
    call.__kwdefaults__ = {p.name: p.default for p in parameters if p.name in named and p.default is not p.empty}
    call.__kwdefaults__["device"] = None
    return call


def _is_alone(value: object) -> bool:
    """Whether no value of another type equals this one: so it is for dtypes, the most usual ones."""
    return value is None or type(value).__module__ == "torch"
