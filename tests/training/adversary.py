"""A search for weights and records with which one record moves the computed sum by more than the clip norm.

The adversary chooses everything but the code: the weights, the records of the whole batch, the slope at every output,
the clip norm, whether denormals are flushed. Moves are drawn at random and the best are climbed from, by units in the
last place and by powers of two. What is maximised is the share: how far one record moves the sum that noise is added
to, in clip norms, so that more than 1 is a breach. From the command line:

    python tests/training/adversary.py --seconds 300 --json found.json
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lrdp.training.engine import Engine
from lrdp.training.local_steps import LocalSteps
from lrdp.training.sampling import Draw

LEAST_CLIP, MOST_CLIP = 1e-6, 1e3
LARGEST_WEIGHT = 1e4
_TURN = 42  # attacks drawn before as many are climbed to
Batch = tuple[Tensor, ...]
Loss = Callable[[nn.Module, Batch], Tensor]
Target = Callable[[nn.Module, Loss, Batch, Tensor, float], Tensor]


def computed_sum(
    model: nn.Module, loss: Loss, batch: Batch, live: Tensor, clip_norm: float, *, micro_batch: int = 64
) -> Tensor:
    """The sum that noise will be added to, over all trained parameters, in float64; rows not live have weight 0.

    All contact with the code under test is here: it is the very method that an update takes its sums from.
    """

    class Rows:
        def slots(self, numbers: np.ndarray) -> tuple[Batch, Tensor]:
            return tuple(part[numbers] for part in batch), live[numbers]

    task = SimpleNamespace(constants=SimpleNamespace(clip_norm=clip_norm))
    memory = SimpleNamespace(micro_batch=min(len(live), micro_batch))
    with Engine(model, loss) as engine:
        steps = LocalSteps(None, task, engine, None, Rows(), None, memory)
        totals = steps.clipped_sum(Draw(np.arange(len(live))))
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([totals.get(p, torch.zeros_like(p)).detach().double().flatten() for p in parameters])


def true_gradients(model: nn.Module, loss: Loss, batch: Batch) -> Tensor:
    """[rows, elements] in float64, by one plain backward pass for each record."""
    model = deepcopy(model).double()
    wide = tuple(part.double() if part.is_floating_point() else part for part in batch)
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for row in range(len(wide[0])):
        value = loss(model, tuple(part[row : row + 1] for part in wide)).sum()
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        pairs = zip(gradients, parameters, strict=True)
        found.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]))
    return torch.stack(found)


# ---------------------------------------------------------------------------------------------------------------- forms
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

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
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

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
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
    gram, multiplied = ("Factored._squares_by_gram", "Factored._by_gram"), ("Factored.rows",)
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
    gram, multiplied = ("Factored._squares_by_gram", "Factored._by_gram"), ("Factored.rows",)
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


# --------------------------------------------------------------------------------------------------------------- chance
class Chance:
    """All that is random in a search, from one seed."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._plain, self._tensors, self.dtype = random.Random(seed), torch.Generator().manual_seed(seed), dtype

    def pick(self, *options):
        return self._plain.choice(options)

    def uniform(self, low: float, high: float) -> float:
        return self._plain.uniform(low, high)

    def power(self, low: float, high: float) -> float:
        """A power of ten: any order of magnitude is as likely as any other."""
        return 10.0 ** self.uniform(low, high)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._tensors, dtype=self.dtype)

    def whole(self, below: int, *shape: int) -> Tensor:
        return torch.randint(0, below, shape, generator=self._tensors)


def _mantissas(chance: Chance, count: int, width: int) -> Tensor:
    """One number to a term: products all round the same way, and the errors add up instead of averaging out."""
    return torch.full((count, width), 1.0 + chance.uniform(0.0, 1.0), dtype=chance.dtype)


def _alternating(chance: Chance, count: int, width: int) -> Tensor:
    return (1.0 - 2.0 * (torch.arange(width) % 2)).to(chance.dtype).expand(count, width)


def _spike(chance: Chance, count: int, width: int) -> Tensor:
    return torch.zeros(count, width, dtype=chance.dtype).index_fill_(1, chance.whole(width, 1), 1.0)


def _alike(chance: Chance, count: int, width: int) -> Tensor:
    return chance.normal(1, width).expand(count, width)


