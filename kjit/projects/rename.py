"""The words of a text that mean an op, and their new forms when it is renamed.

In Python the name itself, as a word that is no attribute and no keyword argument, `_<op>` and `Test<Op>`, and its
module. So `torch.softmax`, an argument `softmax=` and a method `x.softmax()` are not changed when an op `softmax` is
renamed. In C++ the types, kernels and exports that the op's sources define. In both, names of its files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kjit.cpp_functions import read_functions
from kjit.cpp_text import blanked
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
        text = re.sub(rf"(\bKJIT_EXPORT\s*\(\s*|^\s*//+\s*){self.old}\b", rf"\g<1>{self.new}", text, flags=re.MULTILINE)
        return re.sub(r"\b[A-Za-z_]\w*", self._cpp_word, self._with_files(text))

    def in_python(self, text: str) -> str:
        """The text of a Python file of the op, or of the package's `__init__.py`, renamed."""
        old, new = self.old, self.new
        text = re.sub(r"\b[A-Za-z_]\w*(?=<|::)", self._cpp_word, self._with_files(text))
        text = re.sub(rf"(?<![\w.])Test{camel(old)}\b", f"Test{camel(new)}", text)
        # Modules of the package, and exports of a loaded module.
        modules = rf"{re.escape(self.package)}|{self.package.rpartition('.')[2]}|module"
        text = re.sub(rf"(\bfrom \.|\b(?:{modules})\.|\b_{old}\([^()]*\)\.){old}\b", rf"\g<1>{new}", text)
        return re.sub(rf"(?<![\w.:])(_?){old}\b(?!=[^=])", rf"\g<1>{new}", text)

    def in_imports(self, text: str) -> str:
        """The text of another Python file: imports name the op's new module, and give its names those used there."""

        def renamed(found: re.Match[str]) -> str:
            names = re.sub(rf"\b(_?){self.old}\b(?=\s+as\b)", rf"\g<1>{self.new}", found["names"])
            names = re.sub(rf"(?<! as )\b(_?){self.old}\b", rf"\g<1>{self.new} as \g<1>{self.old}", names)
            return f"{found['start']}{self.new} import{names}"

        start = rf"(?P<start>^[ \t]*from (?:\.|{re.escape(self.package)}\.)){self.old}"
        return re.sub(rf"{start} import(?P<names>\s*\([^)]*\)|[^\n#]*)", renamed, text, flags=re.MULTILINE)

    def _with_files(self, text: str) -> str:
        for before, after in self.files.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(before)}(?![\w-])", after, text)
        return text

    def _cpp_word(self, word: re.Match[str]) -> str:
        return self.cpp_words.get(word[0], word[0])


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
