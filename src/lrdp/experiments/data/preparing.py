"""A task made ready: its inputs from the cache, or computed once and kept there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrdp.experiments.data.cache import kept
from lrdp.experiments.data.conditioning import applied
from lrdp.experiments.data.loading import TASKS, Source, digest_of
from lrdp.experiments.data.recipes import Recipe, recipe
from lrdp.experiments.data.records import Records
from lrdp.experiments.data.settings import DataSettings
from lrdp.experiments.data.sources import source
from lrdp.experiments.data.values import Prepared, Split
from lrdp.experiments.study import Places

_LOT: Final = 1_117  # public: which of the training records are for validation


def prepared(settings: DataSettings, places: Places) -> Prepared:
    """The task's records as a model takes them.

    Raises:
        InvalidInput: for an unknown name, and where data files, packages or space are missing.
    """
    making = _Making(settings, places, source(settings.data), recipe(settings.features))
    rows, labels, train = making.conditioned()
    lot = np.random.default_rng(_LOT).permutation(int(train.sum()))
    chosen = max(1, round(settings.validation * len(lot)))
    parts = np.sort(lot[chosen:]), np.sort(lot[:chosen]), np.flatnonzero(train == 0)
    learned, chosen_by, reported = (Split(making.how.given(_at(rows, part)), _at(labels, part)) for part in parts)
    return Prepared(learned, chosen_by, reported, making.source.classes)


def _at(column: NDArray[Any], part: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(column[part])


@dataclass(frozen=True)
class _Making:
    settings: DataSettings
    places: Places
    source: Source
    how: Recipe

    def conditioned(self) -> list[NDArray[Any]]:
        """Inputs, labels, and which are for training; those first."""
        told = {
            **self._backbone_key,
            "recipe": self.settings.features,
            "version": self.how.version,
            "components": self.settings.components,
            "length": self.settings.length,
            "packages": " ".join(f"{name}={version(name)}" for name in self.how.packages),
            **{f"public {name}": TASKS[name].digest(self.places.data) for name in self.how.publics(self.settings)},
        }
        return kept(self.places.features, f"{self._name}-{self.settings.features}", told, self._condition)

    def _condition(self) -> list[Tensor]:
        labels = torch.from_numpy(self._records.labels)
        train = torch.arange(len(labels)) < self._records.train
        return [self._rows(), labels, train.long()]

    def _rows(self) -> Tensor:
        if self.how.condition is None:
            return self._raw()[0]
        raw = kept(self.places.features, f"{self._name}-{self.how.backbone.name}", self._backbone_key, self._raw)
        rows = torch.from_numpy(np.array(raw[0]))
        return applied(self.how.condition(self.settings, self.places.data, rows.shape[1:]), rows)

    def _raw(self) -> list[Tensor]:
        return [self.how.backbone.rows(self._records, self.settings, self.places.data)]

    @cached_property
    def _records(self) -> Records:
        return self.source.read(self.places.data).some(self.settings.most_train, self.settings.most_test)

    @cached_property
    def _backbone_key(self) -> dict[str, str | int]:
        return {
            "data": self.source.digest(self.places.data),
            "most_train": self.settings.most_train,
            "most_test": self.settings.most_test,
            "backbone": self.how.backbone.name,
            "backbone_version": self.how.backbone.version,
            "backbone_files": digest_of(self.how.backbone.files(self.places.data)),
        }

    @property
    def _name(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.settings.data)