def _vectors(chance: Chance, spread: float, count: int, width: int) -> Tensor:
    """Nearly the same vector ``count`` times: the terms differ by ``spread``, as a whole or in each element."""
    base = chance.pick(*[_mantissas] * 6, _alternating, _spike, _alike)(chance, count, width)
    return base * (1.0 + spread * chance.normal(count, chance.pick(1, 1, 1, width)))


def _signs(chance: Chance) -> Callable[[int], Tensor]:
    """Signs of the terms whose sum is, mostly, zero; the same kind for any number of terms."""
    kind = chance.pick(*["ends"] * 2, *["neighbours"] * 2, *["by turns"] * 2, "halves", "random", "same")
    tilt, start = chance.pick(0.0, 0.0, 0.0, 1.0, -1.0), chance.uniform(0.0, 1.0)

    def signs(count: int) -> Tensor:
        places = torch.arange(count)
        first = int(start * max(1, count - 1))
        found = {
            "ends": lambda: 1.0 * (places == 0) - 1.0 * (places == count - 1),
            "neighbours": lambda: 1.0 * (places == first) - 1.0 * (places == first + 1),
            "by turns": lambda: 1.0 - 2.0 * (places % 2),
            "halves": lambda: 1.0 - 2.0 * (places >= count / 2),
            "random": lambda: 1.0 - 2.0 * chance.whole(2, count),
            "same": lambda: torch.ones(count),
        }[kind]()
        return (found * 2.0 ** (tilt * places.clamp(max=8))).to(chance.dtype)

    return signs


# ---------------------------------------------------------------------------------------------------------------- moves
@dataclass(frozen=True)
class Attack:
    """All that the adversary chooses. Record ``place`` of the batch is the one that is there or not.

    Where it is not, its row has weight 0 and is as it was, or is blank, or holds ``stand_in`` instead.
    """

    move: str
    weights: Batch
    batch: Batch
    place: int
    clip_norm: float
    flush: bool
    absence: str = "without weight"
    stand_in: Batch = field(default=(), repr=False)


@dataclass(frozen=True)
class Shape:
    """What a move's records look like: how large, which factor changes its sign from term to term, how alike terms."""

    inputs: float
    slopes: float
    signed_inputs: bool = False
    spread: float = 0.0


def _record(form: Form, chance: Chance, shape: Shape) -> Batch:
    """One record: inputs and slopes of every use by turns."""
    if form.classes:
        return chance.normal(1, *form.uses[0].inputs), chance.whole(form.classes, 1)
    signs, second, parts = _signs(chance), chance.pick(1.0, -1.0, 0.0), []
    spreads = chance.pick((0.0, shape.spread), (shape.spread, 0.0), (shape.spread, shape.spread))
    for number, use in enumerate(form.uses):
        on_inputs, on_slopes = (signs, torch.ones) if shape.signed_inputs else (torch.ones, signs)
        inputs = use.arranged(partial(_signed, chance, on_inputs, spreads[0]), use.inputs) * shape.inputs
        if use.entries:
            inputs = chance.pick(torch.zeros(1, *use.inputs).long(), chance.whole(use.entries, 1, *use.inputs))
        slopes = use.arranged(partial(_signed, chance, on_slopes, spreads[1]), use.outputs) * shape.slopes
        parts += [inputs, slopes * second**number]
    return tuple(parts)


def _signed(chance: Chance, signs: Callable[[int], Tensor], spread: float, count: int, width: int) -> Tensor:
    return _vectors(chance, spread, count, width) * signs(count)[:, None]


def _weights(chance: Chance, model: nn.Module, extreme: bool) -> Batch:
    """Weights of chance, or made to be attacked, or of zero, so that outputs stay finite if the inputs are extreme."""
    parameters = list(model.parameters())
    kinds = "zero", "zero", "chance", "biases", "biases", "biases and one", "biases and one", "any"
    kind = chance.pick(*kinds, *["zero"] * 8 * extreme)
    if kind in ("zero", "chance"):
        scale = 0.0 if kind == "zero" else chance.power(-3, 4)
        return tuple((chance.normal(*p.shape) * scale).clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT) for p in parameters)
    last = max((number for number, p in enumerate(parameters) if p.dim() > 1), default=0)
    free = {"any": set(range(len(parameters))), "biases and one": {last}}.get(kind, set())
    return tuple(_weight(chance, p, number in free) for number, p in enumerate(parameters))


