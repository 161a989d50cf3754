"""An op from an existing kernel: its function, a signature for it, and the call that passes it tensors.

The file stays as it is: an op's own file includes it, checks the tensors and calls its host function or launches its
kernel. What C++ parameters do not say (the sizes of a tensor) is not guessed: an error asks for it, with a
signature as an example.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kjit.adoption.source import Function, Parameter, Source, read_source, split_arguments
from kjit.dtypes import DTYPES
from kjit.errors import UsageError
from kjit.signature.names import free_name, parameter_problem
from kjit.signature.parser import parse_signature
from kjit.signature.signature import Scalar, Signature, Tensor

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
_INTEGER_TYPES = {word.replace("_", " ") if word[-2:] != "_t" else word for word in _INTEGERS.split()}
_SIZE_NAME = re.compile(
    r"[nmkbdhst]|size|numel|count|length|len|total|elements|rows|cols|columns|width|height|batch|dim|hidden|heads|tokens"
    r"|channels|seqlen|num|(?:n|num)_\w+|\w+_(?:size|len|length|count|numel|elements|dim|rows|cols|n)"
)
_OUTPUT_NAME = re.compile(r"(?:out|output|dst|dest|res|result|ret)(?:_\w+|put\w*)?|\w+_out|y")
_TENSOR_VIEWS = ("TensorView", "Tensor", "TensorListView")
_TORCH = re.compile(r"(?:torch|ATen|c10|pybind11)/")


@dataclass(frozen=True)
class Adoption:
    """A function of a file, as an op.

    Args:
        path: of the file.
        function: the function that is called or launched.
        signature: of the op.
        arguments: of the call, as expressions of parameters and of symbols that the op's checks bind.
        template: its template's arguments, `<T>`; empty without a template.
        class_template: those of the class around it.
        notes: guesses that should be reviewed, one sentence each.
        own_includes: files in quotes that it includes.
    """

    path: Path
    function: Function
    signature: Signature
    arguments: tuple[str, ...]
    template: str
    class_template: str
    notes: tuple[str, ...]
    own_includes: tuple[str, ...]

    @property
    def counted(self) -> str:
        """The result that the initial grid has a thread for each element of."""
        return (*self.signature.outputs, *self.signature.mutated)[0].name

    @property
    def is_empty(self) -> str:
        """The condition that there is nothing to write, in C++."""
        results = (*self.signature.outputs, *(t for t in self.signature.mutated if not (t.optional or t.listed)))
        return " && ".join(f"{result.name}.numel() == 0" for result in results) or "false"

    @property
    def takes_tvm_types(self) -> bool:
        """Whether its parameters are those of tvm-ffi's own C++."""
        return any("tvm::" in parameter.type for parameter in self.function.parameters)

    @property
    def callee(self) -> str:
        """The function or the kernel, with its template's arguments."""
        scope = "".join(f"{name}::" for name in self.function.scope).removesuffix("::")
        return f"{scope}{self.class_template}{'::' if scope else ''}{self.function.name}{self.template}"

    @property
    def returns_error(self) -> bool:
        """Whether its return value is an error code."""
        return self.function.returns == "cudaError_t"

    @property
    def needs_shared(self) -> bool:
        """Whether it uses dynamic shared memory."""
        return self.function.is_kernel and re.search(r"\bextern\b[^;]*__shared__", self.function.body) is not None

    @property
    def block(self) -> int:
        """Threads in a block."""
        return self.function.bounds or 256


