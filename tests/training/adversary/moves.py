"""How an attack is drawn: each move aims at one weakness of float arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from training.adversary.chance import Chance, sign_pattern, vectors
from training.adversary.forms import Form
from training.adversary.target import LARGEST_WEIGHT, LEAST_CLIP, MOST_CLIP, Batch


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
    signs, second, parts = sign_pattern(chance), chance.pick(1.0, -1.0, 0.0), []
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
    return vectors(chance, spread, count, width) * signs(count)[:, None]


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
    inputs, slopes = chance.pick(sizes, sizes[::-1])
    shape = Shape(inputs, slopes, spread=chance.pick(0.0, 0.1))
    return _record(form, chance, shape), _company(form, chance, shape)


def _overflowing(form: Form, chance: Chance) -> tuple[Batch, Batch]:
    """Factors, products or their squares near the largest float: what is infinite here may be finite there."""
    most = 38.5 if chance.dtype is torch.float32 else 308.2
    sizes = chance.power(most / 2, most), chance.power(-most / 2, most / 2)
    both = chance.power(0.3 * most, 0.5 * most), chance.power(0.3 * most, 0.5 * most)
    inputs, slopes = chance.pick(sizes, sizes[::-1], both)
    shape = Shape(inputs, slopes, chance.pick(True, False), 1e-3)
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
