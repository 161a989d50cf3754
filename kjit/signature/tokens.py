"""The text of a signature, as parts that Python's own grammar reads.

A parameter is an annotated assignment of Python, `alpha: float = 1.0`, but for a few words: `const`, `mut` and
`Optional` before a type and `strided` after one are taken out, and `T[]` becomes `T[()]`. Python's grammar has more
than signatures may have: characters without a meaning are refused here, expressions by `parser.py`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import tokenize
from tokenize import ERRORTOKEN, NAME, NUMBER, OP, STRING, TokenInfo

from kjit.dtypes import find_dtype
from kjit.signature.names import VARIABLE, Problem, parameter_problem, quoted
from kjit.signature.signature import FORM, SIZES, SignatureError

_WORDS = ("const", "mut", "Optional")
_MARKS = (":", ",", "=", "->", "|", "+", "-", "[", "]", ".")
_MARKS_OF_SIZES = ("*", "/", "//", "...")


class Part:
    """A parameter or an output (`what`): its name, the `words` before its type, its type and its default."""

    def __init__(self, text: str, tokens: list[TokenInfo], what: str) -> None:
        self.text, self.name, self.column, self.end = text, tokens[0].string, tokens[0].start[1], tokens[-1].end[1]
        if tokens[0].type != NAME or len(tokens) < 2 or tokens[1].string != ":":
            hint = "x: T[N] or x: float" if what == "a parameter" else "-> out: T[N]"
            if self.name in ("None", "void"):
                hint = f"leave '-> {self.name}' out: an op without outputs changes its mut tensors"
            found = " ".join(text[self.column : self.end].split())
            raise self.error(self.column, f"expected the name of {what}, ':' and a type, found '{found}'.", hint)
        self.words: list[str] = []
        rest = tokens[2:]
        while len(rest) > 1 and rest[0].string in _WORDS and rest[1].type in (NAME, STRING):
            self.words.append(rest.pop(0).string)
        is_constant = self.words == ["const"] and VARIABLE.fullmatch(self.name) is not None
        problem = parameter_problem(self.name, dimension=is_constant)
        if problem is not None:
            raise self.error(self.column, *problem)
        equals = next((at for at, token in enumerate(rest) if token.string == "="), len(rest))
        self.strided = [token.string for token in rest[:equals]][-2:] == ["]", "strided"]
        if self.strided:
            del rest[equals - 1]
        self.type, self.default = self._parsed(rest)

    def error(self, at: int | ast.expr, reason: str, hint: str) -> SignatureError:
        """The error that points at a column or an expression."""
        column = at if isinstance(at, int) else self._columns[at.col_offset]
        return SignatureError(reason, text=self.text, column=column, hint=hint)

    def written(self, node: ast.expr) -> str:
        """The text of an expression."""
        assert node.end_col_offset is not None
        written = self.text[self._columns[node.col_offset] : self._columns[node.end_col_offset - 1] + 1]
        return " ".join(written.split())

    def _parsed(self, tokens: list[TokenInfo]) -> tuple[ast.expr, ast.expr | None]:
        """The type and the default, by Python's grammar."""
        python = "_:"
        self._columns = [self.column, self.column]
        for token in tokens:
            spelled = "()]" if python.endswith("[ ") and token.string == "]" else token.string
            python += f"{spelled} "
            self._columns += [min(token.start[1] + at, token.end[1] - 1) for at in range(len(spelled) + 1)]
        try:
            statement = ast.parse(python).body[0]
        except SyntaxError as error:
            at = self._columns[min(error.offset or 1, len(self._columns)) - 1]
        except (MemoryError, RecursionError):  # the stack of Python's parser is too small for a very long one
            at = self.column
        else:
            assert isinstance(statement, ast.AnnAssign)
            return statement.annotation, statement.value
        found = next((f"'{token.string}' is out of place" for token in tokens if token.end[1] > at), None)
        reason = f"{found} in '{self.name}: ...'." if found else f"'{self.name}: ...' is incomplete."
        raise self.error(at if found else self.end, reason, FORM)


def read_parts(text: str) -> tuple[list[Part], list[Part]]:
    """The parameters and the outputs of a signature; a `SignatureError` where one is not written as such."""
    sides: list[list[Part]] = [[]]
    part: list[TokenInfo] = []
    depth = 0
    for token in _tokens(text):
        depth += (token.string == "[") - (token.string == "]")
        mark = token.string if depth == 0 and token.type == OP else "["
        if mark not in (",", "->", ""):
            part.append(token)
            continue
        what, reason = "a parameter" if len(sides) == 1 else "an output", ""
        if part:
            sides[-1].append(Part(text, part, what))
        elif mark == "," or (mark == "" and not sides[-1]):
            reason = f"expected {what}, found {quoted(mark) if mark else 'the end'}."
        if mark == "->":
            sides.append([])
            reason = reason or ("a signature has one '->', before all outputs." if len(sides) > 2 else "")
        if reason:
            raise SignatureError(reason, text=text, column=token.start[1], hint=FORM)
        part = []
    return sides[0], sides[1] if len(sides) > 1 else []


