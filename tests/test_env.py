"""kjit.env: the meaning of each variable, read at the time of the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kjit import env
from kjit.errors import UsageError

ARCHS = ["8.0", "9.0a"]


@pytest.mark.parametrize(
    ("variables", "read", "value"),
    [
        ({"KJIT_CACHE_DIR": "/my cache"}, env.cache_dir, Path("/my cache")),
        ({"KJIT_CACHE_DIR": "~/kernels"}, env.cache_dir, Path("/home/me/kernels")),
        ({"KJIT_CACHE_DIR": ""}, env.cache_dir, Path("/home/me/.cache/kjit")),
        ({"XDG_CACHE_HOME": "/xdg"}, env.cache_dir, Path("/xdg/kjit")),
        ({"XDG_CACHE_HOME": "relative"}, env.cache_dir, Path("/home/me/.cache/kjit")),
        ({"KJIT_CUDA_ARCH_LIST": " 8.0, 9.0a,"}, env.cuda_arch_list, ("KJIT_CUDA_ARCH_LIST", ARCHS)),
        ({"KJIT_CUDA_ARCH_LIST": "8.0;9.0a"}, env.cuda_arch_list, ("KJIT_CUDA_ARCH_LIST", ARCHS)),
        ({"TVM_FFI_CUDA_ARCH_LIST": "8.0 9.0a"}, env.cuda_arch_list, ("TVM_FFI_CUDA_ARCH_LIST", ARCHS)),
        (
            {"TVM_FFI_CUDA_ARCH_LIST": "8.9", "KJIT_CUDA_ARCH_LIST": "8.0,9.0a"},
            env.cuda_arch_list,
            ("KJIT_CUDA_ARCH_LIST", ARCHS),
        ),
        ({}, env.cuda_arch_list, None),
        ({}, env.cuda_home, None),
        ({"KJIT_CUDA_HOME": "/cuda"}, env.cuda_home, Path("/cuda")),
        ({"KJIT_NO_COMPILE": "yes"}, env.no_compile, True),
        ({"KJIT_NO_COMPILE": "false"}, env.no_compile, False),
        ({"KJIT_NO_COMPILE": ""}, env.no_compile, False),
        ({"KJIT_NO_COMPILE": "warn"}, env.no_compile, False),
        ({"KJIT_NO_COMPILE": "warn"}, env.reports_compiles, True),
        ({"KJIT_LOG": "DEBUG"}, env.log_level, "debug"),
        ({"KJIT_LOG": "0"}, env.log_level, None),
        ({}, env.is_in_ci, False),
        ({"CI": "true"}, env.is_in_ci, True),
        ({"GITHUB_ACTIONS": "true"}, env.is_in_ci, True),
        ({"KJIT_SIM": "on"}, env.simulation, "sim"),
        ({"KJIT_SIM": "check"}, env.simulation, "sim-check"),
        ({"KJIT_SIM": "0"}, env.simulation, None),
        ({"KJIT_SIM": "0"}, env.forbids_simulation, True),
        ({"KJIT_SIM": ""}, env.forbids_simulation, False),
        ({"KJIT_CUDA_COMPILER": "NVRTC"}, env.cuda_compiler, "nvrtc"),
    ],
)
def test_a_variable_has_a_meaning(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], read: Callable[[], object], value: object
) -> None:
    names = [name for name in vars(env).values() if isinstance(name, str) and name.isupper()]
    for name in (*names, "XDG_CACHE_HOME", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, text in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, text)
    assert read() == value


@pytest.mark.parametrize(
    ("name", "value", "read", "message"),
    [
        ("KJIT_LOG", "loud", env.log_level, "KJIT_LOG is 'loud'"),
        ("KJIT_SIM", "fast", env.simulation, r"KJIT_SIM is 'fast'(.|\n)*1, check or 0"),
        ("KJIT_CACHE_DIR", "~no-such-user/cache", env.cache_dir, "KJIT_CACHE_DIR is '~no-such-user/cache'"),
        ("KJIT_CACHE_MAX_SIZE", "much", env.cache_max_size, "KJIT_CACHE_MAX_SIZE is 'much', which is not a size"),
        ("KJIT_RECORD_MAX_SIZE", "much", env.record_max_size, "KJIT_RECORD_MAX_SIZE is 'much', which is not a size"),
        ("KJIT_RECORD_EVERY", "0", env.record_every, "not a number of calls"),
        ("KJIT_RECORD_EVERY", "many", env.record_every, "not a number of calls"),
    ],
)
def test_a_value_that_means_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, read: Callable[[], object], message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        read()


def test_a_user_without_a_home_has_the_cache_where_containers_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}[0])
    assert env.cache_dir() == Path("/.cache/kjit")


def test_a_relative_folder_where_the_current_one_is_gone_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("KJIT_CACHE_DIR", "cache")
    with pytest.raises(UsageError, match="KJIT_CACHE_DIR is 'cache', and the current folder") as caught:
        env.cache_dir()
    assert caught.value.hint == "give KJIT_CACHE_DIR an absolute path, or cd to a folder that exists"
