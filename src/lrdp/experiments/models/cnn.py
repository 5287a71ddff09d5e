"""Two convolutions for small pictures, as is best for private training from scratch: few weights, and tanh.

The layers are those of arXiv:2011.11660 for MNIST, with activations as in arXiv:2007.14191.
"""

from __future__ import annotations

import torch
from torch import nn

from lrdp.experiments.models.entry import Form, ModelEntry, Wanted


def _build(wanted: Wanted) -> nn.Module:
    channels = wanted.shape[0]
    seen = nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
    )
    with torch.no_grad():
        width = seen(torch.zeros(1, *wanted.shape)).shape[1]
    return nn.Sequential(*seen, nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, wanted.classes))


CNN = ModelEntry(form=Form.PIXELS, build=_build)
