"""Where does a tensor of torch say that it is the conjugate or the opposite of what lies in memory?

A module is called through tvm-ffi, which gets a tensor from torch by DLPack, and neither has a word for that: the
kernel would read and write something else than the tensor holds, and nobody would know. The bits are in torch's own
object, which the tensor of DLPack holds on to. So the C++ of a module looks there (`require_readable` in kjit/ffi.cpp),
and has to be told where: it depends on the versions of torch and tvm-ffi.

That is found out once in a process, with tensors of which all is known: each step from tvm-ffi's object to torch's bits
must end where torch says that it does. Memory is read as a file, so that a wrong guess accesses nothing. Where it
cannot be found out, modules do not look.
"""

from __future__ import annotations

import logging
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import torch
    import tvm_ffi

_SETTER = "_kjit_know_lazy_bits"  # in kjit/csrc/support/host.cpp

# tvm/ffi/c_api.h and dlpack.h: an object is two words and its deleter, a tensor's description follows it, and in a
# tensor from DLPack the pointer to what it came with.
_WORD = 8
_OBJECT_DELETER = 2 * _WORD
_MANAGED = 3 * _WORD + 6 * _WORD
_MOST_WORDS = 32  # of torch's object

_log = logging.getLogger("kjit")


def teach(module: tvm_ffi.Module) -> None:
    """Tell a module that was loaded where to look."""
    # A library that kjit did not build, or built before modules looked, has nothing to tell.
    if module.implements_function(_SETTER):
        place = _find() if "torch" in sys.modules else None
        if place is not None:
            module.get_function(_SETTER)(*place)


@lru_cache(maxsize=1)
def _find() -> tuple[int, int, int, int, int] | None:
    """The deleters of tvm-ffi's object and of DLPack's, by which C++ knows tensors that came this way; where in torch's
    object the bits are; and which they are: of a conjugate, of an opposite."""
    import torch

    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return None
    try:
        # This, `_neg_view` and the keys of a tensor may be gone from any new torch.
        from torch.utils._python_dispatch import _disable_current_modes

        with open("/proc/self/mem", "rb", buffering=0) as memory, _disable_current_modes():
            plain = torch.zeros(1, dtype=torch.complex64, device="cpu")
            conjugate, opposite = plain.conj(), torch._neg_view(plain)
            places = {_follow(memory, tensor) for tensor in (plain, conjugate, opposite, torch._neg_view(conjugate))}
            (place,) = places
            conjugate_bit, opposite_bit = (_keys_of(each) & ~_keys_of(plain) for each in (conjugate, opposite))
    except (AttributeError, ImportError, OSError, ValueError) as error:
        _log.debug("modules do not see whether a tensor is a conjugate: %s", error)
        return None
    return (*place, conjugate_bit, opposite_bit)


def _keys_of(tensor: torch.Tensor) -> int:
    import torch

    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _follow(memory: BinaryIO, tensor: torch.Tensor) -> tuple[int, int, int]:
    """From tvm-ffi's object to where torch's has the bits, as in `_find`.

    Raises:
        OSError: something is not where it was expected, and no memory is there.
        ValueError: the same, and there is memory.
    """
    import tvm_ffi

    def words_at(address: int, count: int) -> list[int]:
        memory.seek(address)
        return [int.from_bytes(memory.read(_WORD), sys.byteorder) for _ in range(count)]

    converted = tvm_ffi.from_dlpack(tensor)
    handle = converted.__chandle__()
    (object_deleter,) = words_at(handle + _OBJECT_DELETER, 1)
    (managed,) = words_at(handle + _MANAGED, 1)
    _, context, dlpack_deleter = words_at(managed, 3)
    (found,) = words_at(context, 1)
    if found != tensor._cdata:
        raise ValueError("torch keeps its tensor elsewhere")
    offset = words_at(found, _MOST_WORDS).index(_keys_of(tensor)) * _WORD
    return object_deleter, dlpack_deleter, offset