def _weight(chance: Chance, parameter: nn.Parameter, free: bool) -> Tensor:
    """A weight whose columns come in blocks of opposite sign and of nearly one size, so that positions cancel.

    Where biases are to carry the signal, others are not ``free``: the inputs of the next layer are then constants.
    """
    scale = chance.pick(1.0, chance.power(-3, 4), LARGEST_WEIGHT / 2.0, LARGEST_WEIGHT / 2.0)
    if parameter.dim() > 1 and not free:
        scale = chance.pick(0.0, 0.0, chance.power(-8, 0))
    rows, columns = (parameter.shape[0], parameter[0].numel()) if parameter.dim() > 1 else (1, parameter.numel())
    places = torch.arange(columns)
    blocks = chance.pick(places * 0, places * 2 // columns, places % 2, places % 4, places)
    if parameter.dim() == 1 and not free:
        blocks = places * 0
    wobble = 1.0 + 2.0 ** -chance.uniform(8, 24) * chance.normal(columns)
    values = (1.0 - 2.0 * (blocks % 2)) * wobble[blocks] * (1.0 + chance.uniform(0.0, 1.0)) * scale
    slopes = chance.normal(rows, 1) if parameter.dim() > 1 else torch.ones(1, 1, dtype=chance.dtype)
    return (values * slopes).reshape(parameter.shape).clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT).to(chance.dtype)


def _spread(chance: Chance) -> float:
    """Mostly near the root of one unit in the last place, where the rest of the sum meets the rounding of squares."""
    unit = torch.finfo(chance.dtype).eps
    return unit ** chance.pick(chance.uniform(0.4, 0.6), chance.uniform(0.2, 1.0))


