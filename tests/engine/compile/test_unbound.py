"""kjit.engine.compile.unbound: undefined functions in modules whose flags allow them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

from kjit.engine.compile import unbound
from kjit.engine.compile.compile import Built, compile_variant
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CompileError
from kjit.spec import Spec, Target, Variant

_SOURCE = """
#include <kjit/ffi.h>

#include <cstdlib>
#include <string>

namespace heads {
template <typename T>
int plan(T mode);
}
extern "C" int finish(int);
extern "C" const char* Py_GetVersion();

int alive = 0;
struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
};

int plan(int mode) { return mode == 0 ? 0 : heads::plan<int>(mode); }
int finish_all(int x) {
  const Counted counted;
  return finish(x) + 1;
}
std::string python() { return Py_GetVersion(); }

KJIT_EXPORT(plan, plan)
KJIT_EXPORT(finish_all, finish_all)
KJIT_EXPORT(python_major, [] { return std::atoi(python().c_str()); })
KJIT_EXPORT(alive, [] { return alive; })
"""


def _build(tmp_path: Path, source: str, *flags: str) -> Built:
    (tmp_path / "lazy.cpp").write_text(source)
    variant = Variant(Spec("lazy", cpp_files=[tmp_path / "lazy.cpp"], extra_ldflags=flags), Target.cpu())
    staging = tmp_path / "staging"
    staging.mkdir()
    return compile_variant(variant, Toolchain.for_target(variant.target), staging)


class TestModule:
    @pytest.fixture(scope="class")
    def built(self, tmp_path_factory: pytest.TempPathFactory) -> Built:
        return _build(tmp_path_factory.mktemp("lazy"), _SOURCE, "-Wl,-z,undefs")

    @pytest.fixture
    def module(self, built: Built) -> Iterator[Any]:
        yield tvm_ffi.load_module(str(built.library))

    def test_a_call_that_reaches_no_undefined_function_is_as_any_other(self, module: Any) -> None:
        assert module.plan(0) == 0

    def test_a_call_that_reaches_one_is_an_error_that_names_it(self, module: Any) -> None:
        with pytest.raises(RuntimeError, match=r"undefined function: int heads::plan<int>\(int\) was called"):
            module.plan(1)
        with pytest.raises(RuntimeError, match="undefined function: finish was called"):
            module.finish_all(1)
        assert module.alive() == 0  # what was on the way has been destroyed

    def test_what_the_process_has_is_called(self, module: Any) -> None:
        assert module.python_major() == 3

    def test_the_build_has_nothing_to_say_of_it(self, built: Built) -> None:
        assert built.warnings == ""


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        (["-Wl,-z,undefs"], True),
        (["-Wl,-z,lazy"], True),
        (["-z", "lazy", "-lm"], True),
        (["-Wl,-z", "-Wl,undefs"], True),
        (["-Xlinker", "-z", "-Xlinker", "undefs"], True),
        (["-Wl,-z,undefs,-z,now"], False),
        (["-Wl,-z,defs"], False),
        (["-lundefs", "-Wl,-rpath,/lazy"], False),
        ([], False),
    ],
)
def test_the_flags_of_the_link_ask_for_it(flags: list[str], asks: bool) -> None:
    assert unbound.asks(flags) is asks


def test_a_module_without_undefined_functions_gets_no_stubs(tmp_path: Path) -> None:
    built = _build(tmp_path, "#include <kjit/ffi.h>\nKJIT_EXPORT(one, [] { return 1; })\n", "-Wl,-z,undefs")
    assert tvm_ffi.load_module(str(built.library)).one() == 1
    assert list((tmp_path / "staging").glob("lazy.unbound.*")) == []


def test_what_fails_besides_is_an_error_of_the_link(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"lazy cpu does not link\.\n.*cannot find -lnowhere"):
        _build(tmp_path, "int __tvm_ffi_f() { return 1; }\n", "-Wl,-z,undefs", "-lnowhere")
