"""The words of a text that mean an op, and their new forms when it is renamed.

Names, strings and comments are changed by rules of their own. Of names, only those that the op defines: its function,
`_<op>` and `Test<Op>` in Python; in C++ its types, kernels and exports. So `torch.softmax`, a parameter `softmax` and a
method `x.softmax()` are not changed when an op `softmax` is renamed. Of strings and comments: those that consist of the
name, or begin with it and a colon or a comma, the name in backticks, and names of its files.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kjit.cpp_functions import read_functions
from kjit.cpp_text import PROSE, blanked
from kjit.projects.op_names import camel, cpp_stem

_TYPE = re.compile(r"\b(?:struct|class|enum class|enum|union)\s+(\w+)\s*[{:;]?")


@dataclass(frozen=True)
class Renaming:
    """The old and the new name of an op, and of what it defines.

    Args:
        package: the dotted name of the package of the wrappers.
        files: names of files, old to new: `scale.cuh` to `double.cuh`.
        cpp_words: C++ names that the op's sources define, old to new.
    """

    old: str
    new: str
    package: str
    files: Mapping[str, str]
    cpp_words: Mapping[str, str] = field(default_factory=dict)

    def in_cpp(self, text: str) -> str:
        """The text of a source of the op, renamed."""
        parts, at = [], 0
        for match in PROSE.finditer(text):
            parts += [self._code(text[at : match.start()]), self._words(self.in_prose(match[0]))]
            at = match.end()
        return "".join([*parts, self._code(text[at:])])

    def _code(self, text: str) -> str:
        text = re.sub(rf"(\bKJIT_EXPORT\s*\(\s*){re.escape(self.old)}\b", rf"\g<1>{self.new}", text)
        return self._words(text)

    def _words(self, text: str) -> str:
        return re.sub(r"\b[A-Za-z_]\w*", lambda word: self.cpp_words.get(word[0], word[0]), text)

    def in_prose(self, text: str) -> str:
        """A comment or a string literal, renamed."""
        old, new = re.escape(self.old), self.new
        for before, after in self.files.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(before)}(?![\w-])", after, text)
        text = re.sub(rf"`(_?){old}`", rf"`\g<1>{new}`", text)
        return re.sub(
            rf"""^((?:[A-Za-z]{{0,2}}["']{{1,3}}|//+|#+)\s*){old}(?=[:,]|\.\s*$| on (?:the CPU|a GPU):)""",
            rf"\g<1>{new}",
            text,
            flags=re.M,
        )

    def in_python(self, text: str) -> str:
        """The text of a Python file of the op, or of one that exports it, renamed."""
        tree = ast.parse(text)
        shadowed = list(_shadowed(tree, self.old))
        wrappers = dict(_wrappers(tree))
        lines = text.splitlines(keepends=True)
        edits: list[tuple[int, int, int, int, str]] = []
        tokens = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type not in _BLANK]
        for at, token in enumerate(tokens):
            before = tokens[at - 1].string if at else ""
            after = tokens[at + 1].string if at + 1 < len(tokens) else ""
            if token.type == tokenize.NAME:
                line = token.start[0]
                is_hidden = any(first <= line <= last for first, last in shadowed)
                renamed = self._name(token.string, tokens, at, before, after, is_hidden=is_hidden)
            elif token.start in wrappers:
                renamed = self._wrapper(token.string, wrappers[token.start])
            elif token.type == tokenize.STRING:
                renamed = self._string(token.string)
            elif token.type in _F_STRING:
                # Quotes mark whether the string begins or ends here.
                opening = before if before.endswith(("'", '"')) else ""
                closing = after if after.startswith(("'", '"')) else ""
                renamed = self._string(opening + token.string + closing).removeprefix(opening).removesuffix(closing)
            elif token.type == tokenize.COMMENT:
                renamed = self.in_prose(token.string)
            else:
                continue
            if renamed != token.string:
                edits.append((*token.start, *token.end, renamed))
        for first, begin, last, end, renamed in reversed(edits):
            lines[first - 1 : last] = [lines[first - 1][:begin] + renamed + lines[last - 1][end:]]
        return "".join(lines)

    def _name(
        self, word: str, tokens: list[tokenize.TokenInfo], at: int, before: str, after: str, *, is_hidden: bool
    ) -> str:
        known = {self.old: self.new, f"_{self.old}": f"_{self.new}", f"Test{camel(self.old)}": f"Test{camel(self.new)}"}
        if word not in known:
            return word
        if before == ".":
            return known[word] if self._is_ours(_base(tokens, at)) else word
        is_keyword = after == "=" and before in ("(", ",") and tokens[at].start[1] > 0
        return word if is_hidden or is_keyword else known[word]

    def _is_ours(self, base: str) -> bool:
        """Whether an attribute of `base` is the op: an export of a loaded module, or a module of the package."""
        tail = self.package.rpartition(".")[2]
        return base in ("module", ".", self.package, tail, f"_{self.old}()") or base.endswith((f".{tail}", ".module"))

    def _string(self, text: str) -> str:
        body = re.fullmatch(r"""([A-Za-z]{0,2})(["'])(_?)(\w+)\2""", text)
        if body is not None and body[4] == self.old:
            return f"{body[1]}{body[2]}{body[3]}{self.new}{body[2]}"
        text = self.in_prose(text)
        # A symbol of C++ as text: f"Scale<{args}>::run".
        return re.sub(r"\b[A-Za-z_]\w*(?=<|::)", lambda word: self.cpp_words.get(word[0], word[0]), text)

    def _wrapper(self, text: str, role: str) -> str:
        """A string in `cuda_wrappers=`: an export, its symbol, or both."""
        quote, name = text[0], text[1:-1]
        symbol = re.sub(r"\b[A-Za-z_]\w*", lambda word: self.cpp_words.get(word[0], word[0]), name)
        if role == "symbol":
            return f"{quote}{symbol}{quote}"
        export = self.new if name == self.old else name
        if role == "export" or export == symbol:
            return f"{quote}{export}{quote}"
        return f"({quote}{export}{quote}, {quote}{symbol}{quote})"

    def in_imports(self, text: str) -> str:
        """The text of another Python file, with imports of the op's module changed."""
        module, new_module = f"{self.package}.{self.old}", f"{self.package}.{self.new}"
        lines = text.splitlines(keepends=True)
        for node in reversed([each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom)]):
            relative = node.level == 1 and node.module == self.old
            if node.module != module and not relative:
                continue
            names = ", ".join(self._imported(each) for each in node.names)
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            rest = lines[last].encode()[node.end_col_offset or 0 :].decode()
            place = f".{self.new}" if relative else new_module
            lines[first : last + 1] = [f"{lines[first][: node.col_offset]}from {place} import {names}{rest}"]
        return "".join(lines)

    def _imported(self, alias: ast.alias) -> str:
        """An imported name, still bound to the name that the file uses."""
        name = {self.old: self.new, f"_{self.old}": f"_{self.new}"}.get(alias.name, alias.name)
        known = alias.asname or alias.name
        return name if known == name else f"{name} as {known}"


