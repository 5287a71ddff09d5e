"""What people build from ``torch.nn`` themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from training.zoo import entry
from training.zoo.entry import CLASSES, ENTRIES, TOKENS, Entry, numbers, pairs, pictures


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.words, self.core = nn.Embedding(ENTRIES, 8), kind(8, 8, batch_first=True, **settings)
        self.head = nn.Linear(8 * (1 + self.core.bidirectional), CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.core(self.words(ids))[0][:, -1])


class Cells(nn.Module):
    """A cell in a loop over the steps."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(ENTRIES, 8), kind(8, 8), nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        state = None
        for step in self.words(ids).unbind(1):
            state = self.cell(step, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.attention = nn.Embedding(ENTRIES, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.words(ids)
        return self.head(self.attention(hidden, hidden, hidden, need_weights=False)[0].mean(1))


class Encoder(nn.Module):
    """Torch's own transformer with positions of a table that all examples share."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(ENTRIES, 8), nn.Embedding(TOKENS, 8)
        block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.blocks(hidden)[:, 0])


class Tied(nn.Module):
    """A language model whose head is its table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(ENTRIES, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, ENTRIES, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.mix(self.words(ids)).tanh())


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(ENTRIES, 8, mode="mean"), nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids))


class Functional(nn.Module):
    """Weights of its own, used by functions; some in a list, some in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 6) / 3), nn.Parameter(torch.zeros(8))
        self.more = nn.ParameterList([nn.Parameter(torch.randn(8, 8) / 3) for _ in range(2)])
        self.last = nn.ParameterDict({"out": nn.Parameter(torch.randn(CLASSES, 8) / 3)})

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.linear(inputs, self.weight, self.bias).tanh()
        for weight in self.more:
            hidden = (hidden @ weight).tanh()
        return functional.linear(hidden, self.last["out"])


class Twice(nn.Module):
    """Two inputs, multiplied with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.both = nn.Linear(6, 4), nn.Linear(6, 5), nn.Bilinear(4, 5, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.both(self.left(inputs).tanh(), self.right(inputs).tanh())


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = mlp(6, 8, 8), nn.Linear(8, CLASSES), reentrant

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.detach().requires_grad_()
        return self.second(checkpoint(self.first, inputs, use_reentrant=self.reentrant))


class DropPath(nn.Module):
    """Leaves out whole branches, of each example by its own chance."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branch, self.head = nn.Linear(6, 8), mlp(8, 8, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.stem(inputs)
        kept: Tensor | float = 1.0
        if self.training:
            kept = (torch.rand(len(inputs), 1, device=inputs.device) < 0.7).to(hidden.dtype) / 0.7
        return self.head(hidden + self.branch(hidden) * kept)


class Scaled(nn.Module):
    """LayerScale: a raw parameter beside layers, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.full((8,), 0.1)), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.stem(inputs)
        return self.head(hidden + self.scale * self.inner(hidden))


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = block(3, 8), block(8, 16, stride=2)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        high = self.down(images)
        return self.out(torch.cat([high, self.up(self.deep(high))], 1))


class WideResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), block(8, 8), block(8, 16, stride=2)
        self.short, self.head = nn.Conv2d(8, 16, 1, stride=2), nn.Linear(16, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.stem(images)
        hidden = hidden + self.one(hidden)
        return self.head((self.short(hidden) + self.two(hidden)).mean((2, 3)))


class Mixer(nn.Module):
    """MLP-Mixer: over patches, and over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norms = nn.Conv2d(3, 8, 4, 4), nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.over_patches, self.over_channels = mlp(16, 16, 16), mlp(8, 16, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.patch(images).flatten(2).transpose(1, 2)
        hidden = hidden + self.over_patches(self.norms[0](hidden).transpose(1, 2)).transpose(1, 2)
        return self.head((hidden + self.over_channels(self.norms[1](hidden))).mean(1))


class Contrast(nn.Module):
    """Each example is compared with all others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.inner(inputs)
        return self.head((hidden @ hidden.t()).softmax(1) @ hidden)


def mlp(inputs: int, width: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, outputs))