def adopt(path: Path, op: str, *, function: str | None, signature: str | None) -> Adoption:
    """Find the function of a file for an op, a signature, and the arguments of the call.

    Args:
        path: of the CUDA file.
        op: the name of the op.
        function: the name of a function in it; None: the only one.
        signature: in the signature language; None: the one that the function's parameters imply.

    Raises:
        UsageError: the file cannot be read or needs torch's headers; it has no such function, or several; its
            parameters do not imply a signature, or do not match the one that is given.
    """
    shown = str(path)
    path = Path(os.path.abspath(path))
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--from: '{shown}' cannot be read: {error.strerror}.") from error
    source = read_source(text)
    for name, line in source.includes:
        if _TORCH.match(name):
            raise UsageError(
                f"--from: {shown}:{line} includes <{name}>, and torch's headers are no part of kjit's builds.",
                hint=f"put the kernel into a file without it, and take that; {PAGE} has what stands for torch's words",
            )
    chosen = _choose(source, function, shown)
    adopting = _Adopting(source, chosen, op, shown, f"{shown}:{chosen.line}")
    parsed = parse_signature(adopting.proposed() if signature is None else signature)
    arguments = tuple(adopting.argument(parameter, parsed) for parameter in chosen.parameters)
    return Adoption(
        path,
        chosen,
        parsed,
        arguments,
        adopting.template(chosen.template, parsed),
        adopting.template(chosen.class_template, parsed),
        tuple(adopting.notes(signature)),
        source.own_includes,
    )


def _choose(source: Source, name: str | None, shown: str) -> Function:
    """The function of that name; without a name, the only host function, else the only kernel."""
    if name is not None:
        named = [f for f in source.functions if name in (f.qualified, f.name)]
        if len(named) == 1:
            return named[0]
        others = ", ".join(f.qualified for f in source.functions) or "none"
        reason = f"has {len(named)} functions" if named else "has no function"
        raise UsageError(f"--function: '{shown}' {reason} '{name}'.", hint=f"it has: {others}")
    callable_ones = [f for f in source.functions if not f.is_kernel and _is_callable(f)]
    kernels = [f for f in source.functions if f.is_kernel]
    for candidates in (callable_ones, kernels):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            listed = "\n".join(f"    {shown}:{f.line}: {f}" for f in candidates)
            raise UsageError(
                f"--from: '{shown}' has several functions:\n{listed}",
                hint=f"say which one: --function {candidates[0].qualified}",
            )
    raise UsageError(
        f"--from: '{shown}' has neither a __global__ kernel nor a function that takes pointers or TensorViews.",
        hint="a function has to have its body in the file; device functions cannot be called",
    )


def _is_list(parameter: Parameter) -> bool:
    """Whether it is a list of tensors."""
    return parameter.base.split("::")[-1] == "TensorListView"


def _is_callable(function: Function) -> bool:
    return any(
        parameter.is_pointer or parameter.base.split("::")[-1] in _TENSOR_VIEWS for parameter in function.parameters
    )


