"""What to start training from: each value with the rule it comes from, its spread, and who measured it.

Every trial on private records costs budget, so a first guess is worth a rule. The constants are from
``docs/results/paper/utility.json`` and nothing else; a test computes them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from lrdp.accounting import SizedGaussian

_CLIENTS: Final = 10  # whose updates the study averages
_MOVES: Final = {"ten classes or more": (0.94, 1.3), "two classes": (0.23, 1.7)}
"""What the noise of a whole training moves a weight by, averaged over clients: geometric mean over three tasks of each
kind, and one standard deviation between them as a factor."""
_LOST: Final = {
    "ten classes or more": "0.20 points of accuracy on average, 0.83 at most",
    "two classes": "0.16 points of accuracy on average, 0.50 at most",
}
_CLIP_NORM: Final = 1
_STUDY: Final = "utility study, six tasks, 150 tuned rates at 60 steps"


@dataclass(frozen=True, kw_only=True)
class StartingValue:
    """A value to begin with, and the two values between which tuned ones lay."""

    name: str
    value: float
    low: float
    high: float
    rule: str
    source: str

    @property
    def text(self) -> str:
        """One line."""
        between = "" if self.low == self.high else f" ({self.low} to {self.high})"
        return f"{self.name} {self.value}{between}: {self.rule} [{self.source}]"


def starting_values(step: SizedGaussian, steps: int, local_steps: int) -> tuple[StartingValue, ...]:
    """For a training run of ``steps`` steps, ``local_steps`` of them in each round."""
    return (
        *(_rate(step, steps, classes) for classes in _MOVES),
        _plain(
            "clip norm",
            _CLIP_NORM,
            "for features of norm 1, where a linear head's gradients are at most √2 long; "
            "it was not tuned here, and a third of it was better in 12 of 14 ablations: scale it with the features, "
            "and the learning rate inversely",
            _STUDY,
        ),
        _plain(
            "local steps",
            local_steps,
            "as few as keep the training within 50 rounds, or as given: each is charged "
            "in any case, and fewer keep clients together",
            "this plan",
        ),
        _plain(
            "normaliser",
            step.normaliser,
            "sums are divided by the public size, never by the number of records "
            "that were drawn; with clients of different size each has its own",
            "the mechanism",
        ),
    )


def _rate(step: SizedGaussian, steps: int, classes: str) -> StartingValue:
    move, spread = _MOVES[classes]
    rate = move * math.sqrt(_CLIENTS) / (step.noise_on_mean * math.sqrt(steps))
    return StartingValue(
        name=f"learning rate, {classes}",
        value=_two_digits(rate),
        low=_two_digits(rate / spread),
        high=_two_digits(rate * spread),
        rule=f"{move} B√K/(σ√T) for K = {_CLIENTS} clients, so that noise alone moves a weight by {move} over the "
        f"training; plain SGD, linear heads on features of norm 1. This one rate for three tasks cost "
        f"{_LOST[classes]}; its √T was not varied",
        source=_STUDY,
    )


def record(values: tuple[StartingValue, ...]) -> list[dict[str, Any]]:
    """For programs."""
    return [vars(value) for value in values]


def _plain(name: str, value: float, rule: str, source: str) -> StartingValue:
    return StartingValue(name=name, value=value, low=value, high=value, rule=rule, source=source)


def _two_digits(value: float) -> float:
    rounded = round(value, 1 - math.floor(math.log10(value)))
    return rounded if rounded < 10 else int(rounded)
