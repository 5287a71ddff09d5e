"""The search itself: attacks are drawn, the best are climbed from, and the largest share is kept."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from training.adversary.chance import Chance
from training.adversary.forms import Form, forms
from training.adversary.moves import Attack, drawn
from training.adversary.target import LARGEST_WEIGHT, LEAST_CLIP, MOST_CLIP, Batch, Target, computed_sum


@contextmanager
def _kept_bytes(limit: int | None) -> Iterator[None]:
    """The engine's limit on what is kept, wherever it was imported to, replaced for a while."""
    if limit is None:
        yield
        return
    loaded = [module for name, module in sys.modules.items() if name.startswith("lrdp.training")]
    places: list[Any] = [module for module in loaded if hasattr(module, "KEPT_BYTES")]
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


_TURN = 42  # attacks drawn before as many are climbed to
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
