"""What of PyTorch do ops rely on that PyTorch does not promise, and is all of it here?

It is used where it is needed, by its own name. Here it is listed, so that a torch without one of these is an error that
says so, when the first op is defined, and not an `AttributeError` in the middle of a call. What the C++ of eager calls
is compiled against is another matter: where that is not as it was, calls run in Python (`eager_calls.py`). The whole
list, with what is noticed how, is in docs/versions.md.
"""

from __future__ import annotations

from functools import lru_cache, reduce

from kjit import __version__
from kjit.errors import KjitError

NAMES = (
    "torch._C._AutoDispatchBelowADInplaceOrView",
    "torch._C._AutoDispatchBelowAutograd",
    "torch._C._after_ADInplaceOrView_keyset",
    "torch._C._after_autograd_keyset",
    "torch._C._dynamo.eval_frame",
    "torch._C._functorch.is_functorch_wrapped_tensor",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._increment_version",
    "torch._C._is_tracing",
    "torch._C._len_torch_dispatch_stack",
    "torch._ops.OpOverload.redispatch",
    "torch.Tensor._cdata",
    "torch.Tensor._is_zerotensor",
    "torch.autograd.forward_ad._current_level",
    "torch.library.Library._destroy",
)

NEWEST_TORCH = "2.15"
"""The newest torch that this kjit was run with; docs/versions.md has the others."""


@lru_cache(maxsize=1)
def require_torch() -> None:
    """Raise a `KjitError` where the torch that is installed lacks one of them."""
    import torch

    missing = [name for name in NAMES if not _has(torch, name)]
    if missing:
        raise KjitError(
            f"torch {torch.__version__} has no {', '.join(missing)}, which ops of kjit {__version__} need.",
            hint=f"install a newer kjit, or the newest torch that this one was run with: pip install"
            f" 'torch=={NEWEST_TORCH}.*'",
        )


def _has(torch: object, name: str) -> bool:
    _, *parts = name.split(".")
    try:
        reduce(getattr, parts, torch)
    except AttributeError:
        return False
    return True
