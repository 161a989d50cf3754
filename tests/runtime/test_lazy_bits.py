"""kjit.runtime.lazy_bits: modules see torch's bits for tensors that differ from their memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm_ffi
from forked import Forks

import kjit
from kjit.ops.add_constant import _add_constant
from kjit.runtime import exported

X = torch.tensor([1.0, 2.0, 3.0])


def test_each_bit_is_found_where_torch_has_it() -> None:
    place = exported._find()
    assert place is not None
    *_, conjugate, opposite = place
    z = torch.complex(X, X)
    keys = {name: exported._keys_of(t) for name, t in (("z", z), ("c", z.conj()), ("n", torch._neg_view(z)))}
    assert keys["c"] ^ keys["z"] == conjugate != 0
    assert keys["n"] ^ keys["z"] == opposite != 0
    assert conjugate & opposite == 0


def test_a_module_that_kjit_did_not_build_is_left_alone() -> None:
    exported.teach(tvm_ffi.system_lib())


@pytest.mark.parametrize("make", [lambda: X.numpy(), lambda: tvm_ffi.from_dlpack(X)], ids=["numpy", "tvm_ffi"])
def test_tensors_of_other_libraries_are_not_asked(make: Any) -> None:
    out = torch.empty(3)
    _add_constant(torch.float32, 1, device="cpu").add_constant(make(), out)
    assert torch.equal(out, X + 1)


def test_what_is_found_out_does_not_depend_on_what_the_program_has_set(forked: Forks) -> None:
    """The first module is loaded under a mode, a default device and a transform."""
    script = """
    import torch
    import torch._dynamo  # which computes when torch 2.6 imports it
    import tvm_ffi  # which brings torch 2.6 the interface of DLPack that is asked for
    from torch._subclasses.fake_tensor import FakeTensorMode
    from kjit.runtime import exported
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    seen = []
    with torch.inference_mode(), FakeTensorMode():
        torch.vmap(lambda x: (seen.append(exported._find()), x)[1])(torch.ones(2))
    exported._find.cache_clear()
    assert seen[0] is not None and seen[0][2:] == exported._find()[2:], seen
    """
    done = forked.run(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("step", ["_OBJECT_DELETER", "_MANAGED"])
@pytest.mark.parametrize("by", [8, 2**40 + 8, 2**63])
def test_a_wrong_guess_is_noticed_and_ends_nothing(step: str, by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, step, getattr(exported, step) + by)
    found = exported._find.__wrapped__()
    assert found is None or (step, by) == ("_OBJECT_DELETER", 8)  # any word that all objects have in common would do


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch._C, "DispatchKeySet"),
        (torch._C, "_dispatch_keys"),
        (torch.Tensor, "__dlpack_c_exchange_api__"),
        (torch.utils._python_dispatch, "_disable_current_modes"),
    ],
)
def test_a_torch_that_lacks_what_it_is_found_by_ends_nothing(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, name)
    assert exported._find.__wrapped__() is None


def test_where_nothing_is_known_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "_find", lambda: None)
    kjit.load_jit("unknowing", cpp_files=["add_constant.cpp"], cpp_wrappers=[("f", "AddConstant<float, 1>::run")]).f(
        torch._neg_view(X), torch.empty(3)
    )
