"""The checks that every op has to pass, as a class of tests to be completed by the test file of an op."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch

from kjit import env
from kjit.errors import KjitError, ToolchainError
from kjit.runtime.op_call import each_tensor
from kjit.runtime.torch_op import has_gradient
from kjit.spec import Side, Spec, Target, Variant
from kjit.testing import Kernels, UnwrittenError, device_of, device_parameters, gpu_memory
from kjit.testing.comparison import Comparison, arguments_of, is_fp8, registered
from kjit.testing.tensors import (
    Inputs,
    all_alike,
    change_tensor,
    get_tensor,
    guarded,
    map_tensors,
    shifted,
    with_gaps,
)

if TYPE_CHECKING:
    from kjit.runtime.declared import DeclaredModule
    from kjit.runtime.torch_op import TorchOp

_END = 9
"""The length of the compared end of a huge tensor."""

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")


def _for_each(names: Callable[[type[OpTest]], list[str]]) -> Callable[[Any], Any]:
    """Run a test of `OpTest` for each of these tensors: its parameter `name`; `xs[-1]` is the last of a list."""

    def mark(test: Any) -> Any:
        test.names = names
        return test

    return mark


class OpTest(Comparison):
    """The tests of an op: its results against PyTorch's, bad arguments, `torch.compile`, streams and CUDA graphs.

        class TestScale(
            kjit.testing.OpTest, op=scale, module=_scale, reference=reference, inputs=make_inputs, dtypes=DTYPES
        ):
            shape = (1001,)
            shapes = (*kjit.testing.boundary_shapes((None,)), (3, 5, 7))

    Tests that do not apply to the op (such as those of optional tensors) are removed. To disable a test, set it to None
    in the class; further tests are methods with the same fixtures: `device`, `dtypes` (a tuple, one for each dtype
    variable) and `shape`.

    Args:
        op: an op of `kjit.torch_op`.
        module: the declared module of its kernels, which determines the devices.
        reference: the op in plain PyTorch; it takes the parameters of `op` without outputs, and returns the outputs,
            then the inputs changed in place; a tuple if there are several.
        inputs: called as `inputs(shape, *dtypes, device)`; returns the arguments of a call, by name, without outputs.
        dtypes: the values of each dtype parameter of `inputs`.

    Attributes:
        shape: the shape for tests in which it does not matter.
        shapes: the shapes for comparisons of results.
        aligned_shape: a shape for which each tensor is a whole number of vectors; None: `shape`.
        values: parameters that are no tensors, each with a further value for which results are compared.
        strided: tensors that may have gaps between their rows, and, unless written to, rows that share memory.
        in_place: an input, and the output that may be the same tensor.
        any_rank: tensors for which an additional dimension is not an error.
        absent_as_zeros: whether an absent tensor counts as zeros; False: `reference` decides.
        tables, index: for an op that reads or writes rows by an index: the tensors with the rows, and the index.
        huge_shape: a shape with more than 2**31 elements; None: no such test.
        huge_axis: the large dimension, of inputs and results.
        huge_inputs: the inputs with the length of the results; None: all.
        kernels: expectations about the machine code of each variant, if there is nvcc, with or without a GPU; None:
            none.
    """

    module: ClassVar[DeclaredModule[Any]]
    inputs: ClassVar[Callable[..., Inputs]]
    variants: ClassVar[list[tuple[torch.dtype, ...]]]
    """All combinations of dtypes."""

    shape: ClassVar[tuple[int, ...]]
    shapes: ClassVar[Sequence[tuple[int, ...]]]
    aligned_shape: ClassVar[tuple[int, ...] | None] = None
    strided: ClassVar[Sequence[str]] = ()
    in_place: ClassVar[tuple[str, str] | None] = None
    any_rank: ClassVar[Sequence[str]] = ()
    absent_as_zeros: ClassVar[bool] = True
    huge_shape: ClassVar[tuple[int, ...] | None] = None
    huge_axis: ClassVar[int] = 0
    huge_inputs: ClassVar[Sequence[str] | None] = None
    kernels: ClassVar[Kernels | None] = None
    values: ClassVar[Sequence[tuple[str, Any]]] = ()

    words: ClassVar[list[str]]

    def __init_subclass__(
        cls,
        *,
        op: TorchOp[..., Any] | None = None,
        module: DeclaredModule[Any] | None = None,
        reference: Callable[..., Any] | None = None,
        inputs: Callable[..., Inputs] | None = None,
        dtypes: Sequence[torch.dtype] = (),
        **others: Any,
    ) -> None:
        super().__init_subclass__(**others)
        if op is None:
            return  # a class between this one and that of an op
        if module is None or reference is None or inputs is None:
            raise TypeError(f"class {cls.__name__}: give op=, module=, reference= and inputs= together")
        # Functions, which would be methods otherwise.
        cls.module, cls.inputs = cast("Any", staticmethod(module)), staticmethod(inputs)
        variables = len(inspect.signature(inputs).parameters) - 2  # besides shape and device
        cls.variants = list(itertools.product(dtypes, repeat=variables))
        scalars = cls._compare(op, reference)
        # Unlike other text, each choice is another variant.
        variables_of_module = inspect.signature(module).parameters
        cls.words = [name for name, kind in scalars.items() if kind == "str" and name in variables_of_module]
        cls._leave_out()

    @classmethod
    def _leave_out(cls) -> None:
        """Remove tests that do not apply to the op."""
        kinds = cls._kinds()
        applies = {
            "test_takes_one_tensor_alone_that_is_not_aligned": len(cls._tensors()) > 2,
            "test_takes_rows_with_gaps_between_them": cls.strided,
            "test_takes_rows_that_share_memory": set(cls.strided) - set(cls.mutated),
            "test_refuses_to_write_to_rows_that_share_memory": set(cls.strided) & set(cls.mutated),
            "test_refuses_a_list_without_tensors": cls.lists,
            "test_agrees_with_pytorch_for_other_values": cls.values,
            "test_gradients_agree_with_pytorch": has_gradient(cls.op),
            "test_refuses_to_lose_a_gradient": not has_gradient(cls.op),
            "test_writes_to_the_output_that_it_is_given": cls.outputs,
            "test_the_output_may_be_an_input": cls.in_place,
            "test_what_is_absent_counts_as_zeros": cls.optional and cls.absent_as_zeros,
            "test_agrees_with_pytorch_where_a_tensor_is_absent": cls.optional and not cls.absent_as_zeros,
            "test_agrees_with_pytorch_where_a_number_is_absent": cls.absent_numbers,
            "test_refuses_a_choice_that_there_is_not": cls.words,
            "test_the_reference_is_written": _may_raise(cls.reference, UnwrittenError),
            "test_an_index_that_is_no_row_of_the_table_reads_zeros": cls.index and not cls._scatters(),
            "test_an_index_that_is_no_row_of_the_table_is_skipped": cls.index and cls._scatters(),
            "test_refuses_a_tensor_of_another_shape": set(cls._tensors()) - set(cls.any_rank),
            "test_refuses_tensors_on_the_cpu": "cpu" not in kinds,
            "test_refuses_tensors_on_a_gpu": "cuda" not in kinds,
            "test_refuses_tensors_on_different_devices": "cuda" in kinds and (len(cls._tensors()) > 1 or cls.lists),
            "test_can_be_captured_in_a_cuda_graph": "cuda" in kinds,
            "test_runs_on_the_current_stream": "cuda" in kinds,
            "test_runs_on_a_gpu_that_is_not_the_current_one": "cuda" in kinds,
            "test_indexes_past_two_to_the_31": "cuda" in kinds and cls.huge_shape,
            "test_compiles_without_a_gpu": "cuda" in kinds,
        }
        for name, concerns_it in applies.items():
            if not concerns_it and name not in cls.__dict__:
                setattr(cls, name, None)

    @classmethod
    def _kinds(cls) -> tuple[Side, ...]:
        return cls.module.specs()[0].kinds

    @classmethod
    def _tensors(cls) -> list[str]:
        """Each tensor of a call, and of each list the last."""
        return [*(f"{name}[-1]" if name in cls.lists else name for name in cls.given), *cls.outputs]

    # How a test calls the op.

    @classmethod
    def make(cls, device: str, *, shape: tuple[int, ...] | None = None, dtypes: Sequence[torch.dtype] = ()) -> Inputs:
        """The arguments of a call, by default with `shape` and the first dtypes."""
        return cls.inputs(cls.shape if shape is None else shape, *(dtypes or cls.variants[0]), device)

    @classmethod
    def with_outputs(cls, inputs: Inputs) -> Inputs:
        """The same arguments, and tensors for the op to write to."""
        if not cls.outputs:
            return dict(inputs)
        copies = {name: map_tensors(torch.clone, value) for name, value in inputs.items()}
        outputs = zip(cls.outputs, cls.run(copies), strict=False)
        return inputs | {name: torch.empty_like(output) for name, output in outputs}

    @classmethod
    def bytes_moved(cls, shape: tuple[int, ...], *dtypes: torch.dtype) -> int:
        """The bytes that a call with arguments for `shape` reads and writes: of tables the rows that the index chooses,
        of what is changed in place both."""
        inputs = cls.inputs(shape, *dtypes, "meta")  # nothing is allocated
        written = cls._results(cls.op.op(**inputs) if cls.outputs else (), inputs)
        tables = [inputs[name] for name in cls.tables]
        rows = inputs[cls.index].numel() if cls.index else 0
        read = [tensor for name, tensor in cls._given(inputs) if name not in cls.tables]
        others = [tensor for tensor in written if not any(tensor is table for table in tables)]
        in_tables: int = sum(rows * table[0].numel() * table.itemsize for table in tables)
        return in_tables + sum(tensor.numel() * tensor.itemsize for tensor in (*read, *others))

    # Which tests there are.

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give the tests of this class their parameters."""
        cls = type(self)
        if "shape" in metafunc.fixturenames:
            metafunc.parametrize("shape", cls.shapes, ids=str)
        if "dtypes" in metafunc.fixturenames:
            ids = ["-".join(map(str, dtypes)) or "fixed" for dtypes in cls.variants]
            metafunc.parametrize("dtypes", cls.variants, ids=ids)
        if "name" in metafunc.fixturenames:
            names: Callable[[type[OpTest]], list[str]] = metafunc.function.__dict__["names"]
            metafunc.parametrize("name", names(cls))
        if "value" in metafunc.fixturenames:
            metafunc.parametrize("value", cls.values, ids=[f"{name}={value}" for name, value in cls.values])
        if "spec" in metafunc.fixturenames:
            metafunc.parametrize("spec", cls.module.specs(), ids=lambda spec: spec.label)
        if "device" in metafunc.fixturenames:
            metafunc.parametrize("device", device_parameters(*cls._kinds()), indirect=True)

    @pytest.fixture
    def device(self, request: pytest.FixtureRequest) -> Iterator[str]:
        """The device to run on; without a GPU, CUDA kernels run in the simulator, on tensors of the CPU."""
        yield from device_of(request)

    @pytest.fixture
    def require_gpu_memory(self) -> Iterator[Callable[[int], None]]:
        """A function that skips the test if fewer bytes are free."""
        yield from gpu_memory()

    # Results.

    def test_the_reference_is_written(self) -> None:
        try:
            self.reference(**self.make("cpu"))
        except UnwrittenError as error:
            code = self.reference.__code__
            pytest.fail(f"{code.co_filename}:{code.co_firstlineno}: {error}", pytrace=False)

    def test_agrees_with_pytorch(self, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...], device: str) -> None:
        inputs = self.make(device, shape=shape, dtypes=dtypes)
        expected = self.expect(inputs)
        with _filled_memory():
            actual = self.run(inputs)
        self.check(actual, expected, inputs)

    def test_agrees_with_pytorch_for_other_values(self, value: tuple[str, Any], device: str) -> None:
        inputs = self.make(device) | dict([value])
        expected = self.expect(inputs)
        self.check(self.run(inputs), expected, inputs)

    def test_writes_nothing_beside_its_tensors(self, device: str) -> None:
        inputs = self.with_outputs(self.make(device))
        guards: dict[str, Callable[[], bool]] = {}

        def guard(tensor: torch.Tensor, name: str) -> torch.Tensor:
            copy, guards[name] = guarded(tensor)
            return copy

        for name in self._tensors():
            if name.partition("[")[0] in (*self.outputs, *self.mutated):
                change_tensor(inputs, name, functools.partial(guard, name=name))
        self.run(inputs)
        written = [name for name, is_intact in guards.items() if not is_intact()]
        assert not written, f"the op writes to memory before or after {' and '.join(written)}"

    def test_gradients_agree_with_pytorch(self, dtypes: tuple[torch.dtype, ...], device: str) -> None:
        inputs = self.make(device, dtypes=dtypes)
        leaves = {name: tensor for name, tensor in self._given(inputs) if tensor.is_floating_point()}
        for tensor in leaves.values():
            tensor.requires_grad_()
        expected = [result for result in self.expect(inputs) if result.is_floating_point()]
        results = [result for result in self.run(inputs) if result.is_floating_point()]
        weights = [torch.randn_like(result) for result in results]
        sources = dict(self._given(inputs)) | {str(at): weight for at, weight in enumerate(weights)}
        wide = [weight.to(result.dtype) for weight, result in zip(weights, expected, strict=True)]
        tensors = list(leaves.values())
        right = torch.autograd.grad(expected, tensors, wide, allow_unused=True)
        for (name, leaf), gradient, wanted in zip(
            leaves.items(), torch.autograd.grad(results, tensors, weights, allow_unused=True), right, strict=True
        ):
            zeros = torch.zeros_like(leaf)
            limits = self.limits(leaf, sources)
            # What is subtracted has been rounded, too.
            limits["atol"] = max(limits["atol"], limits["rtol"])
            torch.testing.assert_close(
                zeros if gradient is None else gradient,
                zeros if wanted is None else wanted,
                **limits,
                msg=functools.partial("the gradient of '{}': {}".format, name),
            )

    @pytest.mark.parametrize("offsets", [(1,), (3,), (0, 1), (1, 0)], ids=str)
    def test_takes_tensors_that_are_not_aligned(
        self, offsets: tuple[int, ...], dtypes: tuple[torch.dtype, ...], device: str
    ) -> None:
        inputs = self.make(device, dtypes=dtypes)
        expected = self.expect(inputs)
        inputs = self.with_outputs(inputs)
        for name, offset in zip(self._tensors(), itertools.cycle(offsets), strict=False):
            change_tensor(inputs, name, functools.partial(shifted, offset=offset))
        self.check(self.run(inputs), expected, inputs)

    @_for_each(lambda cls: cls._tensors())
    def test_takes_one_tensor_alone_that_is_not_aligned(self, name: str, device: str) -> None:
        inputs = self.make(device, shape=self.aligned_shape)
        expected = self.expect(inputs)
        inputs = self.with_outputs(inputs)
        change_tensor(inputs, name, functools.partial(shifted, offset=1))
        self.check(self.run(inputs), expected, inputs)

    @_for_each(lambda cls: list(cls.strided))
    def test_takes_rows_with_gaps_between_them(self, name: str, device: str) -> None:
        inputs = self.make(device)
        expected = self.expect(inputs)
        inputs[name] = with_gaps(inputs[name])
        self.check(self.run(inputs), expected, inputs)

    @_for_each(lambda cls: [name for name in cls.strided if name not in cls.mutated])
    def test_takes_rows_that_share_memory(self, name: str, device: str) -> None:
        inputs = self.make(device)
        inputs[name] = all_alike(inputs[name])
        expected = self.expect(inputs)
        self.check(self.run(inputs), expected, inputs)

    def test_writes_to_the_output_that_it_is_given(self, dtypes: tuple[torch.dtype, ...], device: str) -> None:
        inputs = self.with_outputs(self.make(device, dtypes=dtypes))
        for name, output in zip(self.outputs, self.run(inputs), strict=False):
            assert output is inputs[name], f"the op returned another tensor than the '{name}' that it was given"

    def test_the_output_may_be_an_input(self, dtypes: tuple[torch.dtype, ...], device: str) -> None:
        assert self.in_place is not None
        source, output = self.in_place
        inputs = self.make(device, dtypes=dtypes)
        expected = self.expect(inputs)
        inputs[output] = inputs[source]
        self.check(self.run(inputs), expected, inputs)

    @_for_each(lambda cls: cls.optional)
    def test_what_is_absent_counts_as_zeros(self, name: str, device: str) -> None:
        inputs = self.make(device)
        inputs[name] = torch.zeros_like(inputs[name])
        expected = self.expect(inputs)
        inputs[name] = None
        self.check(self.run(inputs), expected, inputs)

    @_for_each(lambda cls: cls.optional)
    def test_agrees_with_pytorch_where_a_tensor_is_absent(self, name: str, device: str) -> None:
        inputs = self.make(device) | {name: None}
        expected = self.expect(inputs)
        self.check(self.run(inputs), expected, inputs)

    @classmethod
    def _with_a_wrong_index(cls, device: str) -> tuple[Inputs, Inputs, int]:
        """Arguments whose index names rows that the tables do not have, the same with the number after the last row in
        their place, and how many rows there are."""
        assert cls.index is not None
        inputs = cls.make(device)
        rows = len(inputs[cls.tables[0]])
        index = inputs[cls.index]
        wrong = torch.tensor([-1, rows, 2**31 - 1, -(2**31)]).to(index)
        index.flatten()[:4] = wrong[: index.numel()]
        return inputs, inputs | {cls.index: torch.where((index >= 0) & (index < rows), index, rows)}, rows

    def test_an_index_that_is_no_row_of_the_table_reads_zeros(self, device: str) -> None:
        inputs, known, _ = self._with_a_wrong_index(device)
        for name in self.tables:  # with a row of zeros at the end
            known[name] = torch.cat([inputs[name], torch.zeros_like(inputs[name][:1])])
        expected = self.expect(known)
        self.check(self.run(inputs), expected, inputs)

    def test_an_index_that_is_no_row_of_the_table_is_skipped(self, device: str) -> None:
        inputs, known, rows = self._with_a_wrong_index(device)
        for name in self.tables:  # with a row at the end that takes what is skipped
            known[name] = torch.cat([inputs[name], inputs[name][:1]])
        expected = tuple(table[:rows] for table in self.expect(known))
        self.check(self.run(inputs), expected, inputs)

    @_for_each(lambda cls: cls.absent_numbers)
    def test_agrees_with_pytorch_where_a_number_is_absent(self, name: str, device: str) -> None:
        inputs = self.make(device) | {name: None}
        expected = self.expect(inputs)
        self.check(self.run(inputs), expected, inputs)

    # What is refused.

    @_for_each(lambda cls: cls.words)
    def test_refuses_a_choice_that_there_is_not(self, name: str, device: str) -> None:
        with pytest.raises(ValueError, match=f"{name} is one of"):
            self.run(self.make(device) | {name: "no such choice"})

    @_for_each(lambda cls: cls._tensors())
    def test_refuses_a_tensor_that_is_not_contiguous(self, name: str, device: str) -> None:
        inputs = self.with_outputs(self.make(device))
        if name in self.strided and get_tensor(inputs, name).dim() == 1:
            pytest.skip(f"'{name}' has one dimension, whose stride may be any")
        if get_tensor(inputs, name).numel() < 2:
            pytest.skip(f"'{name}' has no two elements with a gap between them")
        change_tensor(inputs, name, lambda tensor: torch.stack([tensor] * 2, dim=-1)[..., 0])
        why = r"Size mismatch for stride" if name in self.strided else "not contiguous"
        message = rf"Tensor match failed for {name.partition('[')[0]}(.|\n)*{why}"
        with pytest.raises(RuntimeError, match=message):
            self.run(inputs)

    @_for_each(lambda cls: [name for name in cls._tensors() if name not in cls.any_rank])
    def test_refuses_a_tensor_of_another_shape(self, name: str, device: str) -> None:
        inputs = self.with_outputs(self.make(device))
        change_tensor(inputs, name, lambda tensor: tensor[None])
        with pytest.raises(RuntimeError, match=r"Tensor match failed(.|\n)* mismatch"):
            self.run(inputs)

    @_for_each(lambda cls: cls._tensors())
    def test_refuses_a_tensor_of_another_dtype(self, name: str, device: str) -> None:
        inputs = self.with_outputs(self.make(device))
        change_tensor(inputs, name, lambda tensor: torch.empty_like(tensor, dtype=torch.complex64))
        message = r"complex64 is not one of|DType mismatch(.|\n)*complex64"
        with pytest.raises((TypeError, RuntimeError), match=message):
            self.run(inputs)

    @_for_each(lambda cls: [name for name in cls.given if name not in cls.optional])
    def test_refuses_none(self, name: str, device: str) -> None:
        inputs = self.make(device)
        inputs[name] = None
        with pytest.raises(TypeError, match=rf"'{name}' must be a (tensor|list of tensors), not None"):
            self.run(inputs)

    @_for_each(lambda cls: list(cls.lists))
    def test_refuses_a_list_without_tensors(self, name: str, device: str) -> None:
        inputs = self.make(device) | {name: []}
        with pytest.raises((ValueError, RuntimeError), match=rf"{name}: expected 1 .*tensors?\b.* but got 0"):
            self.run(inputs)

    @_for_each(lambda cls: [name for name in cls.strided if name in cls.mutated])
    def test_refuses_to_write_to_rows_that_share_memory(self, name: str, device: str) -> None:
        inputs = self.make(device)
        if len(inputs[name]) < 2:
            pytest.skip(f"'{name}' has no two rows")
        inputs[name] = all_alike(inputs[name])
        with pytest.raises(RuntimeError, match=rf"Tensor match failed for {name}(.|\n)*overlapping elements"):
            self.run(inputs)

    def test_refuses_tensors_on_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(env.SIM, raising=False)
        inputs = self.make("cpu")
        with pytest.raises(KjitError, match="only a CUDA source"):
            self.run(inputs)

    @needs_gpu
    def test_refuses_tensors_on_a_gpu(self) -> None:
        inputs = self.make("cuda")
        with pytest.raises(KjitError, match=r"only a C\+\+ source"):
            self.run(inputs)

    @needs_gpu
    @_for_each(lambda cls: cls._tensors())
    def test_refuses_tensors_on_different_devices(self, name: str) -> None:
        inputs = self.with_outputs(self.make("cuda"))
        change_tensor(inputs, name, lambda tensor: tensor.cpu())
        with pytest.raises(RuntimeError, match=r"Device mismatch|only a CUDA source"):
            self.run(inputs)

    def test_refuses_to_lose_a_gradient(self, device: str) -> None:
        inputs = self.make(device)
        floats = [tensor for _, tensor in self._given(inputs) if tensor.is_floating_point()]
        if not floats:
            pytest.skip("no input has a floating dtype, and could require a gradient")
        floats[0].requires_grad_()
        with pytest.raises(KjitError, match="no gradient"):
            self.run(inputs)

    # PyTorch.

    def test_torch_compile_takes_it_whole(self, device: str) -> None:
        inputs = self.make(device)
        expected = self.expect(inputs)
        op = self.op

        def call(inputs: Inputs) -> Any:
            return op(**inputs)

        returned = torch.compile(call, fullgraph=True)(inputs)
        self.check(self._results(returned, inputs), expected, inputs)

    def test_passes_the_checks_of_torch_library(self, device: str) -> None:
        inputs = self.with_outputs(self.make(device))
        checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
        tensors = {name: inputs[name] for name in (*self.given, *self.outputs)}
        if any(is_fp8(tensor.dtype) for _, tensor in each_tensor(tensors)):
            checks.remove("test_schema")  # which computes with the tensors, and PyTorch cannot with fp8
        # By place where that is possible: PyTorch has a parameter `mode` of its own.
        arguments = arguments_of(self.op).items()
        given = [inputs[name] for name, argument in arguments if not argument.kwarg_only]
        outputs = {argument.name: inputs[name] for name, argument in arguments if argument.kwarg_only}
        torch.library.opcheck(registered(self.op), (*given,), outputs, test_utils=checks)
        if outputs:
            torch.library.opcheck(self.op.op, (*given,), test_utils=checks)

    # GPUs.

    @needs_gpu
    def test_can_be_captured_in_a_cuda_graph(self) -> None:
        inputs, later = self.make("cuda"), self.make("cuda")
        self.run(dict(inputs))  # loads the module
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            actual = self.run(inputs)
        self._copy(later, inputs)
        graph.replay()
        self.check(actual, self.expect(later), later)

    @needs_gpu
    def test_runs_on_the_current_stream(self) -> None:
        inputs, later = self.make("cuda"), self.make("cuda")
        self.run(dict(inputs))  # loads the module
        cuda: Any = torch.cuda  # which is not typed throughout
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            # On any other stream the kernel would be done before its input is there.
            cuda._sleep(100_000_000)
            self._copy(later, inputs)
            actual = self.run(inputs)
        stream.synchronize()
        self.check(actual, self.expect(later), later)

    @classmethod
    def _copy(cls, source: Inputs, target: Inputs) -> None:
        for (_, one), (_, other) in zip(cls._given(source), cls._given(target), strict=True):
            other.copy_(one)

    @needs_two_gpus
    def test_runs_on_a_gpu_that_is_not_the_current_one(self) -> None:
        inputs = self.make("cuda:1")
        expected = self.expect(inputs)
        self.check(self.run(inputs), expected, inputs)

    @needs_gpu
    def test_indexes_past_two_to_the_31(self, require_gpu_memory: Callable[[int], None]) -> None:
        require_gpu_memory(8 * 2**31 * (len(self._tensors()) + 1))
        self._compare_ends("cuda")

    def _compare_ends(self, device: str) -> None:
        """Compare the ends of results with the results of the ends of inputs."""
        inputs = self.make(device, shape=self.huge_shape)
        long = self.given if self.huge_inputs is None else self.huge_inputs
        expected = self.expect(inputs | {name: self._end_of(inputs[name]) for name in long})
        actual = tuple(self._end_of(result) for result in self.run(inputs))
        self.check(actual, expected, inputs)

    def _end_of(self, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.shape[self.huge_axis]
        return tensor.narrow(self.huge_axis, size - _END, _END).clone()

    def test_compiles_without_a_gpu(self, spec: Spec) -> None:
        from kjit.engine.miss import ensure_built
        from kjit.engine.toolchain.cuda import find_cuda

        try:
            find_cuda()
        except ToolchainError as error:
            pytest.skip(error.message)
        artifact = ensure_built(Variant(spec.only("cuda"), Target.cuda("9.0a")))
        if self.kernels is not None:
            self.kernels.check(artifact)


@contextlib.contextmanager
def _filled_memory() -> Iterator[None]:
    """A context in which new tensors have NaN or the largest number in them: what is not written is noticed."""
    was, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)


def _may_raise(function: Any, error: type[Exception]) -> bool:
    """Whether the code of a function mentions this error."""
    return error.__name__ in getattr(getattr(function, "__code__", None), "co_names", ())
