"""What a server asks of its clients in a round: public values, each of which a client's policy may refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from lrdp import limits
from lrdp.codec import DOUBLE, NUMBER, PACKED, Format, Part, many, optional, pack, text
from lrdp.errors import InvalidInput, Malformed

_MOST_BYTES: Final = 4096
_WHOLE: Final = ("steps", "batch_size", "renewal")
_SCALES: Final = ("noise_multiplier", "clip_norm", "learning_rate")
_LATER: Final = "normaliser"
"""What only an order's second form has: one without it is written in the first form, which older clients know."""
_FLOWERS: Final = {"lr": "learning_rate"}
"""What Flower's own apps call it."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is left out is taken from each client's own policy and task; what is given may only be stricter.

    ``renewal`` asks for another update in the same round, noised and charged again: the one before was shown in a sum
    that was never proved. Every client divides its noised sums by ``normaliser``, in place of its own batch size.

    >>> str(Order(steps=10).with_config({"lr": 0.5}))
    'steps=10, learning_rate=0.5'
    """

    steps: int | None = None
    batch_size: int | None = None
    noise_multiplier: float | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None
    metrics: tuple[str, ...] = ()
    renewal: int | None = None
    normaliser: float | None = None

    def __post_init__(self) -> None:
        for name in _WHOLE:
            if (value := getattr(self, name)) is not None:
                limits.keep(self, **{name: limits.whole(name, value, 1, "it counts what is done")})
        for name in (*_SCALES, _LATER):
            if (number := getattr(self, name)) is not None:
                limits.keep(self, **{name: limits.positive(name, number, "it is a scale")})

    def with_config(self, config: Mapping[str, Any]) -> Order:
        """The same order, with the values of a Flower ``train_config`` in place of its own."""
        given = {_FLOWERS.get(name, name).replace("-", "_"): value for name, value in config.items()}
        if len(given) < len(config):
            raise InvalidInput(f"train_config says one thing twice: {', '.join(sorted(config))}; nothing was asked.")
        known = {field.name for field in fields(self)}
        if unknown := set(given) - known:
            raise InvalidInput(
                f"an order has no {', '.join(sorted(unknown))}, and clients would not understand it: a train_config "
                f"has any of {', '.join(sorted(known | set(_FLOWERS)))}; nothing was asked."
            )
        return replace(self, **given)

    def __str__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, ())) or "nothing"

    def encode(self) -> bytes:
        """One encoding for one order."""
        return (_FIRST if self.normaliser is None else _SECOND).encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Order:
        """What ``encode`` made."""
        try:
            return cls(**(_SECOND if data.startswith(_SECOND_LABEL) else _FIRST).decode(data))
        except Malformed as problem:
            raise InvalidInput(f"the order is not understood, so nothing was trained or spent: {problem}") from None


_PARTS: Final[dict[str, Part[bytes, Any]]] = {
    **{name: optional(NUMBER) for name in _WHOLE},
    **{name: optional(DOUBLE) for name in _SCALES},
    "metrics": many(text(64), 16),
}
_FIRST: Final = Format(PACKED, (b"order/v1",), _PARTS, _MOST_BYTES)
_SECOND: Final = Format(PACKED, (b"order/v2",), {**_PARTS, _LATER: DOUBLE}, _MOST_BYTES)
_SECOND_LABEL: Final = pack(b"order/v2")
