"""Test library: the checks that every op has to pass, tolerances, and the devices to test on.

Without a GPU, CUDA kernels run in the simulator, so that tests are useful on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kjit import env
from kjit.engine.cache.staging import temporary_lock
from kjit.env import is_in_ci as is_in_ci
from kjit.runtime.load import simulated as simulated
from kjit.testing.kernels import Kernels as Kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest
    import torch

    from kjit.testing.op_test import OpTest as OpTest

DeviceKind = Literal["cpu", "cuda"]

__all__ = [
    "Kernels",
    "OpTest",
    "Tolerances",
    "UnwrittenError",
    "boundary_shapes",
    "device_fixture",
    "devices",
    "gpu_memory_fixture",
    "is_in_ci",
    "random_tensor",
    "simulated",
    "tolerances",
]


def __getattr__(name: str) -> object:
    """`OpTest`, which needs pytest; the rest of this module does not."""
    if name != "OpTest":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    import pytest

    pytest.register_assert_rewrite(f"{__name__}.op_test")
    from kjit.testing.op_test import OpTest

    return OpTest


class UnwrittenError(Exception):
    """Raised by the `reference` of a test until it is written.

    Args:
        op: the name of the op.
    """

    def __init__(self, op: str) -> None:
        super().__init__(f"write what `{op}` computes, in plain PyTorch, in place of this")


class Tolerances(TypedDict):
    """The allowed difference of a result from the expected one: `atol + rtol * abs(expected)`."""

    rtol: float
    atol: float


def tolerances(dtype: torch.dtype, *sources: torch.dtype, length: int = 1) -> Tolerances:
    """Tolerances, for results of `dtype`, of a kernel that computes in fp32 and rounds once.

        torch.testing.assert_close(actual, expected, **kjit.testing.tolerances(torch.bfloat16))

    A kernel with float64 tensors computes in float64, except for values from narrower floats only. So if there are such
    among `sources`, the tolerances of a float64 result are those of fp32.

    PyTorch's own tolerances if there are any (source: the table in the documentation of `torch.testing.assert_close`);
    for 8-bit floats, which it only compares exactly, one step of the dtype: compare those as `actual.float()`. Integers
    and bools must be equal.

    Args:
        dtype: the dtype of the result.
        sources: the dtypes that it was computed from.
        length: the number of values that each result is a sum of, such as the inner size of a matrix product: the error
            of a sum in fp32 grows with it.

    Returns: `rtol` and `atol` for `torch.testing.assert_close`.

    Raises:
        TypeError: `dtype` is complex.
    """
    import torch

    if dtype.is_complex:
        raise TypeError(f"there are no tolerances for {dtype}: kernels have real dtypes")
    if not dtype.is_floating_point:
        return {"rtol": 0.0, "atol": 0.0}
    if dtype == torch.float64 and any(source.is_floating_point and source != dtype for source in sources):
        dtype = torch.float32
    info = torch.finfo(dtype)
    if info.bits == 8:
        return {"rtol": info.eps, "atol": info.tiny * info.eps}
    rtol, atol = {
        torch.float16: (1e-3, 1e-5),
        torch.bfloat16: (1.6e-2, 1e-5),
        torch.float32: (1.3e-6, 1e-5),
        torch.float64: (1e-7, 1e-7),
    }[dtype]
    if dtype != torch.float64:
        # Of one sum after another: signed terms, with partial sums of up to sqrt(length); and terms of one sign. What
        # is longer is summed in parts.
        length, eps = min(length, _LONGEST_SUM), torch.finfo(torch.float32).eps
        rtol, atol = max(rtol, eps * length**0.5), max(atol, eps * length)
    return {"rtol": rtol, "atol": atol}


def devices(*kinds: DeviceKind) -> list[Any]:
    """The devices to run a test on, for `pytest.mark.parametrize`; a kind that this machine lacks is skipped.

        @pytest.mark.parametrize("device", kjit.testing.devices("cuda", "cpu"))
        def test_scale(device: str) -> None: ...

    Args:
        kinds: what the op has a kernel for.

    Returns: One parameter per kind, in the given order: torch's name of the device.
    """
    import pytest
    import torch

    parameters = []
    for kind in kinds:
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"'{kind}' is not a kind of device: give 'cpu' or 'cuda'")
        missing = kind == "cuda" and not torch.cuda.is_available()
        parameters.append(pytest.param(kind, marks=[pytest.mark.skip(reason=_NO_GPU)] if missing else []))
    return parameters


def device_fixture(*kinds: DeviceKind) -> Any:
    """A pytest fixture that runs each test with it once per kind of device.

        device = kjit.testing.device_fixture("cuda", "cpu")

        def test_scale(device: str) -> None:
            x = torch.ones(3, device=device)

    On a machine without a GPU, "cuda" is the simulator: the device is then "cpu", the test's id says `sim`, and inside
    the test CUDA kernels are called with CPU tensors (see `simulated`). `KJIT_SIM=1` or `check` chooses the simulator
    on a machine with a GPU too; with `KJIT_SIM=0`, or if the simulator cannot be built, the test is skipped.

    Args:
        kinds: what the op has a kernel for.

    Returns:
        The fixture; its value is the name of the device for torch.
    """
    import pytest

    def device(request: pytest.FixtureRequest) -> Iterator[str]:
        yield from device_of(request)

    return pytest.fixture(params=device_parameters(*kinds))(device)


def device_parameters(*kinds: DeviceKind) -> list[Any]:
    """The parameters of a fixture that yields from `device_of`: as `devices`, with the simulator for a missing GPU."""
    simulator = _simulator() if "cuda" in kinds else None
    parameters = devices(*kinds)
    if simulator is None:
        return parameters
    return [
        _simulator_parameter(simulator) if kind == "cuda" else parameter
        for kind, parameter in zip(kinds, parameters, strict=True)
    ]


def device_of(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the device for torch, for one of `device_parameters`; in the simulator until the generator ends."""
    if request.param in env.SIMULATIONS:
        with simulated(check=request.param == "sim-check"):
            yield "cpu"
    else:
        yield request.param


