"""Declared ops: one description of a wrapper's modules, for loading and for `kjit build`.

A declared op is a function from values to a `Spec`, with the values to build ahead of use. A call loads the module for
the given values; `kjit build` builds those for the declared values. Both use the same function, so they cannot
disagree. There is no registry: a build imports the wrappers of a project and inspects their variables.

A call with known values is part of every launch. So a declared op is a plain function, the only kind of object that
Python calls without packing arguments, generated for the declared parameters. It looks up the module by device, then by
values: a tuple of both would take longer to make and to hash. The device is an index (`get_device`), as `tensor.device`
would be a new object to hash and compare. Types are part of the key only if values of different types may be equal
(such as `1`, `True` and `1.0`).

The trade-off: the index is the same for the CPU and for tensors without data, and for GPUs of CUDA and of other makers.
Such a tensor is rejected by the module, not here.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import numbers
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

import kjit
from kjit import env
from kjit.runtime import load
from kjit.runtime.stand_in import torch_stub
from kjit.spec import Spec, Target, Variant

if TYPE_CHECKING:
    import torch
    import tvm_ffi
    from typing_extensions import TypeIs

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class DeclaredModule(Protocol[E_co]):
    """A declared op: a function of values and a device that returns the loaded module, typed as `E_co`.

        _scale(x.dtype, device=x)

    `device` is a tensor (the module runs on its device), a `torch.device`, a string or None; None is allowed if the op
    has a source for only one kind of device. A module that was never built is compiled. Whether the CPU means the
    simulator is decided by `KJIT_SIM` at the first call for given values.

    Raises (the call):
        UsageError: the op has no source for that device.
        TypeError: a parameter is annotated `int` or `bool`, and its value is something else.
        KjitError: as for `load_jit`.
    """

    __name__: str

    def __call__(self, *values: Any, device: torch.Tensor | torch.device | str | None = None, **named: Any) -> E_co: ...

    def spec(self, *values: Any, **named: Any) -> Spec:
        """The spec for these values."""

    def specs(self) -> list[Spec]:
        """The specs to build ahead of use, for all targets together."""

    def variants(self, targets: Iterable[Target]) -> list[Variant]:
        """The variants to build ahead of use, for each of `targets` that the op has a source for."""

    def cache_clear(self) -> None:
        """Forget the loaded modules: the next call checks the sources again."""


def product(**values: Iterable[object]) -> tuple[Mapping[str, object], ...]:
    """All combinations of the values of each name: `product(dtype=[a, b], n=[1, 2])` gives four mappings.

    Several products are joined with `+`.

    Raises:
        UsageError: a name has no values, or a single value instead of a list.
    """
    lists: dict[str, list[object]] = {}
    for name, given in values.items():
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise kjit.UsageError(
                f"product: {name} must be a list of values, not {given!r}.", hint=f"{name}=[{given!r}]"
            )
        lists[name] = list(given)
        if not lists[name]:
            raise kjit.UsageError(f"product: {name} has no values.")
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
    """Declare an op: the decorated function returns the `Spec` for given values.

        class Exports(Protocol):
            def scale(self, x: torch.Tensor, out: torch.Tensor, /) -> None: ...

        @kjit.module(exports=Exports, variants=kjit.product(dtype=[torch.float32, torch.float16]))
        def _scale(dtype):
            args = kjit.make_cpp_args(dtype)
            return kjit.Spec("scale", *args, cuda_files=[CSRC / "scale.cuh"],
                             cuda_wrappers=[("scale", f"Scale<{args}>::run")])

        _scale(x.dtype, device=x).scale(x, out)

    Args:
        exports: a `Protocol` with a method for each export, the type of the loaded modules for type checkers and
            editors. kjit compares its names with those of each `Spec`. A loaded module has only these exports. By
            default modules are of type `tvm_ffi.Module`, without types of exports.
        variants: the values that `kjit build` builds it for, each a mapping from the function's parameters; usually a
            `product(...)`. By default the function takes no values and there is one variant. A call with other values
            works too: that module is compiled at its first use.

    Raises:
        UsageError: a variant does not fit the function's parameters.
    """
    given = tuple(variants)
    # `exports` is a class, but cannot be annotated as `type[E]`: mypy rejects a Protocol for that.
    names = None if exports is None else _method_names(cast("type", exports))

    def declare(fn: Callable[..., Spec]) -> DeclaredModule[Any]:
        return _Declaration(fn, given, names).function()

    return declare


def declared_in(names: Mapping[str, object]) -> list[DeclaredModule[Any]]:
    """The declared ops among the variables of a module."""
    return [value for value in names.values() if is_declared(value)]


def is_declared(value: object) -> TypeIs[DeclaredModule[Any]]:
    """Whether a value is a declared op."""
    return isinstance(value, FunctionType) and _MARK in value.__dict__


def values_of(declared: DeclaredModule[Any]) -> list[dict[str, Any]]:
    """The values that a declared op is built for ahead of use."""
    return [dict(values) for values in cast("Any", declared).__dict__[_MARK].values]


def wrapper_of(declared: DeclaredModule[Any]) -> str | None:
    """The path of the file that declares an op; None in a notebook."""
    return cast("Any", declared).__dict__[_MARK].wrapper  # type: ignore[no-any-return]


def variants_of(spec: Spec, targets: Iterable[Target]) -> list[Variant]:
    """`spec` for each of `targets` that it has a source for."""
    return [Variant(spec.only(target.side), target) for target in targets if target.side in spec.kinds]


_MARK = "_kjit_declaration"

COMPOUND = (float, tuple, frozenset)
"""Types with distinct values that are equal and of one type."""


def typed(value: object) -> Hashable:
    """A key that is equal only for identical values, unlike `==`, for which True, 1 and 1.0 are equal."""
    kind = type(value)
    if kind is float:
        # Distinguishes -0.0 from 0.0, and is equal for equal nans.
        return kind, cast(float, value).hex()
    if kind is tuple:
        return kind, tuple(map(typed, cast("tuple[object, ...]", value)))
    if kind is frozenset:
        return kind, frozenset(map(typed, cast("frozenset[object]", value)))
    return kind, value


class _Exports(load.Shared):
    """The exports of a loaded module as attributes, which Python reads faster than those of a `tvm_ffi.Module`."""

    def __init__(self, module: tvm_ffi.Module, names: Iterable[str]) -> None:
        for name in names:
            # Not by attribute: an export may have the name of an attribute that every module has, such as `kind`.
            setattr(self, name, module.get_function(name))

    def __repr__(self) -> str:
        return f"<kjit module with {', '.join(vars(self))}>"


class _Declaration:
    """The state of a declared op: its function, and the loaded modules by values."""

    def __init__(
        self,
        fn: Callable[..., Spec],
        variants: tuple[Mapping[str, object], ...],
        exports: frozenset[str] | None,
    ) -> None:
        self._fn = fn
        self._exports = exports
        self._signature = inspect.signature(fn)
        self.values = variants
        # By two kinds of key: the values as written by callers, and their canonical form.
        self._modules: dict[object, Any] = {}
        # Used by the generated function: by the device index of tensors, or another device, then by values.
        self._known: dict[object, dict[object, Any]] = {}
        load.caches.add(self)
        for values in variants:
            if not isinstance(values, Mapping):
                raise kjit.UsageError(
                    f"{self.name}: {values!r} is not a variant, which is a dict of the function's parameters.",
                    hint="variants=kjit.product(...) makes them, and [{}] is one without parameters",
                )
            try:
                self._signature.bind(**values)
            except TypeError as error:
                raise kjit.UsageError(
                    f"{self.name}: the variant {dict(values)} does not fit the function: {error}."
                ) from None

    @property
    def name(self) -> str:
        """The function's name."""
        return self._fn.__name__

    @property
    def wrapper(self) -> str | None:
        """The path of the file that the function is in."""
        return self._fn.__globals__.get("__file__")

    def function(self) -> DeclaredModule[Any]:
        """The generated function, called by wrappers."""
        call = _generate_call(self._fn, self._known, self._load)
        call.__dict__.update(
            {
                _MARK: self,
                "spec": self.spec,
                "specs": self.specs,
                "variants": self.variants,
                "cache_clear": self.cache_clear,
            }
        )
        return cast("DeclaredModule[Any]", call)

    def spec(self, *values: Any, **named: Any) -> Spec:
        """The spec for these values."""
        spec = self._fn(*values, **named)
        if not isinstance(spec, Spec):
            raise kjit.UsageError(
                f"{self.name} must return a kjit.Spec, and returned {spec!r}.", hint='return kjit.Spec("name", ...)'
            )
        for wrappers in (spec.cuda_wrappers, spec.cpp_wrappers):
            self._check_exports({name for name, _ in wrappers if not name.startswith("_")})
        return spec

    def specs(self) -> list[Spec]:
        """The specs to build ahead of use, for all targets together."""
        return list(dict.fromkeys(self.spec(**values) for values in self.values))

    def variants(self, targets: Iterable[Target]) -> list[Variant]:
        """The variants to build ahead of use, for each of `targets` that the op has a source for."""
        wanted = list(targets)
        return [variant for spec in self.specs() for variant in variants_of(spec, wanted)]

    def cache_clear(self) -> None:
        self._modules.clear()
        self._known.clear()

    def _checked(self, values: Mapping[str, object]) -> dict[str, object]:
        """The canonical values: True is 1 if the parameter is annotated with int.

        Raises:
            TypeError: a value does not have the annotated type; the compiler's error would not name the parameter.
        """
        checked = dict(values)
        for name, value in values.items():
            annotation = self._signature.parameters[name].annotation
            for kind, accepted in ((bool, bool), (int, numbers.Integral)):
                if annotation in (kind, kind.__name__) and not isinstance(value, accepted):
                    raise TypeError(f"{self.name}: {name} must be of type {kind.__name__}, not {value!r}")
            if annotation in (int, "int") and isinstance(value, bool):
                checked[name] = int(value)
        return checked

    def _check_exports(self, exported: set[str]) -> None:
        if self._exports is None or not exported:
            return  # a source without wrappers has its own exports, which are unknown here
        for name in sorted(exported ^ self._exports):
            raise kjit.UsageError(
                f"{self.name}: its Spec exports '{name}', and the class given as `exports=` has no such method."
                if name in exported
                else f"{self.name}: the class given as `exports=` has a method '{name}', and its Spec exports no such"
                " function.",
                hint=f"the Spec exports: {', '.join(sorted(exported))}",
            )

    def _load(self, device: torch.Tensor | torch.device | str | None, *values: Any) -> Any:
        """The module for the values of all parameters, in order; used by calls with unknown values."""
        where = device.device if _is_tensor(device) else device
        as_written = (where, *map(typed, values))
        found = self._modules.get(as_written)
        if found is None:
            canonical = (None, str(where), *map(typed, values))
            found = self._modules.get(canonical)
            if found is None:
                # Two threads may get here at once: then one compiles, the other waits, and both get the same module.
                named = self._checked(dict(zip(self._signature.parameters, values, strict=True)))
                spec = self.spec(**named)
                target = load.target_of(spec, where)
                spec = spec.only(target.side)
                recorded = None
                if env.variants_file() is not None:
                    from kjit.runtime.used import Declared

                    recorded = Declared(self._fn.__module__, self.name, named)
                found = load.load_variant(
                    Variant(spec, target),
                    hint=self._how_to_prebuild(target),
                    wrapper=self.wrapper,
                    declared=recorded,
                )
                if self._exports is not None and (exported := [*spec.cuda_wrappers, *spec.cpp_wrappers]):
                    found = _Exports(found, [name for name, _ in exported])
                self._modules[canonical] = found
            self._modules[as_written] = found
        self._remember(found, device, values)
        return found

    def _remember(self, module: Any, device: Any, values: tuple[Any, ...]) -> None:
        """Make a module known to the generated function, unless other values have the same key."""
        key: list[object] = []
        for parameter, value in zip(self._signature.parameters.values(), values, strict=True):
            if isinstance(value, COMPOUND) or (_is_dtype(parameter) and not _is_alone(value)):
                return
            key += [value] if _is_dtype(parameter) else [value, type(value)]
        if _is_tensor(device):
            device = device.get_device()
        self._known.setdefault(device, {})[key[0] if len(key) == 1 else tuple(key)] = module

    def _how_to_prebuild(self, target: Target) -> str:
        op = self._fn.__module__.rpartition(".")[2]  # the wrapper has the name of its op
        where = f"--target {target.kind}" if target.arch is None else f"--target cuda --arch {target.arch}"
        return f"`kjit build {op} {where}` in its project builds it ahead of use"


