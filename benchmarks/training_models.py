"""The models that training is measured on: VGG11, the small CNN of the DP-SGD tutorials, and BERT-mini."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class BertMini(nn.Module):
    def __init__(self, entries: int = 30522, width: int = 256, steps: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(entries, width), nn.Embedding(steps, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)  # Opacus ghost fails on an expanded view
        hidden = self.norm(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            hidden = block(hidden)
        out: Tensor = self.head(hidden[:, 0])
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, hidden: Tensor) -> Tensor:
        parts = (layer(hidden) for layer in (self.query, self.key, self.value))
        query, key, value = (p.view(*p.shape[:2], self.heads, -1).transpose(1, 2) for p in parts)
        attended = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        hidden = self.first(hidden + self.out(attended))
        normed: Tensor = self.second(hidden + self.down(functional.gelu(self.up(hidden))))
        return normed


def vgg11() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()] if width else []
        layers += [] if width else [nn.MaxPool2d(2)]
        channels = width or channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def small_cnn() -> nn.Module:
    first = [nn.Conv2d(1, 16, 8, 2, padding=2), nn.ReLU(), nn.MaxPool2d(2, 1)]
    second = [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


@dataclass(frozen=True)
class Workload:
    name: str
    model: Callable[[], nn.Module]
    batch_size: int
    inputs: Callable[[int], Tensor]
    micro_batch: int

    def records(self, count: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        return self.inputs(count), torch.randint(0, 10, (count,))


WORKLOADS = (
    Workload("vgg11", vgg11, 128, lambda n: torch.randn(n, 3, 32, 32), 32),
    Workload("cnn", small_cnn, 256, lambda n: torch.randn(n, 1, 28, 28), 32),
    Workload("bert_mini", BertMini, 32, lambda n: torch.randint(0, 30522, (n, 64)), 8),
)
