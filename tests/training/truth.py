"""The slow truth: one example, one plain backward pass. Shares no code with the engine."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from lrdp.training.engine import Engine

RELATIVE = {torch.float64: 1e-10, torch.float32: 1e-5}
ABOVE = {torch.float64: 1e-10, torch.float32: 2e-3}  # what norms may lie above the truth, so as never to lie below


def gradients_one_by_one(model, loss, batch, rows):
    """[rows, elements]: the gradients of all trained parameters, side by side, in float64."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for row in range(rows):
        single = tree_map(lambda leaf, row=row: leaf[row : row + 1], batch)
        model.zero_grad(set_to_none=True)
        loss(model, single).sum().backward()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        found.append(torch.cat([part.detach().double().flatten() for part in parts]))
    model.zero_grad(set_to_none=True)
    return torch.stack(found)


def clipped(gradients, bound):
    norms = gradients.norm(dim=1, keepdim=True)
    return gradients * (bound / norms.clamp(min=bound))


def accumulated(engine, batch, rows, weigh, totals):
    """Σ weight_i · gradient_i over the batch, added to ``totals``; ``weigh`` turns lengths into weights."""
    tape = engine.sweep(batch, rows)
    tape.release(weigh(tape.lengths), totals)
    return tape.lengths


def engine_sum(model, loss, batch, rows, weigh):
    """The engine's sum as one vector in float64, and the norms."""
    totals: dict[Any, Any] = {}
    with Engine(model, loss) as engine:
        lengths = accumulated(engine, batch, rows, weigh, totals)
    parameters = [p for p in model.parameters() if p.requires_grad]
    vector = torch.cat([totals.get(p, torch.zeros_like(p)).double().flatten() for p in parameters])
    return vector, lengths.squares.sqrt()


def assert_engine_is_exact(model, loss, batch, rows, relative=None):
    """Norms are those of separate backward passes or slightly above, and the sum is that of the shortened gradients."""
    dtype = next(p for p in model.parameters() if p.requires_grad).dtype
    relative = relative or RELATIVE[dtype]
    truth = gradients_one_by_one(model, loss, batch, rows)
    norms = truth.norm(dim=1)
    bound = float(norms.median()) or 1.0
    vector, found = engine_sum(
        model, loss, batch, rows, lambda lengths: (bound / lengths.squares.sqrt()).clamp(max=1.0)
    )
    slack = relative * bound
    assert bool((found >= norms * (1 - relative) - slack).all())
    assert bool((found <= norms * (1 + max(relative, ABOVE[dtype])) + slack).all())
    gap = (vector - (truth * (bound / found.clamp(min=bound))[:, None]).sum(0)).norm()
    assert float(gap) <= slack * rows


def sum_of_squares(model, batch):
    """A loss with a different slope at every output, for a batch ``(inputs, …)``."""
    output = model(*batch)
    output = output[0] if isinstance(output, tuple) else output
    flat = output.flatten(1)
    return (flat.square() * torch.linspace(0.2, 1.1, flat.shape[1], dtype=flat.dtype)).sum(1)
