"""Code that a CUDA source has for the GPU only (`__CUDA_ARCH__`), merged into a unit for the simulator.

nvcc compiles a unit twice: once for the host, and once with `__CUDA_ARCH__` for the device. The simulator compiles
once. So a unit that mentions the macro is preprocessed both ways, and the functions of the device (`__global__`,
`__device__` and `__host__ __device__`) are taken from the one, everything else from the other. Where the two do not
differ, and in all headers that are not the op's own, the host's text stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from kjit.cpp_text import closing, pieces
from kjit.engine.compile.rewrite.tokens import Token, scope, split

_MACRO = b"__CUDA_ARCH__"


@dataclass(frozen=True)
class _Line:
    """A line, or a part of one, of the op's own files.

    Attributes:
        place: its index in the list of all that the unit is made of.
        side: `device` where a function of the device has a part in it, `host` for the inside of other functions.
    """

    file: str
    number: int
    text: str
    place: int
    side: str


def mentions_architecture(unit: str) -> bool:
    """Whether one of the op's own files that a preprocessed unit is made of has the word `__CUDA_ARCH__`."""
    for file in {piece.file for piece in pieces(unit) if piece.is_own}:
        try:
            with open(file, "rb") as source:
                if _MACRO in source.read():
                    return True
        except OSError:  # no file: a generated name, as "<stdin>" is
            continue
    return False


def merge(host: str, device: str) -> str:
    """The unit as preprocessed for the `host`, with the functions of the device as they are for the `device`."""
    texts, lines = _lines(host)
    _, others = _lines(device)
    matcher = SequenceMatcher(None, list(map(_compared, lines)), list(map(_compared, others)), autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        here, there = lines[start:end], others[other_start:other_end]
        # Code outside functions is taken from the host, or from the device if the host has none there.
        is_theirs = all(line.side == "device" for line in here)
        there = [line for line in there if line.side == "device" or (is_theirs and line.side != "host")]
        for line in here:
            if line.side == "device":
                texts[line.place] = "\n" if texts[line.place].endswith("\n") else ""
        if not there:
            continue
        inserted = "".join(f"{_marker(line)}{line.text}\n" for line in there)
        if end < len(lines):
            following = lines[end]
            texts[following.place] = f"\n{inserted}{_marker(following)}{texts[following.place]}"
        else:
            texts.append(f"\n{inserted}")
    return "".join(texts)


def _compared(line: _Line) -> tuple[str, int, str]:
    return line.file, line.number, line.text


def _marker(line: _Line) -> str:
    file = line.file.replace("\\", r"\\").replace('"', r"\"")
    return f'# {line.number} "{file}"\n'


def _lines(unit: str) -> tuple[list[str], list[_Line]]:
    """All of a unit in texts that make it up, and those among them that are lines of the op's own files."""
    texts: list[str] = []
    own: list[tuple[int, str, int]] = []
    tokens: list[Token] = []
    for piece in pieces(unit):
        text = unit[piece.begin : piece.end]
        texts.append(unit[piece.marker : piece.begin])
        if not piece.is_own:
            texts.append(text)
            continue
        tokens += (token for token in split(text, piece.file, piece.line) if token.is_code)
        for offset, line in enumerate(text.splitlines(keepends=True)):
            if line.strip():
                own.append((len(texts), piece.file, piece.line + offset))
            texts.append(line)
    sides = _sides(tokens)
    return texts, [
        _Line(file, number, texts[place].rstrip("\n"), place, sides.get((file, number), ""))
        for place, file, number in own
    ]


def _sides(code: list[Token]) -> dict[tuple[str, int], str]:
    """Whose functions there are, by file and line: what the device declares and defines, what is in others' braces."""
    found: dict[tuple[str, int], str] = {}
    scopes: list[str] = []
    statement = index = 0
    first: int | None = None  # of the function that is declared, if it is one of the device
    while index < len(code):
        token = code[index]
        if token.text in ("__global__", "__device__"):
            # In a function it is a lambda's, and the statement around it is the host's.
            first = index if "other" in scopes else statement
        elif token.text == "(" and token.kind == "sign" and "other" not in scopes:
            index = closing(code, index)
        elif token.text in (";", "{", "}") and token.kind == "sign":
            if first is not None:
                end = index
                if token.text == "{":
                    end = closing(code, index) if "other" in scopes else _end_of_body(code, index)
                found.update(dict.fromkeys(((each.file, each.line) for each in code[first : end + 1]), "device"))
                first, index = None, end
            elif token.text == "{":
                words = code[statement:index]
                scopes.append(scope(words))
                if scopes.count("other") == 1 and scopes[-1] == "other" and any(word.text == ")" for word in words):
                    for each in code[index + 1 : closing(code, index)]:
                        found.setdefault((each.file, each.line), "host")
            elif token.text == "}" and scopes:
                scopes.pop()
            statement = index + 1
        index += 1
    return found


def _end_of_body(code: list[Token], index: int) -> int:
    """The index of the brace that closes a function's body; at `index` may be the first member that it initializes."""
    end = closing(code, index)
    while code[end + 1 : end + 2] and code[end + 1].text in (",", "{"):
        opened = next((at for at in range(end + 1, len(code)) if code[at].text == "{"), end)
        if opened == end:
            return end
        end = closing(code, opened)
    return end
