"""How does a wrapper describe its modules once, for loading and for `kjit build` alike?

A declared op is a function from values to a `Spec`, together with the values that it is built for ahead of use. A call
loads the module for the values given; `kjit build` goes through the declared ones. Both ask the same function, so they
cannot disagree. There is no registry: whoever builds a project imports its wrappers and looks at their variables.

The second call for the same values is on the path of every launch, so it is one dictionary look-up; only where values
of another type could be equal (`1`, `True` and `1.0` are) the types are compared too.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kjit.errors import UsageError
from kjit.runtime.once import COMPOUND, typed
from kjit.spec import Spec, Target, Variant

if TYPE_CHECKING:
    import torch
    import tvm_ffi
    from typing_extensions import Self


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


def module(*, variants: Iterable[Mapping[str, object]] = ({},)) -> Callable[[Callable[..., Spec]], DeclaredModule]:
    """Declare an op: the decorated function makes the `Spec` for given values.

        @kjit.module(variants=kjit.product(dtype=[torch.float32, torch.float16]))
        def _scale(dtype):
            args = kjit.make_cpp_args(dtype)
            return kjit.Spec("scale", *args, cuda_files=[CSRC / "scale.cuh"],
                             cuda_wrappers=[("scale", f"Scale<{args}>::run")])

        _scale(x.dtype, device=x.device).scale(x, out)

    Args:
        variants: the values that `kjit build` builds it for, each a mapping from the function's parameters; usually a
            `product(...)`. By default the function takes no values and there is one variant. A call with other values
            works too: that module is compiled at its first use.

    Raises:
        UsageError: a variant does not fit the function's parameters.
    """
    given = tuple(variants)

    def declare(fn: Callable[..., Spec]) -> DeclaredModule:
        return DeclaredModule(fn, given)

    return declare


# A call of an instance goes through C this way, where a method `__call__` would cost as much as all the rest of it.
class DeclaredModule(functools.partial["tvm_ffi.Module"]):
    """A declared op. Call it with the values of its function and a device to get the loaded module.

        _scale(torch.float32, device=x.device)

    `device` (a `torch.device`, a string or None) is where the module runs; None will do where the op has a source for
    one kind of device only. A module that was never built is compiled.

    Raises (the call):
        UsageError: the op has no source for that device.
        KjitError: as for `load_jit`.
    """

    def __new__(cls, fn: Callable[..., Spec], variants: tuple[Mapping[str, object], ...]) -> Self:
        del fn, variants  # for __init__
        known: dict[object, tuple[tuple[type, ...] | None, tvm_ffi.Module]] = {}

        def call(*values: Any, device: torch.device | str | None = None, **named: Any) -> tvm_ffi.Module:
            if not named:
                found = known.get((device, values))
                if found is not None:
                    types, loaded = found
                    if types is None or types == (*map(type, values),):
                        return loaded
            return self._load(values, named, device)

        self = super().__new__(cls, call)
        self._known = known
        return self

    def __init__(self, fn: Callable[..., Spec], variants: tuple[Mapping[str, object], ...]) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._signature = inspect.signature(fn)
        self._values = variants
        self._lock = threading.Lock()
        # Two kinds of key: the values as a caller wrote them, and their one canonical form.
        self._modules: dict[object, tvm_ffi.Module] = {}
        # For calls by position only: the module, and the types of the values where these have to be compared.
        self._known: dict[object, tuple[tuple[type, ...] | None, tvm_ffi.Module]]
        if "device" in self._signature.parameters:
            raise UsageError(
                f"{self.name}: a declared op has no parameter 'device'.",
                hint="device= chooses between the CUDA side and the C++ side of the Spec that the function returns",
            )
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
        return spec

    def specs(self) -> list[Spec]:
        """What is built ahead of use, for all targets together."""
        return list(dict.fromkeys(self.spec(**values) for values in self._values))

    def variants(self, targets: Iterable[Target]) -> list[Variant]:
        """What is built ahead of use for each of `targets` that the op has a source for."""
        wanted = list(targets)
        return [
            Variant(spec.only(target.kind), target)
            for spec in self.specs()
            for target in wanted
            if target.kind in spec.kinds
        ]

    def cache_clear(self) -> None:
        """Forget what was loaded: the next call looks at the sources again."""
        with self._lock:
            self._modules.clear()
            self._known.clear()

    def _load(
        self, values: tuple[Any, ...], named: dict[str, Any], device: torch.device | str | None
    ) -> tvm_ffi.Module:
        as_written = (device, *map(typed, values), *((name, typed(value)) for name, value in named.items()))
        found = self._modules.get(as_written)
        if found is not None:
            return found
        # Both know more than a call of a loaded module needs.
        from kjit.runtime.load import load_variant, target_of

        bound = self._signature.bind(*values, **named)
        bound.apply_defaults()
        canonical = (None, str(device), *map(typed, bound.args), *map(typed, sorted(bound.kwargs.items())))
        with self._lock:
            found = self._modules.get(canonical)
            if found is None:
                spec = self.spec(*values, **named)
                target = target_of(spec, device)
                found = load_variant(Variant(spec.only(target.kind), target), hint=_prebuild(spec, target))
                self._modules[canonical] = found
            self._modules[as_written] = found
            if not named and not any(isinstance(value, COMPOUND) for value in values):
                self._known[device, values] = None if all(map(_is_alone, values)) else (*map(type, values),), found
        return found


def _is_alone(value: object) -> bool:
    """Whether no value of another type equals this one: so it is for dtypes, the most usual ones."""
    return value is None or type(value).__module__ == "torch"


def _prebuild(spec: Spec, target: Target) -> str:
    where = "--target cpu" if target.arch is None else f"--target cuda --arch {target.arch}"
    return f"`kjit build {spec.name} {where}` in its project builds it ahead of use"
