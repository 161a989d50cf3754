"""kjit.engine.diagnostics.depfiles: the lists of files that compilers write."""

from __future__ import annotations

from kjit.engine.diagnostics.depfiles import parse_depfile


def test_the_files_of_all_lines_are_read() -> None:
    assert parse_depfile("x.o: a.cpp \\\n b.h \\\n  /usr/c.h\n") == ["a.cpp", "b.h", "/usr/c.h"]


def test_odd_names_are_read_back() -> None:
    assert parse_depfile("x.o : /a\\ b/$$HOME/it's\\#1.h é.h\n") == ["/a b/$HOME/it's#1.h", "é.h"]


def test_an_empty_file_lists_nothing() -> None:
    assert parse_depfile("") == []
