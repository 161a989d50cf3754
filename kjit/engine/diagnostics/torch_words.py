"""kjit's equivalents of names in PyTorch's C++ API and pybind11.

Kernels from torch extensions use these names, which are unknown to the compiler here. docs/from-torch-extensions.md has
the same table for readers.
"""

from __future__ import annotations

import re

_DTYPES = (
    "a dtype is a template argument here, as in Scale<T>::run: `make_cpp_args(x.dtype)` in Python hands it on, and "
    "each dtype is a module of its own"
)
_STREAM = (
    "host::LaunchKernel(grid, block, x.device())(kernel, ...) launches on torch's stream; as a handle that is "
    "host::LaunchKernel::resolve_device(x.device()) (<kjit/launch.h>)"
)
_TENSOR = "a tensor is a TensorView as an argument and a host::ffi::Tensor as a result (<kjit/ffi.h>)"
_EXPORT = (
    "write KJIT_EXPORT(name, function) (<kjit/ffi.h>), or name the function in the wrappers of the module in Python"
)

# Names that only torch and pybind11 have, with or without their namespaces.
_WORDS = (
    (
        r"TORCH_CHECK\w*|TORCH_INTERNAL_ASSERT\w*|AT_ASSERTM?|AT_ERROR",
        (
            'write host::RuntimeCheck(condition, "why", value) '
            "(<kjit/utils.h>); what tensors must be, a TensorMatcher checks (<kjit/tensor.h>)"
        ),
    ),
    (r"AT_DISPATCH_\w+|AT_PRIVATE_CASE_TYPE\w*|AT_EXPAND", _DTYPES),
    (
        r"(?:C10|AT|TORCH)_CUDA(?:_DRIVER)?_(?:CHECK|KERNEL_LAUNCH_CHECK)\w*|CUDA_KERNEL_LAUNCH_CHECK",
        (
            "a call is checked "
            "by CHECK_CUDA(call) or host::RuntimeDeviceCheck(call); a launch by host::LaunchKernel itself "
            "(<kjit/launch.h>)"
        ),
    ),
    (r"getCurrentCUDAStream|getDefaultCUDAStream|CUDAStream|getStreamFromPool", _STREAM),
    (
        r"(?:Optional)?CUDAGuard|DeviceGuard|OptionalDeviceGuard|CUDAStreamGuard",
        (
            "host::LaunchKernel makes the device "
            "current for its launch; around other calls that is host::DeviceGuard guard(x.device()) (<kjit/launch.h>)"
        ),
    ),
    (
        r"(?:Generic)?PackedTensorAccessor\w*|TensorAccessor|RestrictPtrTraits",
        ("pass x.data_ptr<T>() and what is needed of x.stride(i) to the kernel"),
    ),
    (r"PYBIND11_MODULE|TORCH_EXTENSION_NAME|pybind11", _EXPORT),
    (r"TORCH_LIBRARY\w*", f"{_EXPORT}; `@kjit.torch_op` in Python makes it an operator of torch"),
    (r"TVM_FFI_DLL_EXPORT_TYPED_FUNC", f"{_EXPORT}; tvm-ffi's own macro is there with <kjit/tvm_ffi.h>"),
    (
        (
            r"BFloat16|Half|Float8_e4m3fn|Float8_e5m2|kHalf|kBFloat16|kFloat(?:16|32|64)?|kInt|kLong|kDouble"
            r"|kBool|kByte|ScalarType|opmath_type"
        ),
        (
            "element types are fp16_t, bf16_t, fp8_e4m3_t, fp8_e5m2_t and C++'s own "
            "(<kjit/dtype.h>), and host::is_type<T>(x.dtype()) compares with one; compute_t<T> is what T is computed in"
        ),
    ),
    (
        r"(?:empty|zeros|ones|full|rand|randn)(?:_like|_strided)?|TensorOptions|from_blob",
        (
            "host::ffi::empty(shape, dtype, "
            "device) and empty_like(x) make a tensor in torch's memory (<kjit/ffi.h>); or make it in Python"
        ),
    ),
    (r"Tensor|TensorBase|TensorList|IntArrayRef|ArrayRef|Device|optional", _TENSOR + "; None comes as Optional<T>"),
)
# Members of a tensor, recognised only after one.
_MEMBERS = (
    (
        (
            r"contiguous|clone|to|cuda|cpu|view|reshape|flatten|t|transpose|permute|squeeze|unsqueeze|narrow|select"
            r"|slice|expand"
        ),
        (
            "a TensorView only looks at the caller's tensor: call .{name}() in Python, and check here what came "
            "(TensorMatcher, x.is_contiguous())"
        ),
    ),
    (
        r"(?:generic_)?packed_accessor(?:32|64)?|accessor",
        ("pass x.data_ptr<T>() and what is needed of x.stride(i) to the kernel"),
    ),
    (r"mutable_data_ptr|const_data_ptr|data", "write x.data_ptr<T>(), or x.data_ptr<const T>()"),
    (
        r"scalar_type|type|options|element_size|itemsize",
        (
            "x.dtype() is its DLDataType, host::dtype_bytes(x.dtype()) the "
            f"size of an element; in place of AT_DISPATCH, {_DTYPES}"
        ),
    ),
    (
        r"is_cuda|is_cpu|get_device|device_type|is_floating_point",
        (
            "x.device().device_type is kDLCUDA or kDLCPU, "
            "x.device().device_id the index; a TensorMatcher checks it, and the dtype (<kjit/tensor.h>)"
        ),
    ),
    (
        r"zero_|fill_|copy_|add_|mul_|sum|item|add|mul",
        ("a TensorView has no operators of torch: call .{name}() in Python, or write it as a kernel"),
    ),
)
_NAMESPACES = ("at", "c10", "torch", "py", "pybind11")