def gpu_memory_fixture() -> Any:
    """A pytest fixture for tests that need much of the GPU's memory: a function that takes the number of bytes.

        gpu_memory = kjit.testing.gpu_memory_fixture()

        def test_indexes_past_two_to_the_31(gpu_memory: Callable[[int], None]) -> None:
            gpu_memory(2 * 2**31)
            x = torch.zeros(2**31, dtype=torch.int8, device="cuda")

    Of all tests with it, in all processes of this user (such as those of pytest-xdist), one runs at a time: the others
    wait. PyTorch's cached memory is freed before and afterwards. If the current GPU still has less free memory, the
    test is skipped, with the free size in the reason.

    Returns:
        The fixture; its value is the function.
    """
    import pytest

    return pytest.fixture(gpu_memory)


def gpu_memory() -> Iterator[Callable[[int], None]]:
    """The value of the fixture of `gpu_memory_fixture`."""
    import pytest
    import torch

    def require(needed: int) -> None:
        free, _ = torch.cuda.mem_get_info()
        if free < needed:
            pytest.skip(f"needs {needed / 1e9:.0f} GB of GPU memory, and {free / 1e9:.0f} GB are free")

    with temporary_lock("gpu-memory", "needs much of the GPU's memory"):
        torch.cuda.empty_cache()
        yield require
        torch.cuda.empty_cache()


_LONGEST_SUM = 8192

_ELEMENTS = (2, 4, 8, 16, 32, 512, 1024, 2048, 4096, 32768)
_ROW_LENGTHS = (2, 4, 8, 16, 64, 256, 512, 1024, 4096, 8192)
_MANY_ELEMENTS = (100_003,)
_LONG_ROWS = (20_000, 40_000, 40_003, 70_000, 70_003)
LARGEST, LONGEST_ROW = max(_MANY_ELEMENTS), max(_LONG_ROWS)


def boundary_shapes(
    shape: Sequence[int | None], *, rows: bool = False, smallest: int = 0, largest: int | None = None
) -> list[tuple[int, ...]]:
    """Shapes around every length at which a kernel takes another path: vectors, blocks, threads.

        shapes = (*kjit.testing.boundary_shapes((3, None), rows=True), (1001, 5))

    Args:
        shape: None is replaced by the lengths, each with the one below and the one above it.
        rows: whether these are the lengths of rows, or their number; otherwise they are numbers of elements.
        smallest, largest: the range of lengths.
    """
    around, more = (_ROW_LENGTHS, _LONG_ROWS) if rows else (_ELEMENTS, _MANY_ELEMENTS)
    lengths = sorted({0, *more, *(length + d for length in around for d in (-1, 0, 1))})
    return [
        tuple(length if size is None else size for size in shape)
        for length in lengths
        if smallest <= length and (largest is None or length <= largest)
    ]


def random_tensor(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Random numbers, small enough that sums and products of a few fit every dtype.

    Floats are normally distributed, integers are 0 to 4, bools 0 and 1.
    """
    import torch

    if dtype.is_floating_point:
        return torch.randn(tuple(shape), device=device).to(dtype)
    high = 2 if dtype == torch.bool else 5
    return torch.randint(0, high, tuple(shape), device=device).to(dtype)


_NO_GPU = "needs an NVIDIA GPU, and PyTorch sees none here"


def _simulator() -> env.Simulation | None:
    """The simulator used instead of a GPU in tests on this machine, or None."""
    import torch

    asked = env.simulation()
    if asked is not None:
        return asked
    return None if torch.cuda.is_available() or env.forbids_simulation() else "sim"


def _simulator_parameter(simulator: env.Simulation) -> Any:
    import pytest

    from kjit.engine.toolchain.toolchain import Toolchain
    from kjit.errors import ToolchainError
    from kjit.spec import Target

    try:
        Toolchain.for_target(Target(simulator))
    except ToolchainError as error:
        reason = f"{_NO_GPU}. {error.message}" + (f" ({error.hint})" if error.hint else "")
        return pytest.param("cuda", marks=[pytest.mark.skip(reason=reason)])
    return pytest.param(simulator)
