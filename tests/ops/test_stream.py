"""Streams that wait for a value in GPU memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kjit.testing
from kjit.ops.stream import Event, stream_wait_value, stream_write_value

device = kjit.testing.device_fixture("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
cuda: Any = torch.cuda  # which is not typed throughout


def test_a_value_that_is_there_is_not_waited_for(device: str) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    stream_write_value(flag, -7)
    stream_wait_value(flag, -7)
    assert flag.item() == -7


def test_a_wait_gives_up_after_its_time(device: str) -> None:
    flag, timed_out = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    stream_wait_value(flag, 0, timeout=0.01, timed_out=timed_out)
    assert timed_out.item() == 0
    stream_wait_value(flag, 1, timeout=0.01, timed_out=timed_out)
    assert timed_out.item() == 1


def test_an_event_is_what_was_done_to_it_last(device: str) -> None:
    event = Event(device)
    states = [event.query()]
    for change in (event.record, event.wait, event.reset, event.record):
        change()
        if device == "cuda":
            cuda.synchronize()
        states.append(event.query())
    assert states == [False, True, True, False, True]


def test_what_does_not_fit_is_refused(device: str) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match="DType mismatch"):
        stream_wait_value(flag.float(), 1)
    with pytest.raises(RuntimeError, match="given together"):
        stream_wait_value(flag, 0, timeout=1.0)
    with pytest.raises(RuntimeError, match="must not be negative"):
        stream_wait_value(flag, 0, timeout=-1.0)


@pytest.fixture
def loaded() -> None:
    """Everything that runs while a stream waits has run before: to load a kernel may take a wait for the GPU."""
    event, x = Event("cuda"), torch.zeros(2, device="cuda")
    for change in (event.record, event.wait, event.reset):
        change()
    x.add_(1).fill_(2.0).copy_(x.clone())
    cuda._sleep(1)
    torch.cuda.synchronize()
    assert not event.query()  # which waits for no stream


@needs_gpu
@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("polls", [False, True])
def test_a_stream_reads_what_another_has_written_before_the_flag(polls: bool) -> None:
    flag, timed_out = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(2))
    source, seen = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    stream_write_value(flag, 0)  # loads the module
    seen.copy_(source)
    writer, reader = cuda.Stream(), cuda.Stream()
    torch.cuda.synchronize()
    with cuda.stream(reader):  # first
        if polls:
            stream_wait_value(flag, 1, timeout=20.0, timed_out=timed_out)
        else:
            stream_wait_value(flag, 1)
        seen.copy_(source)
    with cuda.stream(writer):
        cuda._sleep(200_000_000)
        source.add_(1)
        stream_write_value(flag, 1)
    torch.cuda.synchronize()
    assert timed_out.item() == 0
    assert bool((seen == 1).all())


@needs_gpu
@pytest.mark.usefixtures("loaded")
def test_a_query_waits_for_no_stream() -> None:
    event = Event("cuda")
    event.reset()
    torch.cuda.synchronize()
    waiting = cuda.Stream()
    with cuda.stream(waiting):
        event.wait()
    assert not event.query()
    assert not waiting.query()
    event.record()
    waiting.synchronize()
    assert event.query()


@needs_gpu
@pytest.mark.usefixtures("loaded")
def test_a_cuda_graph_waits_at_each_replay() -> None:
    event, source, seen = Event("cuda"), torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    event.reset()
    seen.copy_(source)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        event.wait()
        seen.copy_(source)
        event.reset()
    replaying, writing = cuda.Stream(), cuda.Stream()
    for value in (1.0, 2.0):
        torch.cuda.synchronize()
        with cuda.stream(replaying):
            graph.replay()
        with cuda.stream(writing):
            cuda._sleep(50_000_000)
            source.fill_(value)
            event.record()
        torch.cuda.synchronize()
        assert seen.item() == value
