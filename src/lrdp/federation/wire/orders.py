"""What a server asks of its clients in a round: public values, each of which a client's policy may refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from lrdp import limits
from lrdp.errors import InvalidInput

_MOST_BYTES: Final = 4096
_WHOLE: Final = ("steps", "batch_size", "renewal")
_FLOWERS: Final = {"lr": "learning_rate"}
"""What Flower's own apps call it."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is left out is taken from each client's own policy and task; what is given may only be stricter.

    ``renewal`` asks for another update in the same round, noised and charged anew: the one before was shown in a sum
    that came to nothing.
    """

    steps: int | None = None
    batch_size: int | None = None
    noise_multiplier: float | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None
    metrics: tuple[str, ...] = ()
    renewal: int | None = None

    def __post_init__(self) -> None:
        for name in _WHOLE:
            if (value := getattr(self, name)) is not None:
                limits.keep(self, **{name: limits.whole(name, value, 1, "it counts what is done")})
        for name in ("noise_multiplier", "clip_norm", "learning_rate"):
            if (number := getattr(self, name)) is not None:
                limits.keep(self, **{name: limits.positive(name, number, "it is a scale")})

    def with_config(self, config: Mapping[str, Any]) -> Order:
        """The same order, with the values of a Flower ``train_config`` in place of its own."""
        given = {_FLOWERS.get(name, name).replace("-", "_"): value for name, value in config.items()}
        if len(given) < len(config):
            raise InvalidInput(f"train_config says one thing twice: {', '.join(sorted(config))}; nothing was asked.")
        if unknown := set(given) - {field.name for field in fields(self)}:
            raise InvalidInput(f"an order has no {', '.join(sorted(unknown))}: clients would not understand it.")
        return replace(self, **given)

    def encode(self) -> bytes:
        """One encoding for one order."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(given, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Order:
        """Strict: a key that is not known, or of another type, is refused."""
        try:
            given = json.loads(data[:_MOST_BYTES]) if len(data) <= _MOST_BYTES else None
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or not set(given) <= {field.name for field in fields(cls)}:
            raise InvalidInput("the order is not understood: nothing was trained and nothing was spent.")
        metrics = given.pop("metrics", [])
        whole = all(type(given[name]) is int for name in _WHOLE if name in given)
        scales = all(type(value) in (int, float) for value in given.values())
        if not (whole and scales and isinstance(metrics, list) and all(type(name) is str for name in metrics)):
            raise InvalidInput("the order holds a value of another type: nothing was trained and nothing was spent.")
        try:
            return cls(metrics=tuple(metrics), **given)
        except OverflowError:
            raise InvalidInput("the order holds a number beyond every limit: nothing was spent.") from None
