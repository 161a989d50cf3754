"""The roles of a function's parameters: tensors, sizes, numbers, streams."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kjit.cpp_functions import Function, Parameter, Source, split_arguments
from kjit.dtypes import DTYPES
from kjit.errors import UsageError
from kjit.signature.names import free_name, parameter_problem

Use = Literal["read", "written", "changed"]

PAGE = "docs/from-torch-extensions.md"

_ELEMENTS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "fp8_e4m3",
    "__nv_fp8_e5m2": "fp8_e5m2",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long long": "int64",
    "unsigned long long": "uint64",
    "bool": "bool",
} | {dtype.cpp: dtype.name for dtype in DTYPES.values()}
"""Element types of pointers, and their names in a signature."""

_INTEGERS = (
    "int unsigned unsigned_int long unsigned_long long_long unsigned_long_long short size_t ssize_t ptrdiff_t int32_t"
    " uint32_t int64_t uint64_t index_t uint"
)
INTEGER_TYPES = {word.replace("_", " ") if word[-2:] != "_t" else word for word in _INTEGERS.split()}
_SIZE_NAME = re.compile(
    r"[nmkbdhst]|size|numel|count|length|len|total|elements|rows|cols|columns|width|height|batch|dim|hidden|heads|tokens"
    r"|channels|seqlen|num|(?:n|num)_\w+|\w+_(?:size|len|length|count|numel|elements|dim|rows|cols|n)"
)
_OUTPUT_NAME = re.compile(r"(?:out|output|dst|dest|res|result|ret)(?:_\w+|put\w*)?|\w+_out|y")
_TENSOR_VIEWS = ("TensorView", "Tensor", "TensorListView")


@dataclass(frozen=True)
class Roles:
    """The roles of a function's parameters in an op.

    Args:
        source: the file.
        function: a function in it.
        op: the name of the op.
        shown: the file, for messages.
        place: the file and the line of the function, for messages.
    """

    source: Source
    function: Function
    op: str
    shown: str
    place: str

    def refuse(self, reason: str, hint: str) -> UsageError:
        return UsageError(f"--from: {self.place}: {reason}", hint=hint)

    @property
    def all_template(self) -> tuple[Parameter, ...]:
        return self.function.class_template + self.function.template

    @property
    def tensors(self) -> list[Parameter]:
        return [p for p in self.function.parameters if p.is_pointer or self.is_view(p)]

    @property
    def sizes(self) -> list[Parameter]:
        """The parameters that are sizes of tensors."""
        return [p for p in self.function.parameters if p.base in INTEGER_TYPES and self.is_size(p)]

    def is_size(self, parameter: Parameter) -> bool:
        name = parameter.name.lower()
        if self.takes_views:
            return False
        compared = rf"<=?\s*{parameter.name}\b|\b{parameter.name}\s*>"
        is_bound = self.function.is_kernel and re.search(compared, self.function.body) is not None
        return _SIZE_NAME.fullmatch(name) is not None or is_bound

    @staticmethod
    def is_view(parameter: Parameter) -> bool:
        """Whether it is a TensorView, optional ones included."""
        return re.search(r"\bTensor(?:List)?(?:View)?\b", parameter.type) is not None

    @property
    def takes_views(self) -> bool:
        return any(self.is_view(parameter) for parameter in self.function.parameters)

    @property
    def variables(self) -> dict[str, str]:
        """The dtype variable for each type parameter of the template."""
        types = [p.name for p in self.all_template if p.type in ("typename", "class")]
        kept = [name for name in types if re.fullmatch(r"[A-Z][0-9]?", name)]
        free = [letter for letter in "TUVWXYZ" if letter not in kept]
        return {name: name if name in kept else free.pop(0) for name in types}

    def use(self, parameter: Parameter) -> Use:
        """The use of the tensor of a pointer or a view, from the code or from its name."""
        known = self.known_use(parameter)
        if known is not None:
            return known
        if _OUTPUT_NAME.fullmatch(parameter.name.lower()):
            return "written"
        return "read" if self.is_view(parameter) else "changed"

    def known_use(self, parameter: Parameter) -> Use | None:
        """Its use in the code of the function, or of the kernel that it is passed to; None if unclear."""
        kernel, inner = self.launched_with(parameter) or (self.function, parameter)
        if parameter.is_const or inner.is_const:
            return "read"
        body, name = kernel.body, inner.name
        seen = len(re.findall(rf"\b{name}\b", body))
        index = r"\s*\[(?:[^\[\]]|\[[^\[\]]*\])*\]\s*"
        cast = rf"\breinterpret_cast\s*<[^<>]*>\s*\(\s*{name}\s*\)"
        written = len(re.findall(rf"(?:\b{name}|{cast}){index}=(?!=)", body))
        if seen and seen == written:
            return "written"
        changes = rf"\b{name}\s*\[[^\]]*\]\s*(?:[-+*/|&^]=|\+\+|--)|atomic\w+\([^;]*\b{name}\b"
        return "changed" if written or re.search(changes, body) is not None else None

    def launched_with(self, parameter: Parameter) -> tuple[Function, Parameter] | None:
        """The kernel that a host function passes a pointer to, and its parameter for it."""
        launches = re.finditer(r"\b(\w+)\s*(?:<[^;<>]*>)?\s*<<<[^;]*?>>>\s*\(([^;]*)\)", self.function.body)
        for launch in launches:
            given = split_arguments(launch[2])
            for kernel in self.source.functions:
                if kernel.name == launch[1] and parameter.name in given and len(given) == len(kernel.parameters):
                    return kernel, kernel.parameters[given.index(parameter.name)]
        return None

    def element(self, parameter: Parameter) -> str:
        """The dtype of a pointer's elements, in a signature."""
        base = parameter.base.removeprefix("std::").removeprefix("kjit::")
        vector = re.fullmatch(r"(float|int|half|char|short)[1-4]", base)
        name = self.variables.get(base) or _ELEMENTS.get(base) or (_ELEMENTS[vector[1]] if vector else "")
        if not name:
            raise self.refuse(
                f"what '{parameter.type} {parameter.name}' points to is not a known dtype.",
                "give a signature, such as: x: float32[N] -> out: float32[N]",
            )
        return name

    def number(self, parameter: Parameter) -> str:
        """The type of a number, in a signature; empty if it is not a number."""
        if parameter.base in INTEGER_TYPES:
            return "int"
        if parameter.base.split("::")[-1] == "StringView":
            return "str"
        return {"float": "float", "double": "float", "bool": "bool", "half": "float", "__half": "float"}.get(
            parameter.base, "float" if parameter.base in self.variables and not parameter.is_pointer else ""
        )

    @staticmethod
    def is_stream(parameter: Parameter) -> bool:
        return parameter.base in ("cudaStream_t", "CUstream")

    def name(self, parameter: Parameter) -> str:
        """The name of a parameter in the op."""
        taken = {other.name for other in self.function.parameters}
        if parameter.name in ("in", "input") and "x" not in taken and self.op != "x":  # `input` is a builtin of Python
            return "x"
        lower = re.sub(r"_+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", parameter.name).lower()).strip("_")
        name = lower if parameter_problem(parameter.name) is not None else parameter.name
        others = [p.name for p in self.function.parameters if p is not parameter]
        return free_name(name, others, suffix="_in") if name == self.op or parameter_problem(name) else name

    @property
    def open_constants(self) -> list[Parameter]:
        """The template's numbers without a default."""
        return [p for p in self.all_template if p.type not in ("typename", "class") and not p.default]


def is_list(parameter: Parameter) -> bool:
    """Whether it is a list of tensors."""
    return parameter.base.split("::")[-1] == "TensorListView"


def is_callable(function: Function) -> bool:
    return any(
        parameter.is_pointer or parameter.base.split("::")[-1] in _TENSOR_VIEWS for parameter in function.parameters
    )
