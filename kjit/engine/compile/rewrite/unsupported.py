"""CUDA features that the simulator does not support, as errors in a compiler's form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kjit.cpp_text import closing, pieces
from kjit.engine.compile.rewrite.assembly import ASM, instructions_of
from kjit.engine.compile.rewrite.launches import is_launch, launched
from kjit.engine.compile.rewrite.tokens import Token

_PTX = re.compile(r"\w\.\w|;|%%?(?:laneid|warpid|smid|clock)")
_LONGEST_QUOTE = 60
_LAUNCH = re.compile(r"cuda(?:Launch|GetParameterBuffer)\w*")

# Names of features that the simulator does not have.
_UNKNOWN_NAMES = (
    (re.compile(r"CUtensorMap\w*|cuTensorMap\w+|cp_async_bulk\w*|make_tma_\w+"), "TMA"),
    (re.compile(r"wgmma\w*|nvcuda|wmma|tcgen05\w*"), "tensor core instructions"),
    (re.compile(r"__cluster_dims__"), "clusters of a size that the kernel has, not the launch"),
    (re.compile(r"tex[123]D\w*|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t"), "textures and surfaces"),
)
# Headers of CUDA that consist of PTX.
_UNKNOWN_HEADERS = (
    (re.compile(r".*/(?:crt/)?mma\.h"), "tensor core instructions (<mma.h>)"),
    (re.compile(r".*/cuda/(?:std/)?(?:ptx|barrier|pipeline)"), "the PTX of <cuda/ptx>, <cuda/barrier> and others"),
    (re.compile(r".*/cuda_pipeline(?:_primitives)?\.h"), "asynchronous copies (<cuda_pipeline.h>)"),
    (re.compile(r".*/(?:cute|cutlass)/(?:arch|atom)/.*"), "CUTLASS"),
    (re.compile(r".*/cub/.*"), "this part of CUB"),
    (re.compile(r".*/thrust/.*"), "Thrust (<thrust/...>)"),
)
# Headers that are not CUDA's own, and include each other: the `#include` outside of them is shown.
_OF_CUTLASS = re.compile(r".*/include/(?:cute|cutlass)/.*")
# The supported part of CUB (kjit_sim/cuda/cub/); `<cub/cub.cuh>` has no more.
_CUB = re.compile(
    r"Block(?:Exchange|Load|RadixSort|Reduce|Scan|Store)(?:Algorithm)?|BLOCK_(?:LOAD|REDUCE|SCAN|STORE)_\w+"
    r"|Warp(?:Reduce|Scan)|NullType|KeyValuePair|Uninitialized|Arg(?:Max|Min)"
    r"|Sum|Difference|Division|Max|Min|Equality|Inequality"
)


@dataclass(frozen=True)
class Refusal:
    """Code in one of the op's own files that the simulator cannot run."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: error: {self.text}"


def refuse_headers(unit: str) -> Iterator[Refusal]:
    """The unsupported headers of CUDA that the op's own files include."""
    was_own, own_place = False, ("", 0)
    for piece in pieces(unit):
        if was_own and "1" in piece.flags and "/kjit_sim/" not in piece.file:
            for pattern, what in _UNKNOWN_HEADERS:
                if pattern.fullmatch(piece.file):
                    yield _refusal(*own_place, what)
        was_own = piece.is_own
        if piece.is_own and _OF_CUTLASS.fullmatch(piece.file) is None:
            own_place = (piece.file, piece.line + unit.count("\n", piece.begin, piece.end))


def refuse_code(code: list[Token]) -> Iterator[Refusal]:
    """The unsupported features in the op's own code, whose supported `asm` statements are already rewritten.

    Other `asm` statements are replaced by what the compiler rejects.
    """
    for index, token in enumerate(code):
        if token.in_kernel and (is_launch(code, index) or _LAUNCH.fullmatch(token.text)):
            name = launched(code, index) if token.text == "<<<" else token.text
            yield _refusal(token.file, token.line, f"a kernel that is launched by a kernel ({name})")
        if token.kind != "name":
            continue
        if token.text in ASM:
            assembly = instructions_of(code, index + 1)
            if _PTX.search(assembly):
                short = assembly if len(assembly) <= _LONGEST_QUOTE else f"{assembly[:_LONGEST_QUOTE]}..."
                _refuse_if_called(code, index, _refusal("", 0, f'inline PTX (asm "{short}")').text)
            continue
        qualifier = [each.text for each in code[max(index - 2, 0) : index]]
        if token.text == "ptx" and qualifier == ["cuda", "::"]:
            yield _refusal(token.file, token.line, "PTX (cuda::ptx)")
            continue
        if qualifier == ["cub", "::"] and not _CUB.fullmatch(token.text):
            yield _refusal(token.file, token.line, f"this part of CUB (cub::{token.text})")
            continue
        for pattern, what in _UNKNOWN_NAMES:
            if pattern.fullmatch(token.text):
                yield _refusal(token.file, token.line, f"{what} ({token.text})")


def _refuse_if_called(code: list[Token], index: int, text: str) -> None:
    """Replace the `asm` at `index` by a call that the compiler rejects with `text`, unless it is in discarded code."""
    begin = index + 1
    while begin < len(code) and code[begin].kind == "name":
        begin += 1
    end = closing(code, begin)
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    name = f"kjit_refused_{index}"
    code[index].text = f'{{ __attribute__((error("{quoted}"))) void {name}(); {name}(); }}'
    for token in code[index + 1 : end + 1]:
        token.text, token.kind = "", "other"


def _refusal(file: str, line: int, what: str) -> Refusal:
    return Refusal(file, line, f"the simulator cannot run {what}")
