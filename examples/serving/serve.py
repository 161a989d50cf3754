"""A loop that decodes with the layers of layer.py: a serving engine in a hundred lines.

    python serve.py                                    run; modules that are not built are compiled
    python serve.py --warm used.jsonl --bundle DIR     load ahead what used.jsonl lists, from a bundle
    python serve.py --compare                          tokens/s beside eager PyTorch and torch.compile

`--tiny` is for the simulator (`KJIT_SIM=1`). docs/serving.md goes through the steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from layer import DTYPE, Batch, Layer, Sizes

import kjit

TINY = Sizes(hidden=128, heads=2, kv_heads=1, head_dim=64, intermediate=128, batch=2, length=8)

Step = Callable[[], torch.Tensor]


class Engine:
    """The state of a batch of sequences, all of which are at the same position."""

    def __init__(self, sizes: Sizes, layers: int, device: str) -> None:
        torch.manual_seed(0)
        self.sizes = sizes
        self.device = device
        self.layers = [Layer(sizes, device) for _ in range(layers)]
        self.tokens = torch.randn(sizes.length, sizes.batch, sizes.hidden, device=device).to(DTYPE)
        # A CUDA graph reads its inputs from the memory that they had when it was captured.
        self.x = self.tokens[0].clone()
        self.positions = torch.zeros(sizes.batch, dtype=torch.int64, device=device)

    def go_to(self, position: int) -> None:
        """Take in one token of each sequence."""
        self.x.copy_(self.tokens[position])
        self.positions.fill_(position)

    def decode(self, method: str) -> torch.Tensor:
        """Run all layers, `with_kjit` or `with_torch`, on what `go_to` has taken in; T[batch, hidden]."""
        x, residual = self.x.clone(), torch.zeros_like(self.x)
        batch = Batch.at(self.positions, self.sizes)
        for layer in self.layers:
            x = getattr(layer, method)(x, residual, batch)
        return x + residual

    def run(self, step: Step, steps: int) -> torch.Tensor:
        """Decode `steps` tokens of each sequence; what came out: T[steps, batch, hidden]."""
        for layer in self.layers:
            layer.k_cache.zero_()
            layer.v_cache.zero_()
        outs = []
        for position in range(steps):
            self.go_to(position)
            outs.append(step().clone())
        return torch.stack(outs)

    def tokens_per_second(self, step: Step, steps: int) -> float:
        """Tokens per second of all sequences together: the best of three runs, after one to warm up."""
        seconds = []
        for _ in range(4):
            self._wait()
            began = time.perf_counter()
            for position in range(steps):
                self.go_to(position)
                step()
            self._wait()
            seconds.append(time.perf_counter() - began)
        return self.sizes.batch * steps / min(seconds[1:])

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def graphed(step: Step) -> Step:
    """The same step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return out

    return replay


def compare(engine: Engine, steps: int) -> None:
    """Print the tokens/s of each way to run a step."""
    ways: dict[str, Step] = {
        "PyTorch": lambda: engine.decode("with_torch"),
        "torch.compile": torch.compile(lambda: engine.decode("with_torch"), dynamic=False),
        "kjit": lambda: engine.decode("with_kjit"),
        "kjit in torch.compile": torch.compile(lambda: engine.decode("with_kjit"), dynamic=False),
    }
    print(f"{'tokens/s':24}{'launched':>12}{'CUDA graph':>12}")
    for name, step in ways.items():
        rates = [engine.tokens_per_second(step, steps)]
        if engine.device == "cuda":
            rates.append(engine.tokens_per_second(graphed(step), steps))
        print(f"{name:24}" + "".join(f"{rate:12.0f}" for rate in rates), flush=True)


def check(engine: Engine, steps: int) -> None:
    """Compare the layers with kjit's ops with those in plain PyTorch.

    Rounding differs, and fp8 turns a small difference into a step, so the error of all elements together is compared.
    """
    expected = engine.run(lambda: engine.decode("with_torch"), steps).float()

    def step() -> torch.Tensor:
        return engine.decode("with_kjit")

    ways: dict[str, Step] = {"kjit": step}
    if engine.device == "cuda":
        ways["kjit in a CUDA graph"] = graphed(step)
    for name, way in ways.items():
        error = (engine.run(way, steps).float() - expected).norm() / expected.norm()
        print(f"{name} differs from PyTorch by {error:.2%}")
        if not error < 0.03:
            raise SystemExit(f"{name} computes something else than PyTorch")


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default cuda if there is a GPU")
    parser.add_argument("--tiny", action="store_true", help="sizes for the simulator")
    parser.add_argument("--layers", type=int, default=1, help="default 1")
    parser.add_argument("--steps", type=int, default=4, help="tokens of each sequence; default 4")
    parser.add_argument("--warm", type=Path, metavar="FILE", help="load these variants ahead (KJIT_RECORD_VARIANTS)")
    parser.add_argument("--calls", type=Path, metavar="DIR", help="make these calls once ahead (KJIT_RECORD)")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="the bundle to load them from")
    parser.add_argument("--compare", action="store_true", help="tokens/s of each way to run a step")
    options = parser.parse_args(args)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if options.warm or options.calls or options.bundle:
        warmed = kjit.warm(recorded=options.warm, calls=options.calls, bundle=options.bundle)
        print(f"warm: {warmed}")
        warmed.check()
    with torch.no_grad():
        engine = Engine(TINY if options.tiny else Sizes(), options.layers, device)
        check(engine, options.steps)
        if options.compare:
            compare(engine, min(64, engine.sizes.length))
    loaded = kjit.stats().values()
    print(f"modules: {sum(each['hits'] for each in loaded)} built ahead,", end=" ")
    print(f"{sum(each['compiles'] for each in loaded)} compiled while serving")


if __name__ == "__main__":
    main()
