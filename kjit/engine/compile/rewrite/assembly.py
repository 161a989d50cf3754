"""`asm` statements: inline PTX becomes calls of functions that stand for its instructions (ptx.py)."""

from __future__ import annotations

import re

from kjit.cpp_text import closing
from kjit.engine.compile.rewrite.ptx import translate
from kjit.engine.compile.rewrite.tokens import Token, text_of

ASM = ("asm", "__asm__", "__asm")


def instructions_of(code: list[Token], index: int) -> str:
    """The instructions of an `asm` statement whose parenthesis is at or after `index`: its first strings, joined."""
    while index < len(code) and code[index].text != "(" and code[index].kind == "name":
        index += 1
    text = ""
    for token in code[index + 1 :]:
        if token.kind != "string":
            break
        raw = re.fullmatch(r'\w*R"(?P<fence>[^(]*)\((?P<text>.*)\)(?P=fence)"', token.text, re.DOTALL)
        text += raw["text"] if raw else token.text[token.text.find('"') + 1 : -1]
    text = re.sub(r"//.*?(?:\\n|\n|$)|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"(?:\\[nt]|\s)+", " ", text).strip()


def rewrite_assembly(code: list[Token]) -> None:
    """Replace each `asm` statement by calls, unless one of its instructions has no stand-in."""
    for index, token in enumerate(code):
        if token.kind == "name" and token.text in ASM:
            _rewrite_statement(code, index)


def _rewrite_statement(code: list[Token], index: int) -> None:
    begin = index + 1
    while begin < len(code) and code[begin].kind == "name":
        begin += 1
    end = closing(code, begin)
    operands, names = _operands(code[begin + 1 : end])
    assembly = instructions_of(code, index + 1)
    for name, place in names.items():
        assembly = assembly.replace(f"%[{name}]", f"%{place}")
    calls = translate(assembly, operands)
    if not calls:
        return
    code[index].text = f"{{ {calls} }}"
    for token in code[index + 1 : end + 1]:
        token.text, token.kind = "", "other"


def _operands(words: list[Token]) -> tuple[list[str], dict[str, int]]:
    """The expressions of an `asm` statement's outputs and inputs, and the positions of those with a name."""
    found: list[str] = []
    names: dict[str, int] = {}
    depth = colons = 0
    expression: list[Token] = []
    for index, token in enumerate(words):
        if token.closes:
            depth -= 1
            if depth == 0 and 1 <= colons <= 2:
                if token.text == ")":
                    found.append(f"({text_of(expression)})")
                else:
                    names[words[index - 1].text] = len(found)
        if depth > 0:
            expression.append(token)
        elif token.text in (":", "::"):
            colons += len(token.text)
        if token.opens:
            if depth == 0:
                expression = []
            depth += 1
    return found, names
