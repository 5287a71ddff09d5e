"""The models that training is measured on, small and large, of the kinds that people bring.

None has dropout: its random numbers cost every contestant the same, and would make every ratio look better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lrdp.experiments.models.vgg11 import vgg11
from lrdp.experiments.networks import small_cnn


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


class Residual(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _convolved(channels, width, stride), _convolved(width, width, 1)
        self.short = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.GroupNorm(32, width))
        if channels == width:
            self.short = nn.Sequential()

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(images))) + self.short(images))


def _convolved(channels: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, padding=1, bias=False), nn.GroupNorm(32, width))


def resnet18() -> nn.Module:
    """ResNet-18 as it is used on 32×32 images: a first convolution of 3×3 and no pooling after it."""
    blocks: list[nn.Module] = [_convolved(3, 64, 1), nn.ReLU()]
    channels = 64
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        blocks.append(Residual(channels, width, stride))
        channels = width
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Logits(nn.Module):
    """A model of ``transformers`` that is given one tensor and returns one."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, given: Tensor) -> Tensor:
        logits: Tensor = self.model(**{self.name: given}).logits
        return logits


class Tokens(Logits):
    """Each example has its positions: Opacus fails on positions that all share."""

    def forward(self, given: Tensor) -> Tensor:
        places = torch.arange(given.shape[1]).repeat(len(given), 1)
        logits: Tensor = self.model(**{self.name: given}, position_ids=places).logits
        return logits


def minilm() -> nn.Module:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return Tokens(_transformer("SequenceClassification", "bert", **sizes, **still), "input_ids")


def vit() -> nn.Module:
    sizes = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768}
    return Logits(_transformer("ImageClassification", "vit", **sizes, image_size=32, patch_size=4), "pixel_values")


def llama() -> nn.Module:
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 688, "vocab_size": 8192}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    return Tokens(_transformer("SequenceClassification", "llama", **sizes, **heads), "input_ids")


def convnext() -> nn.Module:
    sizes = {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 4, 2], "patch_size": 2}
    return Logits(_transformer("ImageClassification", "convnext", **sizes), "pixel_values")


def _transformer(task: str, kind: str, **sizes: object) -> nn.Module:
    """A model with ten classes and random weights."""
    transformers: Any = import_module("transformers")
    config = transformers.AutoConfig.for_model(kind, num_labels=10, **sizes)
    model: nn.Module = getattr(transformers, f"AutoModelFor{task}").from_config(config)
    return model.train()


def _tokens(entries: int, steps: int = 64) -> Callable[[int], Tensor]:
    return lambda count: torch.randint(1, entries, (count, steps))


def _images(channels: int, side: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randn(count, channels, side, side)


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
    Workload("vgg11", vgg11, 128, _images(3, 32), 32),
    Workload("cnn", small_cnn, 256, _images(1, 28), 32),
    Workload("bert_mini", BertMini, 32, _tokens(30522), 8),
    Workload("minilm", minilm, 32, _tokens(30522), 8),
    Workload("resnet18", resnet18, 32, _images(3, 32), 8),
    Workload("vit", vit, 64, _images(3, 32), 16),
    Workload("llama", llama, 32, _tokens(8192), 8),
    Workload("convnext", convnext, 32, _images(3, 32), 8),
)
