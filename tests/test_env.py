"""kjit.env: the meaning of each variable, read at the time of the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kjit import env
from kjit.errors import UsageError


def test_the_cache_folder_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "my cache"))
    assert env.cache_dir() == tmp_path / "my cache"


def test_a_tilde_in_the_cache_folder_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KJIT_CACHE_DIR", "~/kernels")
    assert env.cache_dir() == tmp_path / "kernels"


def test_an_unknown_user_in_the_cache_folder_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", "~no-such-user-here/cache")
    with pytest.raises(UsageError, match="KJIT_CACHE_DIR is '~no-such-user-here/cache'"):
        env.cache_dir()


def test_a_user_without_a_home_has_the_cache_where_containers_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}[0])
    assert env.cache_dir() == Path("/.cache/kjit")


@pytest.mark.parametrize("xdg", [None, "", "/xdg", "relative"])
def test_the_users_cache_is_in_the_folder_of_caches(monkeypatch: pytest.MonkeyPatch, xdg: str | None) -> None:
    monkeypatch.delenv("KJIT_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert env.cache_dir() == Path("/xdg/kjit" if xdg == "/xdg" else "/home/me/.cache/kjit")


def test_a_user_in_no_list_without_home_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert env.has_home()
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}[0])
    assert not env.has_home()


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
    monkeypatch.setenv("KJIT_CACHE_DIR", "/cache")
    assert env.cache_dir() == Path("/cache")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KJIT_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert env.cache_dir() == tmp_path / "kjit"


@pytest.mark.parametrize("text", ["8.0,9.0a", "8.0 9.0a", " 8.0, 9.0a,", "8.0;9.0a"])
def test_architectures_are_separated_by_commas_or_spaces(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", text)
    assert env.cuda_arch_list() == ("KJIT_CUDA_ARCH_LIST", ["8.0", "9.0a"])


def test_tvm_ffis_architectures_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KJIT_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setenv("TVM_FFI_CUDA_ARCH_LIST", "8.9")
    assert env.cuda_arch_list() == ("TVM_FFI_CUDA_ARCH_LIST", ["8.9"])
    monkeypatch.setenv("KJIT_CUDA_ARCH_LIST", "9.0a")
    assert env.cuda_arch_list() == ("KJIT_CUDA_ARCH_LIST", ["9.0a"])


def test_no_variable_means_no_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KJIT_CUDA_ARCH_LIST", raising=False)
    monkeypatch.delenv("TVM_FFI_CUDA_ARCH_LIST", raising=False)
    assert env.cuda_arch_list() is None


def test_cuda_home_is_none_unless_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KJIT_CUDA_HOME", raising=False)
    assert env.cuda_home() is None
    monkeypatch.setenv("KJIT_CUDA_HOME", str(tmp_path))
    assert env.cuda_home() == tmp_path


@pytest.mark.parametrize(
    ("text", "forbidden"), [("1", True), ("yes", True), ("0", False), ("false", False), ("", False), ("warn", False)]
)
def test_compiling_is_forbidden_by_any_true_value(monkeypatch: pytest.MonkeyPatch, text: str, forbidden: bool) -> None:
    monkeypatch.setenv("KJIT_NO_COMPILE", text)
    assert env.no_compile() is forbidden
    assert env.reports_compiles() is (text == "warn")


@pytest.mark.parametrize(("text", "level"), [("info", "info"), ("DEBUG", "debug"), ("", None), ("0", None)])
def test_the_log_level_is_info_or_debug(monkeypatch: pytest.MonkeyPatch, text: str, level: str | None) -> None:
    monkeypatch.setenv("KJIT_LOG", text)
    assert env.log_level() == level


@pytest.mark.parametrize("name", ["CI", "GITHUB_ACTIONS"])
def test_continuous_integration_is_recognised(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert not env.is_in_ci()
    monkeypatch.setenv(name, "true")
    assert env.is_in_ci()


@pytest.mark.parametrize(
    ("text", "simulation", "forbidden"),
    [("1", "sim", False), ("on", "sim", False), ("check", "sim-check", False), ("0", None, True), ("", None, False)],
)
def test_the_simulator_is_chosen_checked_or_forbidden(
    monkeypatch: pytest.MonkeyPatch, text: str, simulation: str | None, forbidden: bool
) -> None:
    monkeypatch.setenv("KJIT_SIM", text)
    assert (env.simulation(), env.forbids_simulation()) == (simulation, forbidden)


@pytest.mark.parametrize(
    ("name", "value", "read", "message"),
    [
        ("KJIT_LOG", "loud", env.log_level, "KJIT_LOG is 'loud'"),
        ("KJIT_SIM", "fast", env.simulation, r"KJIT_SIM is 'fast'(.|\n)*1, check or 0"),
    ],
)
def test_a_value_that_means_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, read: Callable[[], object], message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        read()
