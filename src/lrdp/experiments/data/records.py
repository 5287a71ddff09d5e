"""Records as they were read: pictures or texts with labels, those for training first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lrdp.errors import InvalidInput

_LOT: Final = 20_261  # public: which records are taken for a quick look


@dataclass(frozen=True, kw_only=True)
class Records:
    """``inputs`` are pictures (n, height, width[, 3]) of bytes, texts, or pairs of texts; the first ``train`` train."""

    inputs: NDArray[np.uint8] | Sequence[str] | Sequence[tuple[str, str]]
    labels: NDArray[np.int64]
    train: int

    def __post_init__(self) -> None:
        count = len(self.labels)
        if len(self.inputs) != count or not 0 < self.train < count:
            raise InvalidInput(
                f"a data set has {len(self.inputs)} inputs, {count} labels and {self.train} records for training: "
                f"there must be a label for each, and some for training and some for testing. Nothing was run."
            )

    @property
    def pictures(self) -> NDArray[np.uint8]:
        """With at least one channel.

        Raises:
            InvalidInput: where they are texts.
        """
        if not isinstance(self.inputs, np.ndarray):
            raise InvalidInput("these features are of pictures, and the records are texts: nothing was run.")
        return self.inputs if self.inputs.ndim == 4 else self.inputs[..., None]

    @property
    def texts(self) -> Sequence[str] | Sequence[tuple[str, str]]:
        """One or two for each record.

        Raises:
            InvalidInput: where they are pictures.
        """
        if isinstance(self.inputs, np.ndarray):
            raise InvalidInput("these features are of texts, and the records are pictures: nothing was run.")
        return self.inputs

    def some(self, most_train: int, most_test: int) -> Records:
        """At most this many of each, by a public draw; 0 is all."""
        random = np.random.default_rng(_LOT)
        train = _chosen(random, 0, self.train, most_train)
        chosen = np.concatenate([train, _chosen(random, self.train, len(self.labels), most_test)])
        inputs: Any = self.inputs
        taken = inputs[chosen] if isinstance(inputs, np.ndarray) else [inputs[number] for number in chosen]
        return Records(inputs=taken, labels=self.labels[chosen], train=len(train))


def _chosen(random: np.random.Generator, first: int, end: int, most: int) -> NDArray[np.int64]:
    count = end - first
    return first + np.sort(random.permutation(count)[: most or count])
