"""`kjit inspect`: the machine code of an op's kernels, and how a change affects it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kjit.cli import console, text
from kjit.cli.options import Archs, JsonNumbers, Op
from kjit.errors import UsageError

if TYPE_CHECKING:
    from kjit.engine.cache.store import Artifact
    from kjit.engine.diagnostics.machine_code import Kernel
    from kjit.inspection import Code, Difference
    from kjit.planning.wrappers import Collected
    from kjit.project import Project
    from kjit.spec import Spec, Target, Variant


def inspect(
    op: Op,
    sass: Annotated[bool, typer.Option("--sass", help="Show machine code, interleaved with its source lines.")] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Show PTX, interleaved with its source lines.")] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Show a table: registers, spills, shared memory, widths of loads.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REV|FILE",
            help="Show the differences from this git revision, or from this library or cubin.",
        ),
    ] = None,
    arch: Archs = None,
    variant: Annotated[
        str | None, typer.Option("--variant", metavar="TEXT", help="Only variants with this in their name.")
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="TEXT", help="Only kernels with this in their name.")
    ] = None,
    json: JsonNumbers = False,
) -> None:
    """Show an op's kernels: registers, spills, instructions.

    Needs nvcc or NVRTC, and no GPU: --arch names the GPU to compile for. --sass and --ptx show one variant, the first
    unless --variant names another.

    Exit status 1: it does not compile.
    """
    from kjit import inspection
    from kjit.engine.toolchain.archs import resolve_archs
    from kjit.engine.toolchain.cuda_tools import find_tool
    from kjit.planning import wrappers
    from kjit.project import find_project
    from kjit.spec import Target

    views = {"--sass": sass, "--ptx": ptx, "--resources": resources, "--against": against is not None, "--json": json}
    given = [name for name, is_given in views.items() if is_given]
    if len(given) > 1 and given not in (["--resources", "--json"], ["--against", "--json"]):
        raise UsageError(f"{' and '.join(given)} exclude each other.")
    project = find_project()
    if not ptx:
        find_tool("cuobjdump")
        find_tool("nvdisasm")
    specs = _specs(wrappers.collect(project, [op]), op, variant)
    targets = [Target.cuda(each) for each in resolve_archs(arch or None)]
    if sass or ptx:
        specs, targets = specs[:1], targets[:1]
    if ptx:
        code, text = _ptx(specs[0], targets[0])
        console.say(code.heading)
        for line in inspection.ptx_listing(text, code.sources):
            console.say(line)
        return
    codes = inspection.choose([inspection.code_of(*each) for each in _build(specs, targets)], kernel)
    if against is not None:
        found = inspection.compare(_then(project, op, against, targets, variant), codes)
        if json:
            console.print_json([asdict(each) for each in found])
        else:
            _print_differences(found, against)
    elif json:
        console.print_json(inspection.to_json(codes))
    elif resources:
        _print_table(codes)
    elif sass:
        _print_sass(codes)
    else:
        _print(codes)


def _specs(collected: Collected, op: str, variant: str | None) -> list[Spec]:
    for _, error in collected.failures:
        raise error
    specs = [spec for spec in collected.specs() if "cuda" in spec.kinds]
    if not specs:
        raise UsageError(f"op '{op}' has no CUDA source that it declares (kjit.module), so there is no machine code.")
    chosen = [spec for spec in specs if variant is None or variant in spec.label]
    if not chosen:
        labels = ", ".join(spec.label for spec in specs)
        raise UsageError(f"no variant of '{op}' has '{variant}' in its name.", hint=f"there is {labels}")
    return chosen


def _ptx(spec: Spec, target: Target) -> tuple[Code, str]:
    """The PTX of `spec`'s kernels, by what compiles them, and the code that it is of, without kernels."""
    from kjit import inspection
    from kjit.engine.compile.compile import ptx_of
    from kjit.engine.diagnostics.machine_code import read_ptx
    from kjit.engine.reports import compiler_of
    from kjit.engine.toolchain.cuda_tools import find_tool
    from kjit.engine.toolchain.toolchain import Toolchain

    ((variant, artifact),) = _build([spec], [target])
    toolchain = Toolchain.for_target(target)
    compiler, why_nvcc = compiler_of(artifact)
    code = inspection.Code(variant.label, (), spec.cuda_files, compiler, why_nvcc)
    if toolchain.nvrtc is not None and compiler == toolchain.nvrtc.label:
        return code, ptx_of(variant, toolchain)
    find_tool("cuobjdump")
    ((variant, artifact),) = _build([spec], [target], ptx=True)
    return code, read_ptx(artifact.library)


