"""A unit sees the macros that nvcc defines for its passes, no more and no less, and with their expansions."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from both import VALUES, build_both, output_of
from cubins import variable_of

from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.locations import kjit_include

pytestmark = pytest.mark.nvcc

HEADERS = {
    "none": "",
    "common": "#include <cmath>\n#include <cstdint>\n#include <cuda_fp16.h>\n#include <limits>\n#include <string>\n",
    "many": "".join(
        f"#include <{name}>\n"
        for name in (
            *("algorithm", "atomic", "cassert", "cerrno", "cfloat", "charconv", "chrono", "cinttypes", "climits"),
            *(
                "cmath",
                "complex",
                "csignal",
                "cstdio",
                "cstdlib",
                "ctime",
                "functional",
                "iostream",
                "limits",
                "locale",
            ),
            *("map", "memory", "mutex", "optional", "random", "sstream", "thread", "tuple", "variant", "vector"),
            *("version", "endian.h", "fcntl.h", "sys/mman.h", "sys/stat.h", "unistd.h", "pthread.h", "cuda.h"),
            *("cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h", "cooperative_groups.h", "cuda/std/type_traits"),
        )
    ),
}

# What stands for where it is, or when.
_EACH_ITS_OWN = ("__COUNTER__", "__TIME__", "__DATE__", "__TIMESTAMP__", "__FILE__", "__LINE__", "__BASE_FILE__")

_NAMES = """__CUDACC_RTC__ __CUDA_ARCH__ __NVCC__ __NVCOMPILER __EDG__ __EDG_VERSION__ __clang__ __CUDA__ __CUDACC_DEBUG__
__CUDACC_EWP__ __CUDACC_RDC__ __CUDA_ARCH_FEAT_SM90_ALL __CUDA_ARCH_FAMILY_SPECIFIC__ __CUDA_ARCH_SPECIFIC__
__CUDACC_EXTENDED_LAMBDA__ __CUDA_PREC_DIV __CUDA_PREC_SQRT __CUDA_FTZ __CUDA_FMAD __USE_FAST_MATH__ __NVRTC__ NDEBUG
__CUDACC_DEVICE_ATOMIC_BUILTINS__ __CUDACC_INTEGRATED__ __has_builtin __has_feature __has_include __has_attribute
__cpp_rtti __cpp_exceptions __GXX_RTTI __EXCEPTIONS __OPTIMIZE__ __NO_INLINE__ __PIC__ __pic__ __PIE__ __pie__ _GNU_SOURCE
_GLIBCXX_HOSTED _GLIBCXX_USE_FLOAT128 __GLIBCXX__ _LIBCPP_VERSION __STRICT_ANSI__ __SIZEOF_FLOAT128__ __FLT128_DIG__
true false linux unix i386 NULL EOF assert errno stdin min max INFINITY NAN M_PI"""

_NUMBERS = """__has_builtin(__builtin_expect) __has_builtin(__builtin_bit_cast) __has_builtin(__builtin_FUNCTION)
__has_builtin(__builtin_nvptx) __has_builtin(__builtin_is_constant_evaluated) __has_include(<version>)
__has_include(<format>) __has_include(<cuda.h>) __has_include("unit.cu") __has_include(<kjit/ffi.h>) __has_attribute(packed)
__has_include(<kjit_rtc/device.h>) __has_include(<device.h>) __has_include(<number.h>) __has_cpp_attribute(likely)
__has_cpp_attribute(gnu::unused) __has_include(<cuda/std/array>) __has_include(<cub/cub.cuh>) __has_include(<nv/target>)"""

_TEXT = """#define SHOWN(...) SHOWN_AS_TEXT(__VA_ARGS__)
#define SHOWN_AS_TEXT(...) #__VA_ARGS__
{table}
extern "C" int printf(const char*, ...);
extern "C" int puts(const char*);
static const char of_host[] = TABLE;
__device__ const char of_device[] = TABLE;
__global__ void read(char* to, int i) {{ *to = of_device[i]; }}
extern "C" __attribute__((visibility("default"))) void {name}() {{
  for (const char* each = of_host; *each; ++each) printf("%c", *each);
  read<<<1, 1>>>(nullptr, 0);
}}
"""


@cache
def _passes() -> tuple[tuple[str, ...], ...]:
    """nvcc's two calls of the preprocessor, from its own list: for the host and for the device."""
    command = [str(find_cuda().nvcc.path), "--dryrun", "-std=c++20", "-O3", "--expt-relaxed-constexpr"]
    command += ["-gencode=arch=compute_90a,code=sm_90a", "-Xcompiler=-fPIC", "-c", "/unit.cu"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    found = {}
    for line in lines:
        words = line.removeprefix("#$ ")
        if " -E " in words:
            found["device" if "-D__CUDA_ARCH__" in words else "host"] = tuple(shlex.split(words))
    return found["host"], found["device"]


def _defined(headers: str, folder: Path) -> dict[str, str]:
    """The macros of both passes for a text, as `-dM` lists them: names, and their parameters and expansions."""
    source = folder / "list.cu"
    source.write_text(headers)
    found: dict[str, str] = {}
    for words in _passes():
        command = [word for word in words[: words.index("-o")] if word != "/unit.cu"]
        lines = subprocess.run([*command, "-dM", source], capture_output=True, text=True, check=True).stdout
        for match in re.finditer(r"^#define (\w+)(\(.*?\))?", lines, re.MULTILINE):
            found[match[1]] = match[2] or ""
    return found


def _of_kjit() -> Iterable[str]:
    """The names that kjit's headers for the halves define, and would leave behind."""
    for path in sorted(kjit_include().glob("kjit_rtc/**/*")):
        if path.is_file():
            yield from re.findall(r"^\s*#\s*define\s+(\w+)", path.read_text(), re.MULTILINE)


def _table(headers: str, folder: Path) -> str:
    """A text that lists the macros that it sees, with their expansions, in a table for each side."""
    found = dict.fromkeys((*_of_kjit(), *_NAMES.split()), "") | _defined(headers, folder)
    lines = []
    for number, (name, parameters) in enumerate(sorted(found.items())):
        if name in _EACH_ITS_OWN or name.startswith("KJIT_"):
            continue
        count = parameters.count(",") + 1 if parameters.strip("()") else 0
        call = f"{name}({', '.join(f'a{each}' for each in range(count))})" if parameters else name
        # Others of CUDA's need many arguments; what __has_include stands for is not a text.
        is_shown = (
            not name.startswith(("_NV_", "__has_", "_GLIBCXX_USE_TBB", "__managed__")) and "..." not in parameters
        )
        shown = f"SHOWN({call}) /*#{number}*/" if is_shown else '"is defined"'
        # In two pieces: whether a word in a literal is taken for code is the subject of another test.
        lines.append(f'#ifdef {name}\n"\\n{name[:3]}" "{name[3:]} " {shown}\n#endif')
    lines += [f'#if {each}\n"\\n{each.replace(chr(34), "")} holds"\n#endif' for each in _conditions()]
    return "\n".join(lines)


def _conditions() -> list[str]:
    return re.split(r"\s+(?=__has)", _NUMBERS)


def _text(headers: str, folder: Path) -> str:
    table = _table(headers, folder)
    text = _TEXT.replace("{table}", "").replace("TABLE", "\n" + table.replace("{", "{{").replace("}", "}}") + "\n")
    return headers + text.format(name=VALUES)


def _differences(by_nvcc: str, by_halves: str) -> list[str]:
    def entries(text: str) -> dict[str, str]:
        return dict(line.split(" ", 1) for line in text.strip().splitlines() if " " in line)

    one, other = entries(by_nvcc), entries(by_halves)
    return [
        f"{name}\n    nvcc:   {one.get(name, 'not defined')}\n    halves: {other.get(name, 'not defined')}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


@pytest.mark.parametrize("headers", ["none", "common", pytest.param("many", marks=pytest.mark.nightly)])
def test_a_unit_sees_nvccs_macros(headers: str, tmp_path: Path) -> None:
    pair = build_both(_text(HEADERS[headers], tmp_path), tmp_path)
    libraries = (pair.nvcc, *pair.halves)
    of_host = [output_of(library) for library in libraries]
    of_device = [variable_of(library, "of_device").decode().rstrip("\0") for library in libraries]
    assert len(of_host[0].splitlines()) > 300
    found = {"host": _differences(*of_host), "device": _differences(*of_device)}
    assert not any(found.values()), "\n".join(
        f"{len(lines)} macros differ in code for the {side}:\n" + "\n".join(lines) for side, lines in found.items()
    )
