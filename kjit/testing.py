"""What do the tests of an op share? How exact a result must be, and on which devices it can be tried here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from kjit.env import is_in_ci as is_in_ci

if TYPE_CHECKING:
    import torch

DeviceKind = Literal["cpu", "cuda"]

__all__ = ["Tolerances", "devices", "is_in_ci", "tolerances"]


class Tolerances(TypedDict):
    """How far a result may be from the expected one: by `atol + rtol * abs(expected)`."""

    rtol: float
    atol: float


def tolerances(dtype: torch.dtype) -> Tolerances:
    """How closely a kernel that computes in fp32 and rounds once agrees with PyTorch, for results of `dtype`.

        torch.testing.assert_close(actual, expected, **kjit.testing.tolerances(torch.bfloat16))

    PyTorch's own limits where it has some (source: the table in the documentation of `torch.testing.assert_close`); for
    the 8-bit floats, which it compares bit by bit only, one step of the dtype: compare those as `actual.float()`.
    Integers and bools must be equal.

    Returns:
        `rtol` and `atol`, as `torch.testing.assert_close` takes them.

    Raises:
        TypeError: `dtype` is complex.
    """
    import torch

    if dtype.is_complex:
        raise TypeError(f"there are no tolerances for {dtype}: kernels have real dtypes")
    if not dtype.is_floating_point:
        return {"rtol": 0.0, "atol": 0.0}
    info = torch.finfo(dtype)
    if info.bits == 8:
        return {"rtol": info.eps, "atol": info.tiny * info.eps}
    rtol, atol = {
        torch.float16: (1e-3, 1e-5),
        torch.bfloat16: (1.6e-2, 1e-5),
        torch.float32: (1.3e-6, 1e-5),
        torch.float64: (1e-7, 1e-7),
    }[dtype]
    return {"rtol": rtol, "atol": atol}


def devices(*kinds: DeviceKind) -> list[Any]:
    """The devices to run a test on, for `pytest.mark.parametrize`; a kind that this machine lacks is skipped.

        @pytest.mark.parametrize("device", kjit.testing.devices("cuda", "cpu"))
        def test_scale(device: str) -> None: ...

    Args:
        kinds: what the op has a kernel for.

    Returns:
        One parameter a kind, in the order given: the name of the device for torch.
    """
    import pytest
    import torch

    parameters = []
    for kind in kinds:
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"'{kind}' is not a kind of device: give 'cpu' or 'cuda'")
        missing = kind == "cuda" and not torch.cuda.is_available()
        reason = "needs an NVIDIA GPU, and PyTorch sees none here"
        parameters.append(pytest.param(kind, marks=[pytest.mark.skip(reason=reason)] if missing else []))
    return parameters
