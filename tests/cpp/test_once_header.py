"""kjit/once.h: one-time initialisation, its keys, and failures."""

from __future__ import annotations

from typing import Any

import pytest

CASES = "once_cases"


@pytest.mark.parametrize(
    "name",
    [
        "one_value_for_each_place",
        "one_value_for_each_key",
        "keys_of_several_parts",
        "an_action_runs_once_for_each_key",
        "a_factory_that_throws_is_tried_again",
        "a_value_need_not_be_movable",
        "tags_keep_places_apart_that_share_a_type",
        "it_may_do_without_a_lock",
    ],
)
def test_it_holds_that(module: Any, name: str) -> None:
    assert module[name]()


def test_a_factory_that_asks_for_its_own_value_is_an_error_and_no_deadlock(module: Any) -> None:
    with pytest.raises(RuntimeError, match="a factory has requested the value that it is making"):
        module.a_factory_that_asks_for_its_own_value()


def test_threads_that_ask_at_once_make_each_value_once(module: Any) -> None:
    assert module.runs_among_threads(8, 5) == 5
