"""The time that a new process takes to load modules from a bundle, against the same modules from the cache.

    python benchmarks/bundle_load.py [--modules 50] [--repeat 5]

`--modules` variants of `add_constant` for the CPU are built for each level and written to a bundle beside a copy of
their source; the same variants are built into a cache. Then new processes load all of them, one side after the other,
with imports not counted. A load from the bundle compares the sources and kjit's headers with what was built, as they
are there; `without sources` is a package that ships none.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import common

from kjit.spec import Spec, Variant


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(args)
    common.print_machine()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        with_sources, without = Path(folder, "with"), Path(folder, "without")
        with_sources.mkdir()
        shutil.copy(common.KERNELS / "add_constant.cpp", with_sources)
        environment = {"KJIT_CACHE_DIR": cache}
        print(f"\nbuilding {options.modules} modules")
        common.in_new_process("bundle_load", "build", str(with_sources), options.modules, **environment)
        shutil.copytree(with_sources, without)
        (without / "add_constant.cpp").unlink()
        sides = {"cache": (with_sources, False), "bundle": (with_sources, True), "without sources": (without, True)}
        medians = common.alternate(
            {
                name: functools.partial(
                    common.in_new_process, "bundle_load", "load", str(home), options.modules, bundled, **environment
                )
                for name, (home, bundled) in sides.items()
            },
            options.repeat,
        )
    per_module = {name: seconds * 1e3 / options.modules for name, seconds in medians.items()}
    common.print_sides(f"load {options.modules} modules, each", per_module, "ms", "cache")


def _specs(home: str, modules: int) -> list[Spec]:
    source = os.path.join(home, "add_constant.cpp")
    return [
        Spec("add_constant", str(n), cpp_files=[source], cpp_wrappers=[("add_constant", f"add_constant<{n}>")])
        for n in range(modules)
    ]


def build(home: str, modules: int) -> float:
    """Fill the cache and write the bundle. Runs in a process of its own."""
    from kjit.engine import bundle_writer, pool
    from kjit.engine.cache.store import Store
    from kjit.runtime.load import BUNDLE
    from kjit.spec import Target

    specs = _specs(home, modules)
    targets = bundle_writer.targets_of_bundle([Target.cpu()])
    shipped = pool.build_all([Variant(spec, target) for spec in specs for target in targets], Store.open())
    native = pool.build_all([Variant(spec, Target.cpu()) for spec in specs], Store.open())
    for outcome in (*shipped, *native):
        if outcome.error is not None:
            raise outcome.error
    artifacts = [(each.variant, each.artifact) for each in shipped if each.artifact is not None]
    bundle_writer.write(Path(home, BUNDLE), artifacts)
    return 0.0


def load(home: str, modules: int, bundled: bool) -> float:
    """Seconds to load all modules. Runs in a process of its own."""
    import tvm_ffi  # noqa: F401 (imports are not counted)

    from kjit.runtime.load import load_variant
    from kjit.spec import Target

    wrapper = os.path.join(home, "add_constant.py") if bundled else None
    specs = _specs(home, modules)
    begin = time.perf_counter()
    for spec in specs:
        load_variant(Variant(spec, Target.cpu()), wrapper=wrapper)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