def block(channels: int, width: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride, 1), nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1)
    )


def pooled(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def constrained(constrain: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(constrain(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, CLASSES))


def built(name: str, build: Callable[[], nn.Module], records: entry.Records, **told: Any) -> Entry:
    return Entry(**{"name": name, "family": "torch.nn", "build": build, "records": records, **_LOSS, **told})


_LOSS = {"loss": entry.of_classes}
_FLAT, _LINE = numbers(6), numbers(4, 12)
_NORM, _SPECTRAL = nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm

ENTRIES_OF_LAYERS: tuple[Entry, ...] = (
    built(
        "LSTM, two layers, both ways",
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
        entry.words,
        frozen=("weight_hh_l1_reverse",),
    ),
    built("GRU", lambda: Recurrent(nn.GRU), entry.words),
    built("LSTMCell in a loop", lambda: Cells(nn.LSTMCell), entry.words),
    built("GRUCell in a loop", lambda: Cells(nn.GRUCell), entry.words),
    built("MultiheadAttention", Attentive, entry.words),
    built(
        "TransformerEncoder, arange(T)", Encoder, entry.words, alone="positions with one row per example or a leading 1"
    ),
    built("tied embeddings", Tied, entry.plain_texts, loss=entry.of_next_tokens),
    built("EmbeddingBag", Bag, entry.words),
    built("functional weights", Functional, _FLAT, alone="gradient of more.0 is not torch's"),
    built("Bilinear", Twice, _FLAT),
    built("checkpointing", lambda: Checkpointed(False), _FLAT),
    built(
        "checkpointing, reentrant", lambda: Checkpointed(True), _FLAT, alone="gradient of first.0.weight is not torch's"
    ),
    built("drop path", DropPath, _FLAT),
    built("layer scale with dropout", Scaled, _FLAT, alone="Scaled has raw parameters and draws random numbers"),
    built("weight_norm", lambda: constrained(_NORM), _FLAT, alone="ParametrizationList"),
    built(
        "spectral_norm",
        lambda: constrained(_SPECTRAL),
        _FLAT,
        refused="the buffer 0.parametrizations.weight.0._u is changed",
    ),
    built("PReLU", lambda: nn.Sequential(mlp(6, 8, 8), nn.PReLU(8), nn.Linear(8, CLASSES)), _FLAT),
    built("Conv1d", lambda: pooled(nn.Conv1d(4, 8, 3, dilation=2), nn.ReLU(), width=8), _LINE),
    built("Conv1d, depthwise", lambda: pooled(nn.Conv1d(4, 8, 3, groups=4), nn.GELU(), width=8), _LINE),
    built("ConvTranspose1d", lambda: pooled(nn.ConvTranspose1d(4, 8, 3, stride=2), nn.ReLU(), width=8), _LINE),
    built(
        "Conv3d",
        lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, CLASSES)),
        numbers(2, 5, 5, 5),
    ),
    built(
        "InstanceNorm",
        lambda: pooled(nn.Conv1d(4, 8, 3), nn.InstanceNorm1d(8, affine=True), nn.ReLU(), width=8),
        _LINE,
    ),
    built("RMSNorm", lambda: nn.Sequential(mlp(6, 8, 8), nn.RMSNorm(8), nn.Linear(8, CLASSES)), _FLAT),
    built("U-Net", Unet, pairs((3, 8, 8), (1, 8, 8)), loss=entry.of_values),
    built("WideResNet, GroupNorm", WideResidual, pictures(8)),
    built("MLP-Mixer", Mixer, pictures(16)),
    built(
        "BatchNorm",
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)),
        _FLAT,
        refused="replace_batch_norm(model) puts GroupNorm in its place",
    ),
    built("attention over the batch", Contrast, _FLAT, refused="they meet in Contrast"),
)
