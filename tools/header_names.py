"""The C++ headers' reference: every public declaration with its comment, as Markdown.

    python tools/header_names.py warp.cuh     # the section of one header; of all without an argument

Headers are read line by line, as clang-format writes them: nothing is indented in a namespace, so a declaration begins
its line. A comment applies to all declarations up to the next empty line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

INCLUDE = Path(__file__).resolve().parent.parent / "kjit" / "include" / "kjit"
PRIVATE = re.compile(r"details|tvm|^$")
NAMES = (
    r"#define (\w+)",
    r"(?:class|struct|enum class|concept) (?:alignas\(.*?\)+ )?(\w+)",
    r"using (?:[\w:]*::)?(\w+)\s*[=;]",
    r"(?:inline |static )*constexpr [\w:<>, ]+ (\w+)(?: =|;|\{|\[)",
    r"(?:.*[ *&])?(operator\b\W*?|\w+)\(",
)


@dataclass
class Entry:
    """Declarations that share a comment."""

    comment: list[str]
    namespace: str = ""
    declarations: list[str] = field(default_factory=list)
    members: list[Entry] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The declared names, without repetitions."""
        return list(dict.fromkeys(name for each in self.declarations if (name := name_of(each))))


def headers() -> dict[str, Path]:
    """The public headers by their names in `#include <kjit/...>`."""
    paths = sorted(
        path for path in INCLUDE.rglob("*") if path.suffix in (".h", ".cuh") and path.parent.name != "detail"
    )
    return {path.relative_to(INCLUDE).as_posix(): path for path in paths}


def page() -> str:
    """The page of all headers."""
    lines = [
        "# C++ names",
        "",
        "Every public declaration with its comment. [The C++ headers](headers.md) has examples.",
    ]
    return "\n".join([*lines, *(f"\n{section(name)}" for name in headers())])


def section(name: str, paths: Mapping[str, Path] | None = None) -> str:
    """The section of one header: its opening comment, and an entry for each declaration."""
    lines = (paths or headers())[name].read_text("utf-8").split("\n")
    opening = list(leading(lines, "//"))
    parts = [f"## {name}", "", *markdown(opening)]
    found = list(entries(lines[len(opening) :]))
    described = {each for entry in found if entry.comment for each in entry.names}
    for entry in found:
        if not entry.comment and described.issuperset(entry.names):
            continue  # declared before its definition
        where = [f"// {entry.namespace}"] if entry.namespace else []
        parts += ["", f"### {', '.join(entry.names)}", "", *code([*where, *entry.declarations])]
        parts += ["", *markdown(entry.comment)] if entry.comment else []
        for member in entry.members:
            parts += ["", *code(member.declarations), "", *markdown(member.comment)]
    return "\n".join(parts)


def leading(lines: list[str], mark: str) -> Iterator[str]:
    """The text of the comment at the beginning of `lines`."""
    for line in lines:
        if not line.startswith(mark):
            return
        yield line.removeprefix(mark).removeprefix(" ")


def code(declarations: list[str]) -> list[str]:
    """Declarations as a block of C++."""
    return ["```cpp", *dict.fromkeys(declarations), "```"]


def markdown(comment: list[str]) -> list[str]:
    """A comment as Markdown: indented lines, except those of lists, are C++."""
    text: list[str] = []
    is_code = is_list = False
    for line in comment:
        is_list = line.startswith("- ") or (is_list and line.startswith("  "))
        indented = line.startswith("  ") and not is_list
        if indented != is_code and (indented or line):
            if is_code:
                text[-1:] = ["```", ""] if not text[-1] else [text[-1], "```"]
            else:
                text.append("```cpp")
            is_code = indented
        elif line.startswith("- ") and text and text[-1] and not text[-1].startswith(("- ", "  ")):
            text.append("")
        text.append(line[2:] if indented else quoted(line))
    return [*text, "```"] if is_code else text


def quoted(line: str) -> str:
    """A line in which names of headers, `<a/b.h>`, are code."""
    return "".join(
        part if part.startswith("`") else re.sub(r"<[\w/]+(?:\.\w+)?>", r"`\g<0>`", part)
        for part in re.split(r"(`[^`]*`?)", line)
    )


def entries(lines: list[str]) -> Iterator[Entry]:
    """The public declarations in kjit's namespaces, and the macros."""
    namespaces: list[str] = []
    entry = Entry([])
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("///"):
            if entry.names:
                yield entry
            entry = Entry(list(leading(lines[at:], "///")))
            at += len(entry.comment)
            continue
        if opened := re.match(r"namespace ([\w:]*) ?\{$", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace"):
            namespaces.pop()
        elif not line:
            if entry.names:
                yield entry
            entry = Entry([])
        elif line.startswith("#define "):
            body = list(continued(lines[at:]))
            if (name := name_of(line)) and not name.endswith("_"):
                entry.declarations.append(re.sub(r"^(#define \w+(?:\(.*?\))?).*$", r"\1", line))
            at += len(body)
            continue
        elif namespaces and re.match(r"[A-Za-z\[]", line):
            body = declaration(lines[at:])
            declared = signature(body)
            is_private = any(PRIVATE.search(name) for name in namespaces)
            if not is_private and not re.match(r"static_assert|[^(]*\w::(?:operator\b[^(]*|\w+)\(", declared):
                entry.namespace = "::".join(namespaces)
                entry.declarations.append(declared)
                entry.members += members(body)
            at += len(body)
            continue
        at += 1


def continued(lines: list[str]) -> Iterator[str]:
    """A macro with the lines that continue it."""
    for line in lines:
        yield line
        if not line.endswith("\\"):
            return


def declaration(lines: list[str]) -> list[str]:
    """The lines of the declaration at the beginning of `lines`, including its body."""
    depth = 0
    for count, line in enumerate(lines, 1):
        bare = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*', "", line)
        depth += sum(bare.count(mark) for mark in "{([") - sum(bare.count(mark) for mark in "})]")
        if depth == 0 and bare.rstrip().endswith((";", "}")):
            return lines[:count]
    return lines


def signature(body: list[str]) -> str:
    """A declaration without its body, its comments and the initialisers of a constructor."""
    text = "\n".join(re.sub(r"\s*//.*", "", line) for line in body)
    if re.match(r"enum class|(?:template <.*>\n)?(?:concept|using|inline constexpr|constexpr)", text):
        return text
    head = re.split(r" \{(?:\n|$| )|\n\s+: ", text, maxsplit=1)[0]
    return head.rstrip(";") + ";"


def members(body: list[str]) -> list[Entry]:
    """The public members of a class that have a comment."""
    is_public = not any(line.startswith("class ") for line in body[:4])
    found: list[Entry] = []
    at = 1
    while at < len(body):
        line = body[at]
        if access := re.match(r" (public|private|protected):", line):
            is_public = access[1] == "public"
        indented = [each.removeprefix("  ") for each in body[at:]]
        if is_public and line.startswith("  ///"):
            comment = list(leading(indented, "///"))
            inner = declaration(indented[len(comment) :])
            found.append(Entry(comment, declarations=[signature(inner)]))
            at += len(comment) + len(inner)
            continue
        at += 1
    return found


def name_of(text: str) -> str | None:
    """The name that a declaration declares."""
    lines = [line for line in text.split("\n") if not re.match(r"template|requires|\s", line)]
    for pattern in NAMES:
        for line in lines:
            if named := re.match(pattern, line):
                return named[1].strip()
    return None


if __name__ == "__main__":
    print("\n\n".join(map(section, sys.argv[1:])) if sys.argv[1:] else page())
