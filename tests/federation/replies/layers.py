"""Layers behind a gate that a server can open for one record alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from .losses import Measure
from .public import HIDDEN, PLACES, TOKENS, WIDTH


class _Raw(nn.Module):
    """Parameters of its own, used as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, values: Tensor) -> Tensor:
        return values * self.scale + self.shift


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(HIDDEN, 2, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        attended: Tensor = self.attend(values, values, values)[0]
        return attended


class _Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.remember = nn.GRU(HIDDEN, HIDDEN, batch_first=True)

    def forward(self, values: Tensor) -> Tensor:
        remembered: Tensor = self.remember(values)[0]
        return remembered[:, -1]


def _in_steps(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (HIDDEN, -1)), layer, nn.Flatten())


LAYERS: Mapping[str, tuple[Callable[[], nn.Module], int]] = {
    "linear": (lambda: nn.Linear(WIDTH, HIDDEN), HIDDEN),
    "convolution": (lambda: _in_steps(nn.Conv1d(HIDDEN, 2, 3)), 4),
    "embedding": (lambda: nn.Sequential(nn.Embedding(TOKENS, HIDDEN), nn.Flatten()), PLACES * HIDDEN),
    "layer norm": (lambda: nn.LayerNorm(WIDTH), WIDTH),
    "group norm": (lambda: _in_steps(nn.GroupNorm(2, HIDDEN)), WIDTH),
    "recurrent": (lambda: _in_steps(_Last()), HIDDEN),
    "attention": (lambda: _in_steps(_Attention()), WIDTH),
    "raw": (_Raw, WIDTH),
}


class Aimable(nn.Module):
    """A gate, which weights can shut for everybody but one; a layer; and a head."""

    def __init__(self, layer: str, measure: Measure) -> None:
        super().__init__()
        make, features = LAYERS[layer]
        self.gate = nn.Sequential() if layer == "embedding" else nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.layer, self.head = make(), nn.Linear(features, max(1, measure.outputs))
        self._measure = measure

    def forward(self, values: Tensor) -> Tensor:
        outputs = self._measure.finish(self.head(self.layer(self.gate(values))))
        return outputs if self._measure.outputs else outputs[:, 0]
