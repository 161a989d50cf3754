"""kjit.errors: errors reach other processes unchanged."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from kjit.errors import CompileError, KjitError, UsageError


@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "error",
    [
        KjitError("the sentence."),
        UsageError("the sentence.", hint="the hint"),
        CompileError("the sentence.", hint="the hint", log="the log", command="the command"),
    ],
)
def test_every_error_survives_pickle_and_copies(error: KjitError, duplicate: Any) -> None:
    again = duplicate(error)
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
