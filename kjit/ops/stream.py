"""Streams that wait for a value in GPU memory, and an event made of that, which can be reset and be waited for first.

These are no ops of `torch.library`: what they order are streams, of which a compiled graph knows nothing.
"""

from __future__ import annotations

from typing import Protocol

import torch

import kjit
from kjit.ops._floats import CSRC


class Exports(Protocol):
    """The exports of a compiled module, for editors and type checkers."""

    def stream_wait_value(
        self, flag: torch.Tensor, value: int, timeout: float, timed_out: torch.Tensor | None, /
    ) -> None: ...

    def stream_write_value(self, flag: torch.Tensor, value: int, /) -> None: ...


@kjit.module(exports=Exports)
def _stream() -> kjit.Spec:
    names = ("stream_wait_value", "stream_write_value")
    return kjit.Spec("stream", cuda_files=[CSRC / "stream.cuh"], cuda_wrappers=[(name, name) for name in names])


def stream_wait_value(
    flag: torch.Tensor, value: int, timeout: float = 0.0, timed_out: torch.Tensor | None = None
) -> None:
    """Make the current stream wait until the flag has the value; the CPU does not wait.

    The driver's `cuStreamWaitValue32` waits without a kernel, if it has that function. Otherwise, and with a time-out,
    a kernel of one thread polls the flag. It occupies an SM meanwhile, so the writer of the flag must not depend on
    that: a kernel that needs the whole GPU, work in the same hardware queue (`CUDA_DEVICE_MAX_CONNECTIONS`), or a
    kernel that is not loaded yet may never run, and without a time-out the GPU hangs. Both kinds of wait are captured
    by a CUDA graph, and wait at each replay; write the flag from outside of the graph, or from a branch of it that does
    not depend on the wait.

    Args:
        flag: int32[1] in GPU memory.
        value: the 32-bit value to wait for.
        timeout: seconds after which the stream continues nevertheless, for tests; 0: never.
        timed_out: int32[1] in GPU memory, given together with a time-out; becomes 1 if that has passed.

    Raises:
        RuntimeError: a tensor's shape, dtype or device does not fit, or the driver rejects the call.
        kjit.KjitError: the flag is not on a GPU.
    """
    _stream(device=flag).stream_wait_value(flag, value, timeout, timed_out)


def stream_write_value(flag: torch.Tensor, value: int) -> None:
    """Make the current stream write the value into the flag, after all work that was queued before.

    Args:
        flag: int32[1] in GPU memory.
        value: a 32-bit value.

    Raises:
        RuntimeError, kjit.KjitError: as for `stream_wait_value`.
    """
    _stream(device=flag).stream_write_value(flag, value)


class Event:
    """An event between streams of one GPU that keeps its state in GPU memory.

        event = Event("cuda")
        event.wait()                        # the current stream waits, although nothing is recorded yet
        with torch.cuda.stream(other):
            ...
            event.record()                  # then it continues

    A wait for a `torch.cuda.Event` that is not recorded yet returns at once. A wait for this event does not, so record
    and wait can be queued in either order, or captured into different CUDA graphs. It stays recorded until `reset`.

    Attributes:
        flag: int32[1]: 1 once it is recorded, else 0.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.flag = torch.zeros(1, dtype=torch.int32, device=device)

    def record(self) -> None:
        """Mark it as recorded when the current stream reaches this call."""
        stream_write_value(self.flag, 1)

    def wait(self) -> None:
        """Make the current stream wait until it is recorded, with the conditions of `stream_wait_value`."""
        stream_wait_value(self.flag, 1)

    def reset(self) -> None:
        """Mark it as not recorded when the current stream reaches this call."""
        stream_write_value(self.flag, 0)

    def query(self) -> bool:
        """Whether it is recorded now. The CPU waits for a copy of the flag, and for no stream."""
        if not self.flag.is_cuda:
            return bool(self.flag.item())
        with torch.cuda.stream(torch.cuda.Stream(self.flag.device)):  # type: ignore[no-untyped-call]
            return bool(self.flag.item())