@dataclass(frozen=True)
class _Adopting:
    source: Source
    function: Function
    op: str
    shown: str
    place: str

    def refuse(self, reason: str, hint: str) -> UsageError:
        return UsageError(f"--from: {self.place}: {reason}", hint=hint)

    # The parameters.

    @property
    def all_template(self) -> tuple[Parameter, ...]:
        return self.function.class_template + self.function.template

    @property
    def tensors(self) -> list[Parameter]:
        return [p for p in self.function.parameters if p.is_pointer or self.is_view(p)]

    @property
    def sizes(self) -> list[Parameter]:
        """The parameters that are sizes of tensors."""
        return [p for p in self.function.parameters if p.base in _INTEGER_TYPES and self.is_size(p)]

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
        """How the tensor behind a pointer or a view is used, by the code or by its name."""
        known = self.known_use(parameter)
        if known is not None:
            return known
        if _OUTPUT_NAME.fullmatch(parameter.name.lower()):
            return "written"
        return "read" if self.is_view(parameter) else "changed"

    def known_use(self, parameter: Parameter) -> Use | None:
        """How the code of the function uses it, or of the kernel that it is passed to; None if unclear."""
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

    # The signature.

    def proposed(self) -> str:
        """The signature that the parameters imply."""
        for parameter in self.function.parameters:
            self.check_parameter(parameter)
        if not self.tensors:
            raise self.refuse(
                "it takes no pointer and no TensorView.", "an op works on tensors: choose another function"
            )
        shapes = self.matched_shapes() if self.takes_views else {}
        if self.takes_views and set(shapes) != {parameter.name for parameter in self.tensors}:
            missing = next(p.name for p in self.tensors if p.name not in shapes)
            raise self.refuse(
                f"no TensorMatcher checks the shape and dtype of '{missing}'.",
                self.example("T[...]" if self.variables else "float32[...]"),
            )
        sizes = [self.dimension(parameter) for parameter in self.sizes]
        if not self.takes_views and len(sizes) != 1:
            found = f"{len(sizes)} sizes ({', '.join(p.name for p in self.sizes)})" if sizes else "no size"
            raise self.refuse(
                f"'{self.function.name}' takes {found}, and its parameters do not say which tensor has which.",
                self.example(f"[{', '.join(sizes) or 'N'}]"),
            )
        return self.written(lambda parameter: shapes.get(parameter.name) or f"{self.element(parameter)}[{sizes[0]}]")

    def example(self, shape: str) -> str:
        """A hint with a valid signature to start from."""
        made = self.written(lambda p: shape if shape[0] != "[" else f"{self.element(p)}{shape}")
        chosen = f" --function {self.function.qualified}" if len(self.source.functions) > 1 else ""
        return f'give a signature: kjit new {self.op} "{made}" --from {self.shown}{chosen}'

    def written(self, typed: Callable[[Parameter], str]) -> str:
        """The signature, with the type of a tensor from `typed`."""
        uses = {parameter.name: self.use(parameter) for parameter in self.tensors}
        if "read" not in uses.values():  # no input would determine the size of an output
            uses = dict.fromkeys(uses, "changed")
        given: list[str] = []
        optional: list[str] = []
        outputs: list[str] = []
        for parameter in self.function.parameters:
            name = self.name(parameter)
            if parameter in self.tensors:
                use, is_optional = uses[parameter.name], "ptional<" in parameter.type
                if _is_list(parameter) and use == "written":  # an output cannot be a list
                    use = "changed"
                words = ("mut " if use == "changed" else "") + ("Optional " if is_optional else "")
                text = f"{name}: {words}{f'list[{typed(parameter)}]' if _is_list(parameter) else typed(parameter)}"
                if is_optional:
                    optional.append(f"{text} = None")
                else:
                    (outputs if use == "written" else given).append(text)
            elif parameter not in self.sizes and not self.is_stream(parameter):
                given.append(f"{name}: {self.number(parameter)}")
        constants = [f"{name}: const {kind} = {default}" for name, kind, default in self.constants()]
        left = ", ".join([*given, *optional, *constants])
        return left + (f" -> {', '.join(outputs)}" if outputs else "")

    def check_parameter(self, parameter: Parameter) -> None:
        if not parameter.name:
            raise self.refuse(f"a parameter of type '{parameter.type}' has no name.", "give it one")
        if parameter in self.tensors or parameter in self.sizes or self.is_stream(parameter):
            return
        if self.number(parameter) == "":
            raise self.refuse(
                f"'{parameter.type} {parameter.name}' is neither a tensor nor a number.",
                f"call it from a function of your own that takes TensorViews, and take that; {PAGE} has examples",
            )

    def element(self, parameter: Parameter) -> str:
        """The dtype of a pointer's elements, in a signature."""
        base = parameter.base
        if base in self.variables:
            return self.variables[base]
        vector = re.fullmatch(r"(float|int|half|char|uchar|short|uint)[1-4]", base)
        name = _ELEMENTS.get(base.removeprefix("std::").removeprefix("kjit::"))
        name = name or (
            _ELEMENTS.get({"uchar": "unsigned char", "uint": "unsigned"}.get(vector[1], vector[1])) if vector else ""
        )
        if parameter.type.count("*") > 1:
            raise self.refuse(
                f"'{parameter.type} {parameter.name}' points to pointers.", f"write the op by hand: {PAGE}"
            )
        if not name:
            raise self.refuse(
                f"what '{parameter.type} {parameter.name}' points to is not a known dtype.",
                "give a signature, such as: x: float32[N] -> out: float32[N]",
            )
        return name

    def number(self, parameter: Parameter) -> str:
        """The type of a number, in a signature; empty if it is not a number."""
        if parameter.base in _INTEGER_TYPES:
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

    @staticmethod
    def dimension(parameter: Parameter) -> str:
        """The dimension for a size."""
        name = parameter.name.upper()
        return name if parameter_problem(name, dimension=True) is None else "N"

    def constants(self) -> list[tuple[str, str, str]]:
        """The template's numbers without a default: name, type, value in the signature."""
        found = []
        for parameter in self.open_constants:
            kind = "bool" if parameter.type == "bool" else "int"
            default = parameter.default or ("True" if kind == "bool" else "1")
            found.append((parameter.name.lower(), kind, {"true": "True", "false": "False"}.get(default, default)))
        return found

    @property
    def open_constants(self) -> list[Parameter]:
        """The template's numbers without a default."""
        return [p for p in self.all_template if p.type not in ("typename", "class") and not p.default]

    def matched_shapes(self) -> dict[str, str]:
        """The type of each tensor, according to the TensorMatchers in the function."""
        body = self.function.body
        symbols = set(re.findall(r"\b(\w+)\s*=\s*SymbolicSize\b", body))
        for declared in re.findall(r"\bSymbolicSize\s+([^;]*);", body):
            symbols |= set(re.findall(r"\b(\w+)\s*[{(]", declared))
        opened = set(re.findall(r"\bSymbolicShape\s+(\w+)", body))
        types: dict[str, str] = {}
        call = r"\s*\.\s*(?:template\s+)?\w+\s*(?:<[^;()]*>)?\s*\([^;()]*\)"
        for shape, chain in re.findall(rf"\bTensorMatcher\s*(?:\w+\s*)?\(([^;()]*)\)((?:{call})*)", body):
            sizes = [size.strip() for size in re.sub(r"[{}]", "", shape).split(",") if size.strip()]
            dims = ["..." if size in opened else size for size in sizes]
            if any(size not in symbols and size != "..." and not size.isdecimal() for size in dims):
                continue
            dtype = re.search(r"with_dtype\s*<\s*([\w:]+)\s*>", chain)
            name = (
                (self.variables.get(dtype[1]) or _ELEMENTS.get(dtype[1].split("::")[-1])) if dtype is not None else None
            )
            if name is None:
                continue
            for tensor in re.findall(r"verify\s*\(\s*(\w+)", chain):
                types[tensor] = f"{name}[{', '.join(dims)}]"
        return types

    # The call.

    def template(self, parameters: Sequence[Parameter], signature: Signature) -> str:
        """The arguments of a template with these parameters."""
        given = []
        constants = {constant.name.lower(): constant for constant in signature.constants}
        for parameter in parameters:
            if parameter.type in ("typename", "class"):
                given.append(self.variable(parameter, signature))
            elif parameter.name.lower() in constants:
                given.append(constants[parameter.name.lower()].name)
            elif parameter.default:
                break
            else:
                kind = "bool" if parameter.type == "bool" else "int"
                raise self.refuse(
                    f"the template takes '{parameter.type} {parameter.name}', and the signature has no such constant.",
                    f"add it: {parameter.name.lower()}: const {kind} = {'True' if kind == 'bool' else '1'}",
                )
        return f"<{', '.join(given)}>" if given else ""

    def variable(self, parameter: Parameter, signature: Signature) -> str:
        """The argument for a type parameter: the element type of a tensor."""
        for pointer in self.tensors:
            if pointer.base == parameter.name:
                tensor = self.tensor(pointer, signature)
                return tensor.dtype if isinstance(tensor.dtype, str) else tensor.dtype.cpp
        variables = signature.variables
        wanted = self.variables[parameter.name]
        if wanted in variables:
            return wanted
        raise self.refuse(
            f"no tensor has the template's type '{parameter.name}', so a call cannot name it.",
            "call it from a function of your own that names it, and take that one",
        )

    def tensor(self, parameter: Parameter, signature: Signature) -> Tensor:
        named = [
            t for t in signature.tensors if t.name.lower() in (parameter.name.lower(), self.name(parameter).lower())
        ]
        if not named:
            raise self.refuse(
                f"'{parameter.type} {parameter.name}' is not a tensor of the signature.",
                f"name one so: {self.name(parameter)}: {'mut ' if self.use(parameter) == 'changed' else ''}float32[N]",
            )
        return named[0]

    def argument(self, parameter: Parameter, signature: Signature) -> str:
        """The argument for a parameter."""
        if self.is_stream(parameter):
            return "LaunchKernel::resolve_device(gpu.unwrap())"
        if self.is_view(parameter) or parameter.is_pointer:
            tensor = self.tensor(parameter, signature)
            if tensor.listed != _is_list(parameter):
                raise signature.error(
                    tensor,
                    f"'{self.function.name}' takes '{parameter.type} {parameter.name}', and a list of tensors is a"
                    " TensorListView.",
                    f"write {replace(tensor, listed=not tensor.listed)}",
                )
        if self.is_view(parameter):
            return tensor.name
        if parameter.is_pointer:
            is_read_only = tensor in signature.inputs and not tensor.mutable
            if is_read_only and self.known_use(parameter) in ("written", "changed"):
                raise signature.error(
                    tensor,
                    f"'{self.function.name}' changes what '{parameter.type} {parameter.name}' points to.",
                    f"write {replace(tensor, mutable=True)}, or make it an output",
                )
            if tensor.strided:
                raise signature.error(
                    tensor,
                    f"'{self.function.name}' gets a pointer to '{tensor.name}' and no strides.",
                    f"write {replace(tensor, strided=False)}",
                )
            pointee = self.substituted(parameter.type.removesuffix("*").strip(), signature)
            if tensor.optional:
                return f"data_of<{pointee}>({tensor.name})"
            return f"static_cast<{pointee}*>({tensor.name}.data_ptr())"
        numbers = [p for p in signature.parameters if isinstance(p, Scalar)]
        for number in numbers:
            if number.name.lower() in (parameter.name.lower(), self.name(parameter).lower()):
                if number.optional:
                    raise signature.error(
                        number,
                        f"'{self.function.name}' takes '{parameter.type} {parameter.name}', which is required.",
                        f"write {replace(number, optional=False)}",
                    )
                return f"static_cast<{self.substituted(parameter.base, signature)}>({number.name})"
        if parameter.base in _INTEGER_TYPES:
            return f"static_cast<{parameter.base}>({self.size(parameter, signature)})"
        raise self.refuse(
            f"'{parameter.type} {parameter.name}' is not in the signature.",
            f"add it: {parameter.name.lower()}: {self.number(parameter) or 'float'}",
        )

    def substituted(self, text: str, signature: Signature) -> str:
        """A type with the template's type parameters replaced."""
        for parameter in self.all_template:
            if parameter.type in ("typename", "class") and re.search(rf"\b{parameter.name}\b", text):
                text = re.sub(rf"\b{parameter.name}\b", self.variable(parameter, signature), text)
        return text

    def size(self, parameter: Parameter, signature: Signature) -> str:
        """The size for a number: the dimension of that name, or the only one."""
        dimensions = signature.dimensions
        named = [d for d in dimensions if d.lower() == parameter.name.lower()]
        is_lone = len(self.sizes) == 1 and parameter in self.sizes
        if is_lone and not named and all(len(t.shape) == 1 for t in signature.tensors) and len(dimensions) == 1:
            named = list(dimensions)
        if named:
            return f"{named[0]}.unwrap()"
        if is_lone and len({t.shape for t in signature.tensors}) == 1:  # the elements of all
            return f"{signature.tensors[0].name}.numel()"
        raise self.refuse(
            f"'{parameter.type} {parameter.name}' is neither a dimension nor a number of the signature.",
            f"name a dimension {self.dimension(parameter)}, or add a parameter {parameter.name.lower()}: int",
        )

    def notes(self, given: str | None) -> Sequence[str]:
        """The guesses, one sentence each."""
        notes = []
        if given is None:
            notes.append(f"the signature is read from {self.place}; pass one of your own if it is wrong")
        if self.function.is_kernel:
            notes.append(
                f"how '{self.function.name}' is launched is a guess, a thread for each element: look at the grid"
            )
        has_stream = any(self.is_stream(parameter) for parameter in self.function.parameters)
        if not self.function.is_kernel and not self.takes_views and not has_stream:
            notes.append(
                f"'{self.function.name}' takes no cudaStream_t, and PyTorch's stream may be another than its own"
            )
        for parameter in self.open_constants if given is None else ():
            notes.append(f"the value of '{parameter.name}', a parameter of its template, is a guess")
        return notes
