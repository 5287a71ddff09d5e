"""The model, and each hospital's share of the images."""

from collections.abc import Mapping
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

TEST_IMAGES = 360


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.output = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of ten classes."""
        logits: Tensor = self.output(torch.relu(self.hidden(images)))
        return logits


def images_and_labels() -> tuple[Tensor, Tensor]:
    """All of them, scaled to [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)


def load(settings: Mapping[str, Any]) -> TensorDataset:
    """The images of one hospital."""
    images, labels = images_and_labels()
    here = slice(int(settings["partition-id"]), len(images) - TEST_IMAGES, int(settings["num-partitions"]))
    return TensorDataset(images[here], labels[here])


@torch.no_grad()
def accuracy(parameters: Mapping[str, Tensor]) -> float:
    """On images that no hospital has."""
    model = Net()
    model.load_state_dict(parameters)
    images, labels = images_and_labels()
    right = model(images[-TEST_IMAGES:]).argmax(1) == labels[-TEST_IMAGES:]
    return float(right.double().mean())