def _method_names(exports: type) -> frozenset[str]:
    """The public methods of a class and of its bases."""
    if not isinstance(exports, type):
        raise kjit.UsageError(f"exports= must be a class with a method for each export, not {exports!r}.")
    own = [each for each in exports.__mro__ if each.__module__ not in ("builtins", "typing", "typing_extensions")]
    return frozenset(name for each in own for name in vars(each) if not name.startswith("_"))


def _generate_call(
    fn: Callable[..., Spec],
    known: Mapping[object, object],
    load_new: Callable[..., object],
) -> FunctionType:
    """A function with the parameters of `fn` and `device`: it returns the known module, else that of `load_new`."""
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise kjit.UsageError(f"{fn.__name__}: the parameter '{parameter}' of a declared op is not a plain one.")
        if parameter.name == "device":
            raise kjit.UsageError(
                f"{fn.__name__}: a declared op cannot have a parameter 'device'.",
                hint="device= chooses between the CUDA side and the C++ side of the Spec that the function returns",
            )
    plain = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    keys = "".join(f"{p.name}, " if _is_dtype(p) else f"{p.name}, {p.name}.__class__, " for p in parameters)
    key = parameters[0].name if len(parameters) == 1 and _is_dtype(parameters[0]) else f"({keys})"
    # Without torch there are no tensors yet; later ones are handled by `load`.
    torch = None if torch_stub() is not None else sys.modules.get("torch")
    # The function's globals, with a prefix that avoids clashes with names of the op.
    space: dict[str, Any] = {
        "_kjit_known": known,
        "_kjit_load": load_new,
        "_kjit_Tensor": getattr(torch, "Tensor", None),
        "_kjit_Parameter": getattr(getattr(torch, "nn", None), "Parameter", None),
    }
    source = f"""
def call({", ".join([*plain, "*", *named, "device"])}):
    try:
        if device.__class__ is _kjit_Tensor or device.__class__ is _kjit_Parameter:
            return _kjit_known[device.get_device()][{key}]
        return _kjit_known[device][{key}]
    except (KeyError, TypeError):  # not known, or not to be hashed
        pass
    return _kjit_load({", ".join(["device", *(p.name for p in parameters)])})
"""
    exec(compile(source, f"<kjit.module {fn.__name__}>", "exec"), space)
    call = cast("FunctionType", space.pop("call"))
    functools.update_wrapper(call, fn)
    call.__defaults__ = tuple(p.default for p in parameters if p.name in plain and p.default is not p.empty)
    call.__kwdefaults__ = {p.name: p.default for p in parameters if p.name in named and p.default is not p.empty}
    call.__kwdefaults__["device"] = None
    return call


def _is_dtype(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated as a dtype, which never equals a value of another type."""
    annotation = parameter.annotation
    return annotation == "torch.dtype" or getattr(annotation, "__qualname__", "") == "dtype"


def _is_alone(value: object) -> bool:
    """Whether no value of another type equals this one, as for dtypes."""
    return value is None or type(value).__module__ == "torch"


def _is_tensor(value: object) -> TypeIs[torch.Tensor]:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
