"""Which data, made into which features."""

from __future__ import annotations

from dataclasses import dataclass

from lrdp.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """As in a study's TOML.

    ``data`` is one of the six tasks' names, or where a public copy is (``hf:…``, ``flwr:…``, see hub.py). Of the
    features ``components`` are kept, or all where it is 0. ``validation`` is a share of the training records.
    ``length`` is the public number of word pieces of ``tokens``. ``most_train`` and ``most_test`` take only some
    records, by lot, for a quick look; 0 takes all.
    """

    data: str
    features: str
    components: int = 0
    validation: float = 0.1
    length: int = 64
    most_train: int = 0
    most_test: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.validation < 1:
            raise InvalidInput(
                f"validation must lie in (0, 1), got {self.validation}: it is a share of the training records, and "
                f"choosing needs some. Nothing was run."
            )
        for name, least in (("components", 0), ("length", 3), ("most_train", 0), ("most_test", 0)):
            value = getattr(self, name)
            if value < least:
                raise InvalidInput(f"{name} must be at least {least}, got {value}: nothing was run.")
