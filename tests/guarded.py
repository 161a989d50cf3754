"""Tensors that detect writes beside them."""

from __future__ import annotations

import torch


class Guarded:
    """A tensor of integers so small that sums and products are exact, and memory around it that nobody may write."""

    def __init__(self, dtype: torch.dtype, *shape: int, offset: int = 0, device: str) -> None:
        size = torch.Size(shape).numel()
        self.memory = torch.full((offset + size + 64,), 9.0, device=device).to(dtype)
        self.tensor = self.memory[offset : offset + size].view(shape)
        self.tensor.copy_(torch.randint(0, 4, shape, device=device))
        self.around = [slice(0, offset), slice(offset + size, None)]
        self.before = [self.memory[part].float() for part in self.around]

    def is_intact(self) -> bool:
        """Whether what is beside the tensor is as it was."""
        parts = zip(self.around, self.before, strict=True)
        return all(torch.equal(self.memory[part].float(), before) for part, before in parts)
