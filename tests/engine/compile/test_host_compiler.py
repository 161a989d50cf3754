"""kjit.engine.compile.host_compiler: the compile of the host half, and units that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjit.engine.compile.host_compiler import main


@pytest.mark.parametrize(
    ("code", "folders", "message"),
    [
        (
            "__attribute__((managed)) int n;",
            "",
            "/op/a.cu:4: error: for nvcc: only nvcc registers __managed__ variables",
        ),
        ("void f() { 3<<<1, 2>>>(); }", "", "/op/a.cu:4: error: for nvcc: only nvcc understands this launch"),
        ("int count;", "/cuda/", "error: for nvcc: it includes <fstream>, which is neither kjit's nor CUDA's"),
    ],
)
def test_what_is_for_nvcc_is_not_compiled(
    code: str, folders: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    unit = f'# 1 "/op/a.cu"\n\n# 1 "/usr/include/c++/12/fstream" 1 3\nint of_files;\n# 4 "/op/a.cu" 2\n{code}\n'
    (tmp_path / "a.ii").write_text(unit)
    words = [str(tmp_path / name) for name in ("a.ii", "a.cut.ii", "a.o")]
    assert main([*words, folders, "false"]) == 1
    assert capfd.readouterr().out.startswith(message)
    assert not (tmp_path / "a.cut.ii").exists()
