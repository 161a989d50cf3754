"""CUDA syntax that no macro can express, and CUDA features that the simulator does not support.

The build runs this file as a program between the preprocessor and the compiler of a simulated unit:

    python rewrite.py unit.ii unit.sim.ii g++ -E unit.cu

Only the op's own files are rewritten; the preprocessor's line markers tell which these are (kjit's, CUDA's and the
system's headers are marked). No line is added or removed, so that errors, debuggers and the checks name the lines that
the user wrote. There are six rewrites:

    kernel<T><<<grid, block, smem>>>(x, n);  ->  kernel<T> ->*::kjit_sim::grid(grid, block, smem)(x, n);
    extern __shared__ float tile[];          ->  float (&tile)[] = *reinterpret_cast<float (*)[]>(dynamic_shared());
    __shared__ alignas(16) float tile[32];   ->  alignas(16) __shared__ float tile[32];
    __global__ __launch_bounds__(n) void f() {  ->  void f() { ::kjit_sim::launch_bounds(n);
    asm("prmt.b32 %0, %1, %2, 7;" : "=r"(x) : "r"(a), "r"(b));  ->  { ::kjit_sim::ptx::prmt((x), (a), (b), 7); };
    while (*flag == 0);                      ->  while (*flag == 0) ::kjit_sim::looked();

A preprocessed unit has no comments, no macros and no dead branches, so code excluded by `#if KJIT_SIM` is not seen.
Features that need a GPU (inline PTX without a stand-in, TMA, tensor cores, launches from kernels) are errors in a
compiler's form (unsupported.py). `__global__`, `__device__`, `__host__` and `__launch_bounds__` are removed from every
file (marks.py).

Code that a source has for the GPU only, by `__CUDA_ARCH__`, is merged into the unit first (device_branches.py).

The program starts once per compiled unit. So its modules import nothing of kjit except each other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

if not __package__:  # as a program
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 4)))

from kjit.cpp_text import closing, opening, pieces
from kjit.engine.compile.rewrite.assembly import rewrite_assembly
from kjit.engine.compile.rewrite.device_branches import mentions_architecture, merge
from kjit.engine.compile.rewrite.launches import rewrite_launches
from kjit.engine.compile.rewrite.marks import strip_marks, strip_marks_of_others
from kjit.engine.compile.rewrite.shared_memory import rewrite_shared_memory
from kjit.engine.compile.rewrite.tokens import Token, split
from kjit.engine.compile.rewrite.unsupported import Refusal, refuse_code, refuse_headers

ARCHITECTURE = 900
"""The `__CUDA_ARCH__` of device functions, equal to KJIT_CUDA_ARCH."""


def rewrite(unit: str) -> tuple[str, list[Refusal]]:
    """The preprocessed `unit` as C++, and what in it the simulator cannot run."""
    refusals = list(refuse_headers(unit))
    if refusals:
        return unit, refusals  # most of the unit belongs to these headers
    tokens = list(_tokens(unit))
    own = [token for token in tokens if token.is_code]
    bounds = strip_marks(own)
    strip_marks_of_others([token for token in tokens if token.kind == "other"])
    code = [token for token in tokens if token.is_code and token.text]
    rewrite_assembly(code)
    refusals += refuse_code(code)
    rewrite_launches(code)
    rewrite_shared_memory(code)
    _rewrite_empty_loops(code)
    for brace, text in bounds:
        brace.text += f" ::kjit_sim::launch_bounds({text});"
    return "".join(token.text for token in tokens), refusals


def _tokens(unit: str) -> Iterator[Token]:
    """The whole `unit`: the op's own files as tokens, other files as one token per piece."""
    for piece in pieces(unit):
        yield Token("other", unit[piece.marker : piece.begin])
        text = unit[piece.begin : piece.end]
        if piece.is_own:
            yield from split(text, piece.file, piece.line)
        else:
            yield Token("other", text)


def _rewrite_empty_loops(code: list[Token]) -> None:
    """Rewrite `while (*flag == 0);`, which waits for another thread: the loop has to let that run."""
    for index, token in enumerate(code[:-1]):
        if token.text != "while" or code[index + 1].text != "(" or _ends_do(code, index):
            continue
        end = closing(code, index + 1)
        body = [each.text for each in code[end + 1 : end + 3]]
        if body[:1] == [";"]:
            code[end + 1].text = "::kjit_sim::looked();"
        elif body == ["{", "}"]:
            code[end + 1].text = "{ ::kjit_sim::looked();"


def _ends_do(code: list[Token], index: int) -> bool:
    """Whether the `while` at `index` belongs to a `do`."""
    if index == 0:
        return False
    if code[index - 1].text == "}":
        opened = opening(code, index - 1)
        return opened > 0 and code[opened - 1].text == "do"
    for position in range(index - 2, -1, -1):
        if code[position].text in (";", "{", "}"):
            return False
        if code[position].text == "do":
            return True
    return False


def main(source: str, target: str, *preprocess: str) -> int:
    """Rewrite the file `source` into `target`; refusals are written to stderr like a compiler's errors.

    Args:
        preprocess: the command that made `source`, without its output options. It is run again, for the device, if one
            of the op's own files mentions `__CUDA_ARCH__`; `target`.d then lists the files that it read.

    Returns:
        The exit status.
    """
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        unit = file.read()
    if preprocess:
        listing = f"{target}.d"
        if mentions_architecture(unit) and not any(refuse_headers(unit)):
            outputs = ("-MD", "-MF", listing, "-MT", target, "-o", f"{target}.device")
            status = subprocess.run([*preprocess, f"-D__CUDA_ARCH__={ARCHITECTURE}", *outputs], check=False).returncode
            if status != 0:
                return status
            with open(f"{target}.device", encoding="utf-8", errors="surrogateescape") as file:
                unit = merge(unit, file.read())
        else:
            with open(listing, "w", encoding="utf-8") as file:
                file.write(f"{target}:\n")
    text, refusals = rewrite(unit)
    for refusal in dict.fromkeys(refusals):
        sys.stderr.write(f"{refusal}\n")
    if refusals:
        return 1
    with open(target, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
