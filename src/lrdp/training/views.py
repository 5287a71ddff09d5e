"""Several views of each record, averaged before the clip: less noise in what a record says, at the same cost in ε."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Generator, Tensor

from lrdp import limits
from lrdp.training.records import Dataset, check_dataset
from lrdp.training.tensors import as_tensors, stacked

Augment = Callable[[Any, Generator], Any]
_FRESH: Final = partial(secrets.randbits, 63)


class Augmented:
    """``views`` views of each record of ``dataset``, as ``augment(record, generator)`` makes them, arXiv 2204.13650.

    A record is ``(views, weights)``, of the form of a ``GroupedByUnit``: train on it with ``PerUnit(loss)``, and the
    loss of a record is the mean over its views. Each view's chance is its own, from the operating system and new
    whenever a record is read.

    Guarantees: a view depends on its record and on chance that is independent of all data, so a record is clipped as
    one and accounted as before. ``seeds`` is for studies: the next seed must depend neither on a record nor on its
    number, which changes where somebody else is missing.

    >>> jittered = Augmented(
    ...     [(torch.zeros(2), 1)],
    ...     views=3,
    ...     augment=lambda record, chance: (record[0] + torch.rand(2, generator=chance), record[1]),
    ... )
    >>> (pictures, labels), weights = jittered[0]
    >>> pictures.shape, labels, weights
    (torch.Size([3, 2]), tensor([1, 1, 1]), tensor([0.3333, 0.3333, 0.3333]))
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        views: int,
        augment: Augment,
        seeds: Callable[[], int] = _FRESH,
    ) -> None:
        check_dataset(dataset)
        self.views = limits.whole("views", views, 1, "without a view nothing is learnt")
        self._dataset, self._augment, self._seeds = dataset, augment, seeds

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> tuple[Any, Tensor]:
        record = as_tensors(self._dataset[number])
        chances = [Generator().manual_seed(self._seeds()) for _ in range(self.views)]
        return stacked(self._augment(record, chance) for chance in chances), torch.full((self.views,), 1 / self.views)