_HEADER = re.compile(
    r"(?<![\w/])(?P<name>(?:torch|ATen|c10|pybind11|caffe2)/[\w./]+)"
    r"['\"]?(?:: No such file or directory| file not found)"
    r"|cannot open source file \"(?P<edg>(?:torch|ATen|c10|pybind11|caffe2)/[\w./]+)\""
)
_UNKNOWN = re.compile(
    r"has not been declared|was not declared|undeclared identifier|is undefined|does not name a type|no member"
    r"|no template named|no type named|is not a member of|unknown type name|must be a class or namespace name"
    r"|type specifier|declared void|expected constructor, destructor, or type conversion"
    r"|expected (?:a declaration|unqualified-id)"
)
# `x.data_ptr<float>()` on a type whose data_ptr is not a template.
_NO_TEMPLATE = re.compile(
    r"invalid use of member function '[^']*data_ptr\(\)|'data_ptr' does not name a template"
    r"|pointer to a bound function may only be used to call|type name is not allowed"
)
_NAMELESS = re.compile(r"must be a class or namespace name|type specifier|declared void|expected ")
_QUOTED = re.compile(r"['\"](?:[\w:]*::)?(\w+)['\"]")
_OF_TENSOR = re.compile(r"['\" :]Tensor(?:View)?\b")


def hint(text: str, code: str | None) -> str | None:
    """The replacement, if an error is about a name of torch; None otherwise.

    Args:
        text: the text of the message. code: the line that it is about, if known.
    """
    if (header := _HEADER.search(text)) is not None:
        return (
            f"kjit compiles without torch's headers: in place of <{header['name'] or header['edg']}> include "
            "<kjit/tensor.h>, and <kjit/launch.h> where CUDA kernels are launched"
        )
    if _NO_TEMPLATE.search(text) is not None and re.search(r"\bdata_ptr\s*<", code or "") is not None:
        return (
            "tvm-ffi's own TensorView has no data_ptr<T>(): write static_cast<T*>(x.data_ptr()), or take kjit's "
            "TensorView (<kjit/ffi.h>)"
        )
    if _UNKNOWN.search(text) is None:
        return None
    names = _QUOTED.findall(text)
    if _OF_TENSOR.search(text) is not None and "member" in text:
        for name in names:
            if (found := _in(_MEMBERS, name)) is not None:
                return found.format(name=name)
    line = re.sub(r"//.*|\"(?:\\.|[^\"\\])*\"", "", code or "")
    of_torch = "|".join(_NAMESPACES)
    is_nameless = _NAMELESS.search(text) is not None
    if is_nameless or any(name in _NAMESPACES for name in names):
        for word in re.findall(rf"(?<![\w:])(?:{of_torch})::(?:\w+::)*(\w+)", line):
            if (found := _in(_WORDS, word)) is not None:
                return found
        if re.search(rf"(?<![\w:])(?:{of_torch})::", line):
            return "kjit compiles without torch's headers: docs/from-torch-extensions.md has its words for torch's"
    if "host" in names or (is_nameless and re.search(r"(?<![\w:])host::", line)):
        return "kjit's names are in the namespace kjit: write `using namespace kjit;`, or kjit::host::"
    for name in [*names, *(re.findall(r"^\s*(\w+)\s*\(", line) if is_nameless else ())]:
        # Without a namespace, only names that are unlikely elsewhere.
        if re.match(r"[A-Z]+\d*_|(?:getCurrent|getDefault)CUDAStream", name) and (found := _in(_WORDS, name)):
            return found
    return None


def _in(table: tuple[tuple[str, str], ...], name: str) -> str | None:
    return next((meant for names, meant in table if re.fullmatch(names, name)), None)