def _cancelling(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Terms that are large and cancel up to a small rest: a square of the rest comes from squares of the terms."""
    shape = Shape(chance.power(-3, 6), chance.power(-3, 6), spread=_spread(chance))
    return _record(form, chance, shape), _company(form, chance, shape)


def _carried(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Inputs that cancel under slopes that do not: the weight's square is all rounding, the bias's is large."""
    shape = Shape(chance.power(0, 8), chance.power(-4, 4), signed_inputs=True, spread=_spread(chance))
    return _record(form, chance, shape), _company(form, chance, shape)


def _absorbing(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Terms so large that what was added up before is lost in them, and that cancel to nothing: others' share goes."""
    huge = Shape(chance.power(0, 18), chance.power(0, 18), signed_inputs=chance.pick(True, False))
    others = _record(form, chance, Shape(1.0, 1.0, spread=0.1))
    return _record(form, chance, huge), _repeated(others, chance.pick(1, 15, 63))


def _vanishing(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """One factor whose squares underflow, or underflows once it is scaled; the other as large as it or its squares may
    be: their product is an ordinary number."""
    reach = 127 if chance.dtype is torch.float32 else 1023
    squares = chance.uniform(0.46, 0.65), chance.uniform(0.4, 0.51)
    floats = chance.uniform(0.37, 0.5), chance.uniform(0.97, 1.0)
    anything = chance.uniform(0.35, 1.17), chance.uniform(0.0, 1.0)
    small, large = chance.pick(squares, floats, anything)
    sizes = 2.0 ** -(small * reach), 2.0 ** (large * reach)
    shape = Shape(*chance.pick(sizes, sizes[::-1]), spread=chance.pick(0.0, 0.1))
    return _record(form, chance, shape), _company(form, chance, shape)


def _overflowing(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Factors, products or their squares near the largest float: what is infinite here may be finite there."""
    most = 38.5 if chance.dtype is torch.float32 else 308.2
    sizes = chance.power(most / 2, most), chance.power(-most / 2, most / 2)
    both = chance.power(0.3 * most, 0.5 * most), chance.power(0.3 * most, 0.5 * most)
    shape = Shape(*chance.pick(sizes, sizes[::-1], both), chance.pick(True, False), 1e-3)
    return _record(form, chance, shape), _company(form, chance, shape)


def _aligned(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Many records of one direction: the sum is long, and so is its rounding."""
    record = _record(form, chance, Shape(chance.power(-1, 3), chance.power(-1, 3), spread=0.1))
    return record, _repeated(record, chance.pick(15, 63, 191))


def _wild(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Elements of all orders of magnitude."""
    record = _record(form, chance, Shape(1.0, 1.0, chance.pick(True, False), 0.5))
    orders = chance.uniform(1, 30)

    def scaled(part: Tensor) -> Tensor:
        return part * torch.pow(10.0, chance.normal(*part.shape) * orders) if part.is_floating_point() else part

    return tuple(map(scaled, record)), _company(form, chance, Shape(1.0, 1.0))


def _company(form: Form, chance: Chance, shape: Shape) -> Batch:
    """The other records: none, or some of the same kind, or ordinary ones."""
    count = chance.pick(0, 0, 1, 6)
    parts = [_record(form, chance, chance.pick(shape, Shape(1.0, 1.0))) for _ in range(count)]
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True)) if parts else ()


def _repeated(record: Batch, count: int) -> Batch:
    return tuple(part.expand(count, *part.shape[1:]) for part in record)


MOVES = (_cancelling, _carried, _absorbing, _vanishing, _overflowing, _aligned, _wild)


def drawn(form: Form, chance: Chance, model: nn.Module, number: int) -> Attack:
    """The first draft of an attack; moves take turns. The record comes last, to meet the others' sum, or first."""
    move = MOVES[number % len(MOVES)]
    record, others = move(form, chance)
    place = chance.pick(0, *[len(others[0])] * 3) if others else 0
    order = (others, record) if place else (record, others)
    return Attack(
        move=move.__name__.removeprefix("_"),
        weights=_weights(chance, model, move in (_vanishing, _overflowing)),
        batch=tuple(torch.cat(parts) for parts in zip(*order, strict=True)) if others else record,
        place=place,
        clip_norm=chance.pick(LEAST_CLIP, LEAST_CLIP, 1e-3, _any_clip(chance)),
        flush=chance.pick(True, False, False),
        absence=chance.pick("without weight", "blank", "replaced"),
        stand_in=_record(form, chance, Shape(1.0, 1.0)) if form.classes else _opposite(record),
    )


def _any_clip(chance: Chance) -> float:
    return chance.power(math.log10(LEAST_CLIP), math.log10(MOST_CLIP))


def _opposite(record: Batch) -> Batch:
    """The record with all slopes turned round: two gradients cannot lie further apart."""
    return tuple(-part if place % 2 else part for place, part in enumerate(record))


# --------------------------------------------------------------------------------------------------------------- search
@contextmanager
def _kept_bytes(limit: int | None) -> Iterator[None]:
    """The engine's limit on what is kept, wherever it was imported to, replaced for a while."""
    if limit is None:
        yield
        return
    loaded = [module for name, module in sys.modules.items() if name.startswith("lrdp.training")]
    places = [module for module in loaded if hasattr(module, "KEPT_BYTES")]
    before = [module.KEPT_BYTES for module in places]
    for module in places:
        module.KEPT_BYTES = limit
    try:
        yield
    finally:
        for module, value in zip(places, before, strict=True):
            module.KEPT_BYTES = value


@contextmanager
def _flushing(flush: bool) -> Iterator[None]:
    torch.set_flush_denormal(flush)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def share(form: Form, attack: Attack, model: nn.Module | None = None, target: Target = computed_sum) -> float:
    """How far the record moves the computed sum, in clip norms; in two of them where another takes its place."""
    model = form.model() if model is None else model
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), attack.weights, strict=True):
            parameter.copy_(weight)
    live = torch.ones(len(attack.batch[0]), dtype=torch.bool)
    without, alive = _absent(attack, live)
    with _kept_bytes(form.kept_bytes), _flushing(attack.flush):
        first = target(model, form.loss, attack.batch, live, attack.clip_norm)
        second = target(model, form.loss, without, alive, attack.clip_norm)
    moved = float((first - second).norm())
    allowed = attack.clip_norm * (2.0 if attack.absence == "replaced" else 1.0)
    return moved / allowed if math.isfinite(moved) else math.inf


def _absent(attack: Attack, live: Tensor) -> tuple[Batch, Tensor]:
    """The neighbouring batch, and which of its rows are live."""
    if attack.absence == "replaced":
        return _with(attack.batch, attack.place, attack.stand_in), live
    alive = live.clone()
    alive[attack.place] = False
    if attack.absence == "without weight":
        return attack.batch, alive
    return _with(attack.batch, attack.place, tuple(torch.zeros_like(part[:1]) for part in attack.batch)), alive


def _with(batch: Batch, place: int, record: Batch) -> Batch:
    changed = tuple(part.clone() for part in batch)
    for part, given in zip(changed, record, strict=True):
        part[place] = given[0]
    return changed


def nudged(values: Tensor, chance: Chance) -> Tensor:
    """``values`` moved by some units in the last place, or by a power of two: some elements, or all alike."""
    if not values.is_floating_point():
        return values
    if chance.pick(True, False, False):
        return values * 2.0 ** chance.pick(-8, -1, 1, 8)
    bits = torch.int32 if values.dtype is torch.float32 else torch.int64
    most = chance.pick(1, 16, 1024, 1 << 15)
    axes = chance.pick(values.shape, (*values.shape[:-1], 1), (values.shape[0], *(1,) * (values.dim() - 1)))
    steps = chance.whole(2 * most + 1, *axes) - most
    moved = (values.contiguous().view(bits) + steps.to(bits)).view(values.dtype)
    return torch.where((values != 0) & torch.isfinite(moved), moved, values)


_CLIMBS = ("record", "record", "record", "weights", "weights", "clip norm")


def climbed(form: Form, attack: Attack, chance: Chance) -> Attack:
    """A neighbour of the attack; of records that are not the adversary's own, nothing is changed."""
    kind = chance.pick(*_CLIMBS[-3:]) if form.classes else chance.pick(*_CLIMBS)
    if kind == "weights":
        return replace(attack, weights=_nudged_weights(attack.weights, chance))
    if kind == "record":
        record = tuple(nudged(part[attack.place : attack.place + 1], chance) for part in attack.batch)
        return replace(attack, batch=_with(attack.batch, attack.place, record))
    clip_norm = min(max(attack.clip_norm * 2.0 ** chance.uniform(-4, 4), LEAST_CLIP), MOST_CLIP)
    return replace(attack, clip_norm=clip_norm, flush=chance.pick(True, False))


def _nudged_weights(weights: Batch, chance: Chance) -> Batch:
    chosen = chance.pick(*range(len(weights)))
    moved = nudged(weights[chosen], chance).clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT)
    return tuple(moved if place == chosen else weight for place, weight in enumerate(weights))


@dataclass
class Finding:
    """What a search of one form came to."""

    tried: int = 0
    largest: float = 0.0
    attack: Attack | None = None

    def note(self, found: float, attack: Attack) -> None:
        self.tried += 1
        if found > self.largest or self.attack is None:
            self.largest, self.attack = found, attack


@dataclass(frozen=True)
class Budget:
    """When a search ends: after so many attacks, at a time of the clock, or when a share is ``enough``."""

    tries: int
    until: float = math.inf
    enough: float = math.inf

    def spent(self, finding: Finding) -> bool:
        return finding.tried >= self.tries or finding.largest >= self.enough or time.monotonic() > self.until


def search(form: Form, seed: int, budget: Budget, target: Target = computed_sum) -> Finding:
    """The best attack within the budget: some are drawn, the best of every move is climbed from, and so again."""
    chance, model, finding = Chance(seed, form.dtype), form.model(), Finding()
    best: dict[str, tuple[float, Attack]] = {}
    while not budget.spent(finding):
        turn = finding.tried % (2 * _TURN)
        if turn == 0:
            best = {}
        if turn < _TURN:
            attack = drawn(form, chance, model, finding.tried)
        else:
            attack = climbed(form, best[chance.pick(*best)][1], chance)
        found = share(form, attack, model, target)
        finding.note(found, attack)
        if found >= best.get(attack.move, (0.0, attack))[0]:
            best[attack.move] = found, attack
    return finding


def table(seconds: float, seed: int = 0, target: Target = computed_sum) -> dict[str, dict[str, float | int | str]]:
    """The search of every form, each in its part of the time: how many attacks were tried and the largest share."""
    found: dict[str, dict[str, float | int | str]] = {}
    for form in forms():
        budget = Budget(sys.maxsize, until=time.monotonic() + seconds / len(forms()))
        finding = search(form, seed, budget, target)
        move = finding.attack.move if finding.attack else "none"  # a short search may not get round to every form
        found[form.name] = {"tried": finding.tried, "largest": finding.largest, "move": move}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="for all forms together (300)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--json", metavar="FILE", help="write the table to this file as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = table(options.seconds, options.seed)
    for name, row in found.items():
        sys.stdout.write(f"{name:40} {row['tried']:>8} {row['largest']:>12.4g}  {row['move']}\n")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
