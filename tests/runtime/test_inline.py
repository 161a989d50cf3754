"""kjit.load_inline: texts as modules."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kjit
from kjit.engine import bundle_writer, pool
from kjit.engine.cache.store import Store
from kjit.engine.toolchain import cpu
from kjit.errors import CompileError, NotPrebuiltError, UsageError
from kjit.runtime import inline
from kjit.runtime.load import BUNDLE
from kjit.spec import Spec, Target, Variant

ANSWER = """#include <kjit/ffi.h>
int answer() { return 42; }
template <int N>
int number() { return N; }
"""


def test_functions_of_a_text_are_exported(cache_dir: Path) -> None:
    module = kjit.load_inline("inline_answer", cpp_sources=ANSWER, functions=["answer", ("seven", "number<7>")])
    assert (module.answer(), module.seven()) == (42, 7)
    assert len(list(Store.open(cache_dir).entries())) == 1
    with_docstrings = kjit.load_inline("inline_answer", cpp_sources=ANSWER, functions={"answer": "The answer."})
    assert with_docstrings.answer() == 42


def test_a_text_is_the_same_module_until_it_is_changed(cache_dir: Path) -> None:
    def load(text: str) -> Any:
        return kjit.load_inline("inline_same", cpp_sources=[text])

    text = "#include <kjit/ffi.h>\nint one() { return 1; }\nKJIT_EXPORT(one, one)\n"
    first = load(text)
    assert load(text) is first
    changed = load(text.replace("return 1", "return 2"))
    assert (first.one(), changed.one()) == (1, 2)
    (source,) = [each for each in cache_dir.glob("inline/*/inline_same.cpp") if "return 2" in each.read_text()]
    # What somebody else makes of the file is not what is compiled for the text.
    source.write_text("#error not this\n")
    assert load(text.replace("return 1", "return 2")) is changed
    assert "return 2" in source.read_text()


@pytest.mark.usefixtures("cache_dir")
def test_several_texts_are_one_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_SIM", "1")
    module = kjit.load_inline(
        "inline_both",
        cpp_sources=["int of_cuda();\nint one() { return 1; }\n", "int sum() { return one() + of_cuda(); }\n"],
        cuda_sources="__global__ void kernel() {}\nint of_cuda() { kernel<<<1, 1>>>(); return 2; }\n",
        functions=["sum"],
    )
    assert module.sum() == 3


@pytest.mark.usefixtures("cache_dir")
def test_an_error_points_into_the_text() -> None:
    text = "// one\nint answer() {\n  return fortytwo;\n}\n"
    with pytest.raises(CompileError, match=r"inline/\w+/inline_wrong\.cpp:3:\d+: error: (.|\n)*3 \|   return forty"):
        kjit.load_inline("inline_wrong", cpp_sources=text, functions="answer")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "module 'wrong' has no source: give cpp_sources or cuda_sources"),
        ({"cpp_sources": [Path("a.cpp")]}, "cpp_sources must be a text or a list of texts"),
        ({"cpp_sources": ANSWER, "functions": [3]}, "cpp_wrappers: 3 is not an export"),
        ({"name": "../wrong", "cpp_sources": ANSWER}, "cannot name a module"),
    ],
)
def test_a_wrong_request_is_an_error_and_writes_nothing(
    cache_dir: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        kjit.load_inline(**{"name": "wrong", **arguments})
    assert not (cache_dir / "inline").exists()


def test_a_bundle_beside_the_file_that_asks_serves_its_text_and_no_other(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = cpu.lowest_level()
    if level is None:
        pytest.skip("no levels of this kind of CPU are known")
    wrapper = {"__file__": str(tmp_path / "wrapper.py"), "kjit": kjit, "text": ANSWER}
    call = "kjit.load_inline('inline_shipped', cpp_sources=text, functions='answer')"
    monkeypatch.setenv("KJIT_RECORD_VARIANTS", str(tmp_path / "asked"))
    monkeypatch.setenv("KJIT_NO_COMPILE", "1")
    with pytest.raises(NotPrebuiltError):
        eval(call, wrapper)
    monkeypatch.delenv("KJIT_RECORD_VARIANTS")
    asked = json.loads((tmp_path / "asked").read_text())["spec"]
    variant = Variant(Spec(asked.pop("name"), *asked.pop("args"), **asked), Target.cpu(level.name))
    (outcome,) = pool.build_all([variant], Store.open())
    assert outcome.artifact is not None
    bundle_writer.write(tmp_path / BUNDLE, [(variant, outcome.artifact)])
    monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "another machine's"))
    assert eval(call, wrapper).answer() == 42
    with pytest.raises(NotPrebuiltError, match=r"inline_shipped\.cpp changed since it was built"):
        eval(call, {**wrapper, "text": ANSWER.replace("42", "43")})
    del cache_dir


def test_the_texts_are_this_users_alone(cache_dir: Path) -> None:
    before = os.umask(0)
    try:
        kjit.load_inline("inline_answer", cpp_sources=ANSWER, functions="answer")
    finally:
        os.umask(before)
    (source,) = cache_dir.glob("inline/*/*")
    assert [source.stat().st_mode & 0o777, source.parent.stat().st_mode & 0o777] == [0o644, 0o700]


@pytest.mark.parametrize("number", [errno.EBUSY, errno.ESTALE])
def test_a_rename_that_fails_is_an_error_only_if_the_text_is_not_there(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(one: str, other: str, real: Any = os.replace) -> None:
        if number == errno.ESTALE:
            real(one, other)  # which a network disk may have done all the same
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(inline, "load_variant", lambda variant, **_: Path(variant.spec.cpp_files[0]).read_text())

    def load() -> Any:
        return kjit.load_inline("inline_answer", cpp_sources=ANSWER, functions="answer")

    if number == errno.ESTALE:
        assert load() == ANSWER
    else:
        with pytest.raises(OSError, match="busy"):
            load()
    assert cache_dir.exists()
