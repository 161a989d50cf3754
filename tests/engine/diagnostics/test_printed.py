"""kjit.engine.diagnostics.printed: the figures that `ptxas -v` prints for kernels, and compilers' lists of files."""

from __future__ import annotations

from kjit.engine.diagnostics.printed import KernelResources, parse_depfile, parse_resources, without_resources

PTXAS_INFO = """\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_Z2k2iPf' for 'sm_90a'
ptxas info    : Function properties for _Z2k2iPf
    400 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 368 bytes cmem[0]
ptxas info    : Compile time = 1.781 ms
ptxas info    : Compiling entry function '_Z2kkIfLi32EEvPT_' for 'sm_80'
ptxas info    : Function properties for _Z2kkIfLi32EEvPT_
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 128 bytes smem, 360 bytes cmem[0]
"""


def test_each_kernel_is_read() -> None:
    assert parse_resources(PTXAS_INFO) == [
        KernelResources("k2", "sm_90a", 10, 0, 8, 12, 400),
        KernelResources("kk<float, 32>", "sm_80", 14, 128, 0, 0, 0),
    ]


def test_no_kernel_is_no_error() -> None:
    assert parse_resources("ptxas info    : 0 bytes gmem\n") == []


def test_they_are_not_warnings() -> None:
    replaced = "nvcc warning : incompatible redefinition for option 'std', the last value of this option was used\n"
    assert without_resources(f"{PTXAS_INFO}{replaced}x.cu(1): warning: w\n") == "x.cu(1): warning: w\n"


def test_the_files_of_all_lines_are_read() -> None:
    assert parse_depfile("x.o: a.cpp \\\n b.h \\\n  /usr/c.h\n") == ["a.cpp", "b.h", "/usr/c.h"]


def test_odd_names_are_read_back() -> None:
    assert parse_depfile("x.o : /a\\ b/$$HOME/it's\\#1.h é.h\n") == ["/a b/$HOME/it's#1.h", "é.h"]


def test_an_empty_file_lists_nothing() -> None:
    assert parse_depfile("") == []
