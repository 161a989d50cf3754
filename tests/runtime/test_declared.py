"""kjit.runtime.declared: one description of an op's modules, for loading and for building ahead of use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch
import tvm_ffi

import kjit
from kjit.errors import UsageError
from kjit.runtime import load
from kjit.runtime.declared import declared_in
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]


class TestProduct:
    def test_it_is_every_combination(self) -> None:
        assert kjit.product(a=[1, 2], b=["x", "y"]) == (
            {"a": 1, "b": "x"},
            {"a": 1, "b": "y"},
            {"a": 2, "b": "x"},
            {"a": 2, "b": "y"},
        )

    @pytest.mark.parametrize("value", ["fp32", 4, torch.float32])
    def test_one_value_where_a_list_belongs_is_refused(self, value: object) -> None:
        with pytest.raises(UsageError, match="product: a must be a list of values"):
            kjit.product(a=value)  # type: ignore[arg-type]

    def test_no_values_are_refused(self) -> None:
        with pytest.raises(UsageError, match="product: a has no values"):
            kjit.product(a=[])


class TestDeclaration:
    def test_it_lists_its_specs(self, tmp_path: Path) -> None:
        @kjit.module(variants=kjit.product(dtype=[torch.float32, torch.float16]))
        def _op(dtype: torch.dtype) -> Spec:
            return Spec("op", *kjit.make_cpp_args(dtype), cpp_files=[tmp_path / "op.cpp"])

        assert [spec.label for spec in _op.specs()] == ["op<fp32_t>", "op<fp16_t>"]
        assert declared_in(locals()) == [_op]

    def test_it_lists_a_variant_for_each_target_that_it_has_a_source_for(self, tmp_path: Path) -> None:
        @kjit.module(variants=kjit.product(both=[True, False]))
        def _op(both: bool) -> Spec:
            cuda = [tmp_path / "op.cuh"] if both else []
            return Spec("op", str(both), cpp_files=[tmp_path / "op.cpp"], cuda_files=cuda)

        targets = [Target.cuda("9.0a"), Target.cpu()]
        variants = _op.variants(targets)
        assert [variant.label for variant in variants] == ["op<True> cuda:sm_90a", "op<True> cpu", "op<False> cpu"]
        assert all(variant.spec.kinds == (variant.target.kind,) for variant in variants)

    @pytest.mark.parametrize("variants", [[()], [1], {"n": 1}, [None]])
    def test_what_is_no_dict_of_parameters_is_no_variant(self, variants: Any) -> None:
        with pytest.raises(UsageError, match=r"_op: .* is not a variant, which is a dict of the function's parameters"):

            @kjit.module(variants=variants)
            def _op(n: int) -> Spec:
                raise AssertionError(n)

    @pytest.mark.parametrize("variants", [[{"m": 1}], [{}], [{"n": 1, "m": 2}]])
    def test_a_variant_that_does_not_fit_the_function_is_refused(self, variants: list[dict[str, object]]) -> None:
        with pytest.raises(UsageError, match=r"_op: the variant .* does not fit the function"):

            @kjit.module(variants=variants)
            def _op(n: int) -> Spec:
                return Spec("op", str(n), cpp_files=["/x.cpp"])

    def test_a_parameter_called_device_is_refused(self) -> None:
        with pytest.raises(UsageError, match="cannot have a parameter 'device'"):

            @kjit.module(variants=kjit.product(device=["cpu"]))
            def _op(device: str) -> Spec:
                return Spec("op", device, cpp_files=["/x.cpp"])

    def test_a_function_that_returns_no_spec_is_an_error_that_names_it(self) -> None:
        @kjit.module()
        def _op() -> Any:
            return 5

        with pytest.raises(UsageError, match=r"_op must return a kjit\.Spec, and returned 5"):
            _op.specs()


class TestExports:
    class Exports(Protocol):
        def run(self, x: torch.Tensor, /) -> None: ...

    class More(Exports, Protocol):
        def count(self) -> int: ...

    @staticmethod
    def declare(exports: Any, *names: str, side: str = "cpp") -> kjit.DeclaredModule:
        @kjit.module(exports=exports)
        def _op() -> Spec:
            wrappers = [(name, f"ns::{name}") for name in names]
            return Spec("op", **{f"{side}_files": ["/x.cpp"], f"{side}_wrappers": wrappers})  # type: ignore[arg-type]

        return _op

    @pytest.mark.parametrize("side", ["cpp", "cuda"])
    def test_an_export_that_the_class_lacks_is_an_error(self, side: str) -> None:
        with pytest.raises(UsageError, match="its Spec exports 'extra', and the class given as `exports=` has no such"):
            self.declare(self.Exports, "run", "extra", side=side).specs()

    def test_a_method_that_is_not_exported_is_an_error_that_lists_the_exports(self) -> None:
        with pytest.raises(UsageError, match="has a method 'count', and its Spec exports no such function") as error:
            self.declare(self.More, "run").specs()
        assert error.value.hint == "the Spec exports: run"

    def test_a_loaded_module_has_the_exports_and_nothing_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Loaded:
            def get_function(self, name: str) -> str:
                return f"the function {name}"

        monkeypatch.setattr(load, "load_variant", lambda *_, **__: Loaded())
        module = self.declare(self.More, "run", "count")(device="cpu")
        assert vars(module) == {"run": "the function run", "count": "the function count"}
        assert repr(module) == "<kjit module with run, count>"


class TestCalls:
    @pytest.fixture
    def loaded(self, monkeypatch: pytest.MonkeyPatch) -> list[Variant]:
        """The loaded variants; nothing is compiled, and a module is an object with its variant."""
        variants: list[Variant] = []

        def load_variant(
            variant: Variant, *, hint: str | None = None, wrapper: str | None = None, declared: object = None
        ) -> Any:
            assert declared is None  # nothing is recorded
            assert hint is not None
            assert wrapper == __file__
            variants.append(variant)
            return [variant.label]

        monkeypatch.setattr(load, "load_variant", load_variant)
        monkeypatch.setattr(load, "runtime_target", lambda kind, _: Target(kind))
        return variants

    @pytest.fixture
    def op(self) -> kjit.DeclaredModule:
        @kjit.module(variants=kjit.product(x=[1]))
        def _op(x: object, n: int = 2) -> Spec:
            return Spec("op", repr(x), str(n), cpp_files=["/x/op.cpp"])

        return _op

    def test_positional_keyword_and_default_values_are_one_module(
        self, op: kjit.DeclaredModule, loaded: list[Variant]
    ) -> None:
        first = op(1, device="cpu")
        assert op(x=1, device="cpu") is first
        assert op(1, 2, device="cpu") is first
        assert op(1, n=2, device="cpu") is first
        assert op(1, n=2, device="cpu") is first
        assert len(loaded) == 1

    def test_a_tensor_says_where_it_is(self, op: kjit.DeclaredModule, loaded: list[Variant]) -> None:
        tensors = (torch.ones(3), torch.ones(1).int(), torch.nn.Parameter(torch.ones(1)), torch.ones(1).expand(3))
        modules = [op(1, device=tensor) for tensor in (*tensors, *tensors)]
        assert all(module is op(1, device="cpu") for module in modules)
        assert len(loaded) == 1

    def test_a_tensor_on_another_device_is_not_served(self, op: kjit.DeclaredModule, loaded: list[Variant]) -> None:
        with pytest.raises(UsageError, match="kjit does not build for device 'meta'"):
            op(1, device=torch.ones(1, device="meta"))
        assert loaded == []

    def test_a_dtype_that_is_none_is_not_taken_for_another_value(self, loaded: list[Variant]) -> None:
        @kjit.module(variants=kjit.product(dtype=[torch.float32]))
        def _op(dtype: torch.dtype) -> Spec:
            return Spec("op", repr(dtype), cpp_files=["/x/op.cpp"])

        values: list[Any] = [torch.float32, torch.int32, 1, True, 1.0]
        modules = [_op(value, device=device) for value in values for device in (torch.ones(1), "cpu")]
        again = [_op(value, device=device) for value in values for device in (torch.ones(1), "cpu")]
        assert list(map(id, modules)) == list(map(id, again))
        assert len(loaded) == len(values)

    @pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (True,)), (0, False)])
    def test_values_that_are_equal_and_not_the_same_are_two_modules(
        self, op: kjit.DeclaredModule, loaded: list[Variant], one: object, other: object
    ) -> None:
        assert op(one, device="cpu") is not op(other, device="cpu")
        assert op(one, device="cpu") is op(one, device="cpu")
        assert op(other, device="cpu") is op(other, device="cpu")
        assert len(loaded) == 2

    @pytest.mark.parametrize("evaluated", [False, True])
    @pytest.mark.parametrize(
        ("name", "value", "kind"), [("flag", 2, "bool"), ("flag", None, "bool"), ("n", 1.0, "int"), ("n", "1", "int")]
    )
    def test_a_value_that_is_not_of_its_parameters_type_is_a_type_error(
        self, loaded: list[Variant], name: str, value: object, kind: str, evaluated: bool
    ) -> None:
        def _op(n: int, flag: bool) -> Spec:
            return Spec("op", str(n), str(flag), cpp_files=["/x/op.cpp"])

        if evaluated:  # as without `from __future__ import annotations`
            _op.__annotations__.update(n=int, flag=bool)
        op = kjit.module(variants=kjit.product(n=[1], flag=[True]))(_op)
        values: dict[str, Any] = {"n": 1, "flag": True}
        op(**values, device="cpu")
        for _ in range(2):
            with pytest.raises(TypeError, match=rf"_op: {name} must be of type {kind}, not {value!r}"):
                op(**(values | {name: value}), device="cpu")
        assert len(loaded) == 1

    def test_whole_numbers_of_numpy_and_bools_are_whole_numbers(self, loaded: list[Variant]) -> None:
        @kjit.module(variants=kjit.product(n=[1]))
        def _op(n: int) -> Spec:
            return Spec("op", *kjit.make_cpp_args(n), cpp_files=["/x/op.cpp"])

        for value in (3, np.int64(4), True):
            _op(value, device="cpu")
        assert [variant.label for variant in loaded] == ["op<3> cpu", "op<4> cpu", "op<1> cpu"]


@pytest.mark.usefixtures("cache_dir")
def test_an_export_may_be_called_as_an_attribute_that_every_module_has(tmp_path: Path) -> None:
    names = [name for name in dir(tvm_ffi.Module) if not name.startswith("_")]
    assert "kind" in names
    source = tmp_path / "op.cpp"
    functions = "".join(f"inline int {name}() {{ return {number}; }}\n" for number, name in enumerate(names))
    source.write_text(f"#include <kjit/ffi.h>\nnamespace mine {{\n{functions}}}\n")

    @kjit.module(exports=type("Exports", (), dict.fromkeys(names)))
    def _op() -> Spec:
        return Spec("op", cpp_files=[source], cpp_wrappers=[(name, f"mine::{name}") for name in names])

    module = _op(device="cpu")
    assert [getattr(module, name)() for name in names] == list(range(len(names)))