def _build(specs: Sequence[Spec], targets: Sequence[Target], *, ptx: bool = False) -> list[tuple[Variant, Artifact]]:
    from kjit import inspection
    from kjit.cli.building import build_variants, exit_on_failures
    from kjit.engine.cache.store import Store

    variants = [inspection.variant_to_inspect(spec, target, ptx=ptx) for spec in specs for target in targets]
    outcomes = build_variants(variants, Store.open())
    exit_on_failures(outcomes)
    return [(outcome.variant, outcome.artifact) for outcome in outcomes if outcome.artifact is not None]


def _then(project: Project, op: str, against: str, targets: Sequence[Target], variant: str | None) -> list[Code]:
    from kjit import inspection
    from kjit.revision import checked_out, declared_specs

    path = Path(against)
    if path.is_file():
        return inspection.code_in_file(path)
    with checked_out(project, against, "--against also takes a file") as revision:
        revision.project.check_ops([op])
        specs = declared_specs(revision.project, [op]).get(op, [])
        specs = [spec for spec in specs if "cuda" in spec.kinds and (variant is None or variant in spec.label)]
        return [inspection.code_of(*each) for each in _build(specs, targets)]


def _kernels(code: Code) -> Iterator[tuple[str, Kernel]]:
    """The kernels, by unique names."""
    from kjit.engine.diagnostics.symbols import short_names

    yield from zip(short_names([kernel.name for kernel in code.kernels]), code.kernels, strict=True)


def _print(codes: Sequence[Code]) -> None:
    from kjit import inspection

    for code in codes:
        console.say(code.heading)
        for name, kernel in _kernels(code):
            lines = (inspection.needs(kernel), inspection.accesses(kernel), inspection.mix(kernel))
            console.say("\n    ".join([f"  {name}", *lines]))


def _print_table(codes: Sequence[Code]) -> None:
    from kjit import inspection
    from kjit.engine.reports import reasons_for_nvcc

    right = ("registers", "spills", "shared", "instructions")
    rows = []
    for code in codes:
        rows.append([code.label, *[""] * (len(right) + 2), code.compiler])
        for name, kernel in _kernels(code):
            used = kernel.resources
            row = ["-"] * 3
            if used is not None:
                row = [str(used.registers), text.size(used.spill_stores + used.spill_loads), text.size(used.shared)]
            widths = [inspection.widths_of(kernel, kind) or "-" for kind in ("global loads", "global stores")]
            rows.append([f"  {name}", *row, str(kernel.size), *widths])
    text.print_rows(("variant", *right, "global loads", "global stores", "compiler"), rows, right)
    for reason in reasons_for_nvcc((code.label, code.compiler, code.why_nvcc) for code in codes):
        console.note(reason)


def _print_sass(codes: Sequence[Code]) -> None:
    from kjit import inspection

    for code in codes:
        console.say(code.heading)
        for name, kernel in _kernels(code):
            console.say(f"\n{name}: {inspection.needs(kernel)}")
            for line in inspection.listing(code, kernel):
                console.say(line)


def _print_differences(found: Sequence[Difference], against: str) -> None:
    variant = ""
    for each in found:
        if each.variant != variant:
            variant = each.variant
            console.say(f"{variant} against {against}")
        if each.before is None or each.now is None:
            console.say(f"  {each.kernel}: {'new' if each.before is None else 'gone'}")
        elif not each.changed:
            console.say(f"  {each.kernel}: as it was")
        else:
            console.say(f"  {each.kernel}")
            for name, before, now in each.changed:
                console.say(f"    {name}: {before} -> {now} ({now - before:+})")
