"""kjit.projects.rename: the words of a text that mean an op."""

from __future__ import annotations

import pytest

from kjit.projects.rename import Renaming, cpp_words

FILES = {"softmax.cuh": "rows.cuh", "softmax.py": "rows.py", "test_softmax.py": "test_rows.py"}
SOURCE = """// softmax: row by row.
#include "softmax.cuh"
struct SoftmaxParams { float softmax; };
template <typename T>
__global__ void __launch_bounds__(kBlock) softmax_kernel(SoftmaxParams params) { use("softmax"); }
struct Softmax {
  static void run() { softmax_kernel<float>(SoftmaxParams{}); std::softmax(1); other_softmax(); }
};
KJIT_EXPORT(softmax, (Softmax::run));
"""


@pytest.fixture
def renaming() -> Renaming:
    return Renaming("softmax", "rows", "lib.kernels", FILES, cpp_words({"softmax.cuh": SOURCE}, "softmax", "rows"))


def test_of_a_source_what_the_op_defines_is_renamed_and_nothing_else(renaming: Renaming) -> None:
    assert renaming.in_cpp(SOURCE).splitlines() == [
        "// rows: row by row.",
        '#include "rows.cuh"',
        "struct RowsParams { float softmax; };",
        "template <typename T>",
        '__global__ void __launch_bounds__(kBlock) rows_kernel(RowsParams params) { use("softmax"); }',
        "struct Rows {",
        "  static void run() { rows_kernel<float>(RowsParams{}); std::softmax(1); other_softmax(); }",
        "};",
        "KJIT_EXPORT(rows, (Rows::run));",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from lib.kernels.softmax import T, _softmax, softmax", "from lib.kernels.rows import T, _rows, rows"),
        ("from .softmax import softmax", "from .rows import rows"),
        ("from . import softmax", "from . import rows"),
        ("import lib.kernels.softmax", "import lib.kernels.rows"),
        ("y = softmax(x) + x.softmax(-1) + torch.softmax(x)", "y = rows(x) + x.softmax(-1) + torch.softmax(x)"),
        ("module.softmax(x); _softmax(x).softmax(x)", "module.rows(x); _rows(x).rows(x)"),
        ("f(softmax=1, op=softmax)", "f(softmax=1, op=rows)"),
        ("class TestSoftmax: ...", "class TestRows: ..."),
        ('n = "softmax"; m = f"softmax: {x}"; o = "a softmax"', 'n = "rows"; m = f"rows: {x}"; o = "a rows"'),
        ('"""softmax, row by row, as `softmax` and `_softmax`."""', '"""rows, row by row, as `rows` and `_rows`."""'),
        ("# As in tests/test_softmax.py, not my_softmax.py.", "# As in tests/test_rows.py, not my_softmax.py."),
        ('s = f"Softmax<{args}>::run"', 's = f"Rows<{args}>::run"'),
        ('g(cuda_wrappers=[("softmax", "Softmax::run")])', 'g(cuda_wrappers=[("rows", "Rows::run")])'),
        ('g(cuda_wrappers=[("softmax", "std::softmax")])', 'g(cuda_wrappers=[("rows", "std::softmax")])'),
    ],
)  # fmt: skip
def test_of_python_what_means_the_op_is_renamed(renaming: Renaming, before: str, after: str) -> None:
    assert renaming.in_python(before) == after


def test_in_other_files_the_module_gets_its_new_name_and_the_op_keeps_the_one_it_has_there(renaming: Renaming) -> None:
    before = "from lib.kernels.softmax import (\n    DTYPES,\n    softmax,\n)  # both\nsoftmax(softmax.x)\n"
    after = "from lib.kernels.rows import (\n    DTYPES,\n    rows as softmax,\n)  # both\nsoftmax(softmax.x)\n"
    assert renaming.in_imports(before) == after
    assert renaming.in_imports("from torch.softmax import softmax\n") == "from torch.softmax import softmax\n"
