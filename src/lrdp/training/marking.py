"""Rows that stand out: filled with what is huge or not a number, which taints whatever it touches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map


def filled(batch: Any, own: Tensor, value: float) -> Any:
    """``batch`` with ``value`` in the rows that are marked; whole numbers cannot be huge or undefined, and stay."""

    def fill(leaf: Tensor) -> Tensor:
        return leaf.masked_fill(_beside(own, leaf), value) if leaf.is_floating_point() else leaf

    return tree_map(fill, batch)


@contextmanager
def marked(model: nn.Module, own: Tensor, value: float) -> Iterator[None]:
    """The marked rows of what is looked up by number are ``value``: token ids themselves cannot be."""

    def mark(_: nn.Module, args: Any, output: Tensor) -> Tensor:  # noqa: ARG001 - a hook's signature
        return output.masked_fill(_beside(own, output), value) if len(output) == len(own) else output

    handles = [part.register_forward_hook(mark) for part in model.modules() if isinstance(part, nn.Embedding)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _beside(own: Tensor, values: Tensor) -> Tensor:
    return own.view(-1, *(1,) * (values.dim() - 1))
