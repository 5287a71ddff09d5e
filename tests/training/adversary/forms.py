"""Every form of layer and every way to a norm, each as a small model with records and slopes that can be chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.adversary.target import Batch, Loss


@dataclass(frozen=True)
class Use:
    """One input of a model and the output that comes of it, without the rows; terms lie along all axes but one."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    channels_first: bool = False
    entries: int = 0  # of an embedding: the inputs are whole numbers below

    def arranged(self, draw: Callable[[int, int], Tensor], shape: tuple[int, ...]) -> Tensor:
        """What ``draw`` gives for (terms, width), in the layer's own layout."""
        width = self._width(shape)
        drawn = draw(prod(shape) // width, width)
        return (drawn.t() if self.channels_first else drawn).reshape(1, *shape)

    def _width(self, shape: tuple[int, ...]) -> int:
        return shape[0] if self.channels_first else shape[-1]


@dataclass(frozen=True)
class Form:
    """A layer, or a small model, whose norm is taken in one certain way.

    ``kept_bytes`` stands in for the engine's own limit, so that small shapes take the way of large ones. ``way`` names
    private methods of which one is to run, where the code under test has it.
    """

    name: str
    build: Callable[[], nn.Module]
    uses: tuple[Use, ...]
    dtype: torch.dtype = torch.float32
    kept_bytes: int | None = None
    way: tuple[str, ...] = ()
    classes: int = 0  # the loss is cross entropy and the records are not the adversary's; else slopes are free

    @property
    def loss(self) -> Loss:
        return _cross_entropy if self.classes else _free_slopes

    def model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.build().to(self.dtype)


def _free_slopes(model: nn.Module, batch: Batch) -> Tensor:
    """A batch of inputs and slopes by turns: the gradient at each output is whatever the adversary wants."""
    outputs = model(*batch[0::2])
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum((output * slopes).flatten(1).sum(1) for output, slopes in zip(outputs, batch[1::2], strict=True))


def _cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


class First(nn.Module):
    """A layer of which only the first of several outputs counts."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs)[0]


class SelfAttention(First):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs, inputs, inputs, need_weights=False)[0]


class Images(First):
    """Several images to a record."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])


class Twice(First):
    """One layer used on two inputs: its weight is tied to itself."""

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.inner(first), self.inner(second)


class TiedEmbedding(nn.Module):
    """A weight that is looked up and multiplied with."""

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(entries, width), nn.Linear(width, entries, bias=False)
        self.linear.weight = self.embedding.weight

    def forward(self, indices: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(indices), self.linear(inputs)


class Raw(nn.Module):
    """Parameters that belong to no layer: a scale and a shift."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale + self.shift


class RawMatrix(nn.Module):
    """A linear map that is not a layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(outputs, inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.matrix.t()


class TwoForms(RawMatrix):
    """A raw matrix that is a layer's weight as well."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.linear = nn.Linear(inputs, outputs)
        self.linear.weight = self.matrix

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(first), self.linear(second)


def _two_positions(classes: int, width: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.Flatten(), nn.Linear(2 * width, classes)
    )


def _two_convolutions(classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 32, 2, 2), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.Flatten(), nn.Linear(128, classes))


def _transposed_linear() -> nn.Module:
    from transformers.pytorch_utils import Conv1D

    return Conv1D(48, 64)


def _linear_forms() -> Iterator[Form]:
    sequence, short = Use((4, 64), (4, 48)), Use((8, 5), (8, 6))
    gram, multiplied = ("Factored._squares_by_gram", "Factored._by_gram", "Factored._grams"), ("Factored.rows",)
    yield Form("linear, one term", lambda: nn.Linear(24, 16), (Use((24,), (16,)),))
    yield Form("linear, one output", lambda: nn.Linear(24, 1), (Use((24,), (1,)),))
    yield Form("linear, one element", lambda: nn.Linear(1, 1), (Use((1,), (1,)),))
    yield Form("linear, Gram", lambda: nn.Linear(64, 48), (sequence,), way=gram)
    yield Form("linear, Gram, no bias", lambda: nn.Linear(64, 48, bias=False), (sequence,), way=gram)
    yield Form("linear, Gram, wide", lambda: nn.Linear(1024, 32), (Use((2, 1024), (2, 32)),), way=gram)
    yield Form("linear, Gram, long", lambda: nn.Linear(96, 64), (Use((48, 96), (48, 64)),), way=gram)
    yield Form("linear, Gram, float64", lambda: nn.Linear(64, 48), (sequence,), torch.float64, way=gram)
    yield Form("linear, multiplied out", lambda: nn.Linear(5, 6), (short,), way=multiplied)
    yield Form("linear, multiplied out twice", lambda: nn.Linear(5, 6), (short,), kept_bytes=0, way=multiplied)
    yield Form("linear, tied", lambda: Twice(nn.Linear(64, 48)), (sequence, sequence), way=gram)
    yield Form("transposed linear", _transposed_linear, (sequence,), way=gram)


def _embedding_forms() -> Iterator[Form]:
    gram, multiplied = ("Factored._squares_by_gram", "Factored._by_gram", "Factored._grams"), ("Factored.rows",)
    many, few = Use((4,), (4, 256), entries=20), Use((6,), (6, 4), entries=3)
    yield Form("embedding, one term", lambda: nn.Embedding(9, 16), (Use((1,), (1, 16), entries=9),))
    yield Form("embedding, Gram", lambda: nn.Embedding(20, 256), (many,), way=gram)
    yield Form("embedding, Gram, float64", lambda: nn.Embedding(20, 256), (many,), torch.float64, way=gram)
    yield Form("embedding, multiplied out", lambda: nn.Embedding(3, 4), (few,), way=multiplied)
    yield Form("embedding, multiplied out twice", lambda: nn.Embedding(3, 4), (few,), kept_bytes=0, way=multiplied)
    yield Form("embedding, tied", lambda: TiedEmbedding(20, 256), (many, Use((3, 256), (3, 20))), way=gram)


def _convolution_forms() -> Iterator[Form]:
    image = partial(Use, channels_first=True)
    multiplied, patches, pixels = ("Convolved._multiplied_out",), ("Convolved._patch_gram",), ("Convolved._pixel_gram",)
    small, small_use = lambda: nn.Conv2d(2, 3, 3), (image((2, 8, 8), (3, 6, 6)),)
    yield Form("convolution 1d, multiplied out", lambda: nn.Conv1d(2, 3, 3), (image((2, 24), (3, 22)),), way=multiplied)
    yield Form("convolution 2d, multiplied out", small, small_use, way=multiplied)
    yield Form("convolution 2d, multiplied out twice", small, small_use, kept_bytes=0, way=multiplied)
    yield Form("convolution 2d, tied", lambda: Twice(small()), small_use * 2)
    yield Form("convolution 2d, tied, twice", lambda: Twice(small()), small_use * 2, kept_bytes=0)
    strided, strided_use = partial(nn.Conv2d, 16, 32, 2, stride=2), (image((16, 4, 4), (32, 2, 2)),)
    yield Form("convolution 2d, patches", strided, strided_use, way=patches)
    yield Form("convolution 2d, patches, float64", strided, strided_use, torch.float64, way=patches)
    yield Form("convolution 2d, patches, groups", partial(strided, groups=2), strided_use, way=patches)
    line = image((24, 16), (48, 4))
    yield Form("convolution 1d, patches", lambda: nn.Conv1d(24, 48, 3, stride=4), (line,), way=patches)
    padded, padded_use = partial(nn.Conv2d, 32, 32, 3, padding=1), (image((32, 4, 4), (32, 4, 4)),)
    yield Form("convolution 2d, pixels", lambda: nn.Conv2d(32, 32, 2), (image((32, 3, 3), (32, 2, 2)),), way=pixels)
    yield Form("convolution 2d, pixels, padded", padded, padded_use, way=pixels)
    yield Form("convolution 2d, pixels, groups", partial(padded, groups=2), padded_use, way=pixels)
    yield Form("convolution 1d, pixels", lambda: nn.Conv1d(48, 32, 3), (image((48, 6), (32, 4)),), way=pixels)
    yield Form(
        "convolution 3d, pixels", lambda: nn.Conv3d(16, 24, 2), (image((16, 2, 2, 3), (24, 1, 1, 2)),), way=pixels
    )
    yield Form("convolution 2d, large weight", lambda: nn.Conv2d(40, 60, 3), (image((40, 5, 5), (60, 3, 3)),))
    yield Form("convolution 2d, images", lambda: Images(nn.Conv2d(16, 24, 2)), (Use((2, 16, 2, 2), (2, 24, 1, 1)),))


def _other_forms() -> Iterator[Form]:
    image = partial(Use, channels_first=True)
    sequence = Use((5, 16), (5, 16))
    yield Form("layer norm", lambda: nn.LayerNorm(16), (sequence,))
    yield Form("RMS norm", lambda: nn.RMSNorm(16), (sequence,))
    yield Form("group norm", lambda: nn.GroupNorm(2, 8), (image((8, 4, 4), (8, 4, 4)),))
    yield Form("instance norm", lambda: nn.InstanceNorm2d(6, affine=True), (image((6, 4, 4), (6, 4, 4)),))
    steps = Use((2, 96), (2, 16))
    yield Form("LSTM", lambda: First(nn.LSTM(96, 16, batch_first=True)), (steps,))
    yield Form("GRU, both ways", lambda: First(nn.GRU(96, 8, batch_first=True, bidirectional=True)), (steps,))
    yield Form("RNN", lambda: First(nn.RNN(96, 16, batch_first=True, nonlinearity="relu")), (steps,))
    attention = Use((2, 64), (2, 64))
    yield Form("attention", lambda: SelfAttention(nn.MultiheadAttention(64, 2, batch_first=True)), (attention,))
    yield Form("raw", lambda: Raw(16), (sequence,))
    yield Form("raw, repeated", lambda: Raw(16), (sequence,), kept_bytes=0, way=("Repeated.rows",))
    matrix = Use((4, 12), (4, 10))
    yield Form("raw matrix", lambda: RawMatrix(12, 10), (matrix,))
    yield Form("raw matrix, repeated", lambda: RawMatrix(12, 10), (matrix,), kept_bytes=0, way=("Repeated.rows",))
    yield Form("two forms", lambda: TwoForms(12, 10), (matrix, matrix), way=("Mixed.rows",))
    yield Form("two forms, repeated", lambda: TwoForms(12, 10), (matrix, matrix), kept_bytes=0, way=("Mixed.rows",))


def _model_forms() -> Iterator[Form]:
    positions, image = Use((2, 16), (10,)), Use((2, 4, 4), (10,), channels_first=True)
    yield Form("two positions", lambda: _two_positions(10), (positions,))
    yield Form("two convolutions", lambda: _two_convolutions(10), (image,))
    yield Form("two positions, weights only", lambda: _two_positions(10), (positions,), classes=10)
    yield Form("two convolutions, weights only", lambda: _two_convolutions(10), (image,), classes=10)


def forms() -> list[Form]:
    """Every layer form and every way to its norm."""
    return [*_linear_forms(), *_embedding_forms(), *_convolution_forms(), *_other_forms(), *_model_forms()]
