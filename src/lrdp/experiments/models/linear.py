"""A linear head on frozen public features."""

from __future__ import annotations

from math import prod

from torch import nn

from lrdp.experiments.models.entry import Form, ModelEntry, Wanted


def _build(wanted: Wanted) -> nn.Module:
    """Zeros: of a convex loss the beginning does not matter, and nothing random has to be unlearnt."""
    head = nn.Linear(prod(wanted.shape), wanted.classes, bias=wanted.bias)
    for values in head.parameters():
        nn.init.zeros_(values)
    return head


LINEAR = ModelEntry(form=Form.FEATURES, build=_build)
