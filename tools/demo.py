"""kjit's main use from end to end, in a new folder; each command is shown as typed.

    python tools/demo.py [FOLDER]        # default: a fresh folder `demo` in the current one

Scaffolds an op, builds it (for the CPU; for CUDA if nvcc is installed, even without a GPU), runs the scaffold's own
tests and benchmarks it against PyTorch. Ends with the first command that fails, and with its exit status.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from kjit.engine.toolchain.archs import gpu_archs
from kjit.engine.toolchain.cuda import find_cuda
from kjit.errors import ToolchainError

BIN = Path(sys.executable).parent
ARCHS_WITHOUT_GPU = "8.0,9.0a"


def run(folder: Path, *command: str) -> None:
    print(f"\n$ {shlex.join(command)}", flush=True)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    status = subprocess.run(command, cwd=folder, env=environment).returncode
    if status != 0:
        sys.exit(status)


def has_nvcc() -> bool:
    try:
        find_cuda()
    except ToolchainError as error:
        print(f"CUDA is left out: {error.message}")
        return False
    return True


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo").resolve()
    if folder.exists():
        if not (folder / "pyproject.toml").is_file() or "[tool.kjit]" not in (folder / "pyproject.toml").read_text():
            sys.exit(f"'{folder}' is there and is not a demo of kjit: name another folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    cuda = has_nvcc()
    gpu = cuda and bool(gpu_archs())
    print(f"$ cd {folder}")

    run(folder, "kjit", "doctor")
    run(folder, "kjit", "init")
    run(folder, "kjit", "new", "scale", "--device", "cuda,cpu" if cuda else "cpu")
    run(folder, "kjit", "build", "--target", "cpu")
    if cuda:
        run(folder, "kjit", "build", "--target", "cuda", *([] if gpu else ["--arch", ARCHS_WITHOUT_GPU]))
    run(folder, "python", "-m", "pytest", "-q", "tests/test_scale.py")
    run(folder, "kjit", "bench", "scale", "--quick")
    print(f"\nAll of this is in {folder}: change the math in kernels/csrc/, the reference in tests/, and run it again.")


if __name__ == "__main__":
    main()
