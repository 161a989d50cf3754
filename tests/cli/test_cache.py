"""`kjit cache`: the contents of the cache."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from kjit.engine.cache.store import Store
from kjit.runtime import LAYOUT

Kjit = Callable[..., "subprocess.CompletedProcess[str]"]


def test_ls_lists_every_artifact(kjit: Kjit) -> None:
    kjit("build")
    header, *rows = kjit("cache", "ls").stdout.splitlines()
    assert header.split() == ["variant", "target", "size", "built", "used", "key"]
    assert sorted(row.split()[0] for row in rows) == ["answer<1>", "answer<2>"]


def test_ls_as_json_has_the_path_and_the_arguments_of_each(kjit: Kjit) -> None:
    kjit("build")
    listed = json.loads(kjit("cache", "ls", "--json").stdout)
    assert sorted(entry["arguments"] for entry in listed) == [["1"], ["2"]]
    for entry in listed:
        assert (Path(entry["path"]) / "answer.so").is_file()
        assert entry["path"].endswith(entry["key"])


def test_size_counts_artifacts_and_bytes(kjit: Kjit, cache_dir: Path) -> None:
    kjit("build")
    document = json.loads(kjit("cache", "size", "--json").stdout)
    folders = [entry.folder for entry in Store.open(cache_dir).entries()]
    in_artifacts = sum(path.stat().st_size for folder in folders for path in folder.iterdir())
    assert document["artifacts"] == 2
    assert document["targets"] == {"cpu": {"artifacts": 2, "bytes": in_artifacts}}
    assert document["bytes"] == in_artifacts + document["support"]
    assert kjit("cache", "size").stdout.startswith("2 artifacts, ")


def test_verify_names_what_is_damaged(kjit: Kjit, cache_dir: Path) -> None:
    kjit("build")
    entry = next(iter(Store.open(cache_dir).entries()))
    library = entry.folder / "answer.so"
    library.write_bytes(library.read_bytes()[:-1])
    done = kjit("cache", "verify")
    assert done.returncode == 1
    assert str(entry.folder) in done.stdout
    assert "2 artifacts checked, 1 damaged" in done.stdout
    document = json.loads(kjit("cache", "verify", "--json").stdout)
    assert [item["path"] for item in document["damaged"]] == [str(entry.folder)]
    assert "(damaged)" in kjit("cache", "ls").stdout


def test_verify_names_what_others_may_write_to_with_the_command_that_closes_all_of_the_cache(
    kjit: Kjit, cache_dir: Path
) -> None:
    kjit("build")
    (cache_dir / LAYOUT / "cpu").chmod(0o777)
    (cache_dir / LAYOUT / "support").chmod(0o770)
    (cache_dir / LAYOUT / "compilers.json").chmod(0o666)
    libraries = [entry.folder / f"{entry.op}.so" for entry in Store.open(cache_dir).entries()]
    libraries[0].chmod(0o666)
    done = kjit("cache", "verify")
    assert done.returncode == 1
    untrusted = "the artifact in the cache is not trusted: its library may be written by users other than its owner"
    assert set(done.stdout.splitlines()) == {
        f"{libraries[0].parent}: {untrusted}",
        *(
            f"{cache_dir / LAYOUT / name}: it may be written by users other than its owner"
            for name in ("cpu", "support", "compilers.json")
        ),
        "2 artifacts checked, 1 damaged",
    }
    assert f"`chmod -R go-w {cache_dir}`, or `rm -r {cache_dir}` if somebody else" in done.stderr
    document = json.loads(kjit("cache", "verify", "--json").stdout)
    assert {Path(item["path"]).name for item in document["unsafe"]} == {"cpu", "support", "compilers.json"}
    subprocess.run(["chmod", "-R", "go-w", str(cache_dir)], check=True)
    assert (kjit("cache", "verify").returncode, kjit("build").returncode) == (0, 0)


def test_shared_caches_are_listed_counted_and_verified_after_the_users_own(
    kjit: Kjit, cache_dir: Path, tmp_path: Path
) -> None:
    team = tmp_path / "team"
    kjit("build", KJIT_CACHE_DIR=str(team))
    shared = {"KJIT_SHARED_CACHE_DIR": str(team)}
    built = json.loads(kjit("build", "--json", **shared).stdout)
    assert [variant["state"] for variant in built["variants"]] == ["hit", "hit"]
    listed = json.loads(kjit("cache", "ls", "--json", **shared).stdout)
    assert [entry["shared"] for entry in listed] == [False, False, True, True]
    header, *rows = kjit("cache", "ls", **shared).stdout.splitlines()
    assert header.endswith("shared cache")
    assert [row.endswith(str(team)) for row in rows] == [False, False, True, True]
    assert f"in {team} (shared)" in kjit("cache", "size", **shared).stdout
    (sizes,) = json.loads(kjit("cache", "size", "--json", **shared).stdout)["shared"]
    assert (sizes["path"], sizes["artifacts"]) == (str(team), 2)
    path = kjit("cache", "path", **shared)
    assert (path.stdout, path.stderr) == (f"{cache_dir}\n", f"shared: {team}\n")
    assert kjit("cache", "verify", **shared).stdout == "4 artifacts checked, 0 damaged\n"
    (team / LAYOUT / "cpu").chmod(0o775)
    assert f"{team / LAYOUT / 'cpu'}: it may be written by users" in kjit("cache", "verify", **shared).stdout
