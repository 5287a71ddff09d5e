"""The same tasks from public copies, for people with a network.

``hf:NAME`` is a data set of the Hugging Face hub, such as ``hf:stanfordnlp/sst2``, or a folder that ``datasets`` has
saved to; a configuration follows a number sign, as in ``hf:nyu-mll/glue#qnli``. ``flwr:NAME`` takes the same through
Flower's own package ``flwr-datasets``. Columns are found by their names, and a copy of another form is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from lrdp.errors import InvalidInput
from lrdp.experiments.data.records import Records

_LABELS: Final = ("label", "labels", "fine_label")
_PICTURES: Final = ("image", "img")
_TEXTS: Final = (("question1", "question2"), ("question", "sentence"), ("sentence",), ("text",))
_TESTS: Final = ("test", "validation")  # GLUE's own test sets have no labels


@dataclass(frozen=True)
class HubSource:
    """A data set by its public name, with its splits ``train`` and ``test`` (or ``validation``)."""

    name: str
    load: Callable[[str, str | None], Mapping[str, Any]]

    @property
    def classes(self) -> int:
        column, train = _first(_LABELS, self._splits[0]), self._splits[0]
        known = getattr(train.features[column], "num_classes", None)
        return int(known or max(max(split[column]) for split in self._splits) + 1)

    def digest(self, _: Path) -> str:
        """Of the copy's own fingerprints."""
        return sha256(" ".join(split._fingerprint for split in self._splits).encode()).hexdigest()

    def read(self, _: Path) -> Records:
        train, test = (_inputs(split) for split in self._splits)
        both: Any = np.concatenate([train, test]) if isinstance(train, np.ndarray) else [*train, *test]
        labels = [label for split in self._splits for label in split[_first(_LABELS, split)]]
        return Records(inputs=both, labels=np.array(labels, dtype=np.int64), train=len(train))

    @cached_property
    def _splits(self) -> tuple[Any, Any]:
        name, _, configuration = self.name.partition("#")
        loaded = self.load(name, configuration or None)
        for split in _TESTS:
            if "train" in loaded and split in loaded and _labelled(loaded[split]):
                return loaded["train"], loaded[split]
        raise InvalidInput(
            f"{self.name} has the splits {', '.join(map(str, loaded))}, and train and a labelled test or validation "
            f"are needed: nothing was run."
        )


def by_hub(name: str, configuration: str | None) -> Mapping[str, Any]:
    """The splits, from a folder where there is one, or else from the hub."""
    datasets = _package("datasets", "datasets")
    try:
        found: Mapping[str, Any] = (
            datasets.load_from_disk(name) if Path(name).is_dir() else datasets.load_dataset(name, configuration)
        )
        return found
    except (OSError, ValueError, RuntimeError) as problem:
        raise _unreachable(name, problem) from None


def by_flower(name: str, configuration: str | None) -> Mapping[str, Any]:
    """The splits, by Flower's package."""
    federated = _package("flwr_datasets", "flwr-datasets").FederatedDataset
    try:
        # Shares are dealt here, of public sizes: one partition is the whole.
        found = federated(dataset=name, subset=configuration, partitioners={"train": 1})
        return {split: found.load_split(split) for split in _splits_of(found)}
    except (OSError, ValueError, RuntimeError) as problem:
        raise _unreachable(name, problem) from None


def _splits_of(found: Any) -> Sequence[str]:
    """A federated data set names its splits only once one of them has been loaded."""
    found.load_split("train")
    return list(found._dataset)


def _package(module: str, name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise InvalidInput(f"public data sets need the package {name}: nothing was run; pip install {name}.") from None


def _unreachable(name: str, problem: Exception) -> InvalidInput:
    first = str(problem).partition("\n")[0]
    return InvalidInput(
        f"the data set {name} cannot be loaded ({type(problem).__name__}: {first}): nothing was run; it needs a "
        f"network, or name a folder that it was saved to."
    )


# -------------------------------------------------------------------------------------------------------------- columns
def _labelled(split: Any) -> bool:
    column = next((name for name in _LABELS if name in split.column_names), None)
    return column is not None and len(split) > 0 and min(split[column]) >= 0  # -1 is for none


def _first(names: Sequence[str], split: Any) -> str:
    for name in names:
        if name in split.column_names:
            return name
    raise InvalidInput(f"a data set has the columns {split.column_names}, and none of {list(names)}: nothing was run.")


def _inputs(split: Any) -> Any:
    for names in _TEXTS:
        if set(names) <= set(split.column_names):
            found = [list(split[name]) for name in names]
            return found[0] if len(names) == 1 else list(zip(*found, strict=True))
    return np.stack([np.asarray(picture, dtype=np.uint8) for picture in split[_first(_PICTURES, split)]])
