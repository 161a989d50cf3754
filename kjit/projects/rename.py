"""The words of a text that mean an op, and their new forms when it is renamed.

Of names, only those that the op defines are changed: its function, `_<op>` and `Test<Op>` in Python; in C++ its types,
kernels and exports. So `torch.softmax`, an argument `softmax=` and a method `x.softmax()` are not changed when an op
`softmax` is renamed. Of strings and comments: those that consist of the name, or begin with it and a colon or a comma,
the name in backticks, and names of its files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kjit.cpp_functions import read_functions
from kjit.cpp_text import blanked
from kjit.projects.op_names import camel, cpp_stem

_TYPE = re.compile(r"\b(?:struct|class|enum class|enum|union)\s+(\w+)\s*[{:;]?")
_CPP_PROSE = re.compile(r'(//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*")', re.DOTALL)
_PYTHON_PROSE = re.compile(
    r'(#[^\n]*|[A-Za-z]{0,2}(?:""".*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'))', re.DOTALL
)
_WORD = re.compile(r"\b[A-Za-z_]\w*")


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
        parts = _CPP_PROSE.split(text)  # code, and prose at odd places
        parts[::2] = (re.sub(rf"(\bKJIT_EXPORT\s*\(\s*){self.old}\b", rf"\g<1>{self.new}", code) for code in parts[::2])
        parts[1::2] = map(self._in_prose, parts[1::2])
        return _WORD.sub(lambda word: self.cpp_words.get(word[0], word[0]), "".join(parts))

    def in_python(self, text: str) -> str:
        """The text of a Python file of the op, or of one that exports it, renamed."""
        parts = _PYTHON_PROSE.split(text)
        parts[::2] = map(self._in_code, parts[::2])
        whole = re.compile(rf"""(\w{{0,2}}["'])(_?){self.old}(["'])""")
        parts[1::2] = (
            f"{name[1]}{name[2]}{self.new}{name[3]}" if (name := whole.fullmatch(part)) else self._in_prose(part)
            for part in parts[1::2]
        )
        return "".join(parts)

    def _in_code(self, text: str) -> str:
        old = self.old
        tail = self.package.rpartition(".")[2]
        # Modules of the package, and exports of a loaded module; then names of its own, which are no keywords.
        bases = rf"\bfrom \.|\b(?:{re.escape(self.package)}|{tail}|module)\.|\b_{old}\([^()]*\)\."
        text = re.sub(rf"({bases}){old}\b", rf"\g<1>{self.new}", text)
        text = re.sub(rf"(?<![\w.])Test{camel(old)}\b", f"Test{camel(self.new)}", text)
        return re.sub(rf"(?<![\w.])(_?){old}\b(?!=[^=])", rf"\g<1>{self.new}", text)

    def _in_prose(self, text: str) -> str:
        """A comment or a string literal, renamed."""
        old, new = self.old, self.new
        for before, after in self.files.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(before)}(?![\w-])", after, text)
        text = re.sub(rf"`(_?){old}`", rf"`\g<1>{new}`", text)
        first = rf"""^((?:\w{{0,2}}["']{{1,3}}|//+|#+)\s*){old}(?=[:,]|\.\s*$| on (?:the CPU|a GPU):)"""
        text = re.sub(first, rf"\g<1>{new}", text, flags=re.MULTILINE)
        # A symbol of C++ as text: f"Scale<{args}>::run".
        return re.sub(r"\b[A-Za-z_]\w*(?=<|::)", lambda word: self.cpp_words.get(word[0], word[0]), text)

    def in_imports(self, text: str) -> str:
        """The text of another Python file, with imports of the op's module changed."""
        lines = text.splitlines(keepends=True)
        for node in reversed([each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom)]):
            relative = node.level == 1 and node.module == self.old
            if not relative and node.module != f"{self.package}.{self.old}":
                continue
            names = ", ".join(self._imported(each) for each in node.names)
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            rest = lines[last].encode()[node.end_col_offset or 0 :].decode()
            place = f".{self.new}" if relative else f"{self.package}.{self.new}"
            lines[first : last + 1] = [f"{lines[first][: node.col_offset]}from {place} import {names}{rest}"]
        return "".join(lines)

    def _imported(self, alias: ast.alias) -> str:
        """An imported name, still bound to the name that the file uses."""
        name = {self.old: self.new, f"_{self.old}": f"_{self.new}"}.get(alias.name, alias.name)
        known = alias.asname or alias.name
        return name if known == name else f"{name} as {known}"


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
                if re.fullmatch(rf"{before}(?:[A-Z]\w*)?", name):
                    words[name] = after + name[len(before) :]
        for name in (function.name for function in read_functions(text)):
            if name in (stem, old) or name.startswith(f"{stem}_"):
                words[name] = new if name == old else new_stem + name[len(stem) :]
    return words