def _tokens(text: str) -> list[TokenInfo]:
    """The tokens of Python, all of which a signature may have, and the end."""

    plain = "".join(" " if character.isspace() else character for character in text)
    for column, character in enumerate(plain):
        if not (character.isascii() and character.isprintable()):
            hint = "an arrow is written '->'" if character in "\u2192\u21d2\u2013\u2014" else FORM
            raise SignatureError(f"'{character}' is not plain ASCII.", text=text, column=column, hint=hint)
    tokens: list[TokenInfo] = []
    # Python 3.12 raises errors where older ones have tokens for what is wrong.
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(plain).readline):
            if token.string.strip() and token.type not in (NAME, NUMBER, STRING, OP):
                break
            tokens += [token] if token.string.strip() else []
    rest = re.compile(r"\s*(\d[\w.]*|\S)").match(plain, tokens[-1].end[1] if tokens else 0)
    if rest is not None:
        tokens.append(TokenInfo(ERRORTOKEN, rest[1], (1, rest.start(1)), (1, rest.end()), plain))
    start, end = (TokenInfo(OP, "", (1, at), (1, at), plain) for at in (0, len(text)))
    tokens.append(end)
    opened: list[int] = []
    for before, token, after in zip([start, *tokens], tokens, [*tokens[1:], end], strict=False):
        column, problem = token.start[1], None
        if opened and token.string in ("->", ""):
            column, problem = opened[-1], Problem("this '[' is not closed.", "a shape ends with ']': T[N]")
        elif token is not end:
            problem = _problem(text, before, token, after, len(opened))
        if problem is not None:
            raise SignatureError(problem.reason, text=text, column=column, hint=problem.hint)
        opened += [column] if token.string == "[" else []
        opened = opened[:-1] if token.string == "]" else opened
    return tokens


def _problem(text: str, before: TokenInfo, token: TokenInfo, after: TokenInfo, depth: int) -> Problem | None:
    """The problem with a token that no signature may have there, `depth` brackets deep."""
    word, column = token.string, token.start[1]
    is_operand = token.type in (NAME, NUMBER, STRING) or word == "..."
    is_after_one = before.type in (NAME, NUMBER, STRING) or before.string in ("]", "...")
    is_word = depth == 0 and (before.string in _WORDS or (before.string, word) == ("]", "strided"))
    if is_operand and is_after_one and not is_word:
        wanted, hint = "',' or ']'", "for example: T[B, D]"
        if depth == 0:
            wanted, hint = "':', ',' or '->'", "':' stands after a name, and const, mut or Optional may stand after ':'"
        return Problem(f"expected {wanted} between '{before.string}' and '{word}'.", hint)
    if word[0].isdigit() or token.type == NUMBER:
        suffix = after.string if after.start == token.end and after.type in (NUMBER, NAME) else ""
        if suffix or token.type != NUMBER or not re.fullmatch(r"[\d_.eE+-]+", word):
            reason = f"'{word}{suffix}' is not a decimal number of Python."
            return Problem(reason, "for example: 16; a product is written 2*D")
    elif token.type == STRING:
        inside = text[column + 1 : token.end[1] - 1]
        if word[0] not in "'\"" or any(mark in inside for mark in "'\"\\") or not inside.isprintable():
            reason = "a text stands between two quotes, and has no quotes, backslashes and line ends in it."
            return Problem(reason, 'for example: name: str = "text"')
    elif token.type == NAME:
        return None
    elif depth == 0 and word != "->" and re.match(r"[-=~]*\s*>", text[column:]):
        return Problem(f"'{word}' is not an arrow.", "an arrow is written '->', and the outputs follow it")
    elif (word, depth) in (("]", 0), ("[", 2)):
        return Problem(f"'{word}' is out of place.", "a shape is written T[N], and a list of tensors list[T[N]]")
    elif depth == 0 and word in ("*", "&") and before.type == NAME:
        hint = f"{after.string if after.type == NAME else 'x'}: {find_dtype(before.string) or 'T'}[N]"
        return Problem("there are no pointers and references: a tensor has a dtype and a shape.", hint)
    elif word not in _MARKS and (depth == 0 or word not in _MARKS_OF_SIZES):
        return Problem(f"{quoted(word)} has no meaning {'in a size' if depth else 'here'}.", SIZES if depth else FORM)
    return None