_BLANK = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
# Since Python 3.12 the parts of an f-string are tokens of their own.
_F_STRING = tuple(getattr(tokenize, name) for name in ("FSTRING_MIDDLE",) if hasattr(tokenize, name))


def cpp_words(texts: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The C++ names derived from an op's name in its sources, texts by file name: `Scale`, `scale_kernel`.

    Returns:
        The words, old to new.
    """
    words: dict[str, str] = {}
    stem, new_stem = cpp_stem(old), cpp_stem(new)
    for text in texts.values():
        for name in _TYPE.findall(blanked(text)):
            for before, after in ((camel(old), camel(new)), (f"Adopted{camel(old)}", f"Adopted{camel(new)}")):
                if name == before or re.fullmatch(rf"{before}[A-Z]\w*", name):
                    words[name] = after + name[len(before) :]
        for name in (function.name for function in read_functions(text)):
            if name in (stem, old) or name.startswith(f"{stem}_"):
                words[name] = new_stem + name[len(stem) :]
    return words


def _shadowed(tree: ast.AST, name: str) -> Iterator[tuple[int, int]]:
    """The lines of functions in which `name` is a parameter or a variable of their own."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            stored = any(
                isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store)
                for each in ast.walk(node)
            )
            if stored or any(each is not None and each.arg == name for each in every):
                yield node.lineno, node.end_lineno or node.lineno


def _wrappers(tree: ast.AST) -> Iterator[tuple[tuple[int, int], str]]:
    """The strings in `cuda_wrappers=[...]` and `cpp_wrappers=[...]`: position and role of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("cuda_wrappers", "cpp_wrappers"):
            for item in getattr(node.value, "elts", ()):
                if isinstance(item, ast.Constant):
                    yield (item.lineno, item.col_offset), "both"
                for role, part in zip(("export", "symbol"), getattr(item, "elts", ()), strict=False):
                    if isinstance(part, ast.Constant):
                        yield (part.lineno, part.col_offset), role


def _base(tokens: list[tokenize.TokenInfo], at: int) -> str:
    """The expression before the dot of an attribute: `torch.nn`, `_scale()` for a call, `.` in a relative import."""
    parts: list[str] = []
    at -= 1
    while at >= 0 and tokens[at].string == ".":
        at -= 1
        if tokens[at].string == ")":
            depth = 0
            while at >= 0:
                depth += {")": 1, "(": -1}.get(tokens[at].string, 0)
                at -= 1
                if depth == 0:
                    break
            parts.insert(0, f"{tokens[at].string}()")
        elif tokens[at].type == tokenize.NAME and tokens[at].string not in ("from", "import"):
            parts.insert(0, tokens[at].string)
        elif tokens[at].string == "from":
            return "."
        else:
            parts.insert(0, "")
        at -= 1
    return ".".join(parts)
