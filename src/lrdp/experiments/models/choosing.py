"""Which model, from which weights: an entry of a study's TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lrdp.errors import InvalidInput
from lrdp.experiments.models.bert import BERT
from lrdp.experiments.models.cnn import CNN
from lrdp.experiments.models.entry import ModelEntry, Wanted
from lrdp.experiments.models.linear import LINEAR
from lrdp.experiments.models.minilm_lora import MINILM_LORA
from lrdp.experiments.models.vgg11 import VGG11

MODELS: Final[Mapping[str, ModelEntry]] = {
    "linear": LINEAR,
    "cnn": CNN,
    "vgg11": VGG11,
    "bert": BERT,
    "minilm-lora": MINILM_LORA,
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """``kind`` is one of ``MODELS``. ``weights`` is a folder beside the data, any other folder, or a name on the hub.

    Without weights a model starts from random numbers. ``bias`` may be left out of a linear head.
    """

    kind: str
    weights: str = ""
    bias: bool = True

    def __post_init__(self) -> None:
        if self.kind not in MODELS:
            raise InvalidInput(f"kind must be one of {', '.join(MODELS)}, got {self.kind!r}: nothing was run.")

    @property
    def model(self) -> ModelEntry:
        """Its entry."""
        return MODELS[self.kind]

    def check_records(self, shape: tuple[int, ...]) -> None:
        """Refuse records of another form, whose inputs have this shape."""
        form = self.model.form
        if len(shape) != form.dimensions:
            raise InvalidInput(
                f"{self.kind} takes {form.value}, {form.dimensions}-dimensional, got records of shape {shape}: name "
                f"other features for its task; nothing was run."
            )

    def wanted(self, shape: tuple[int, ...], classes: int, seed: int, data: Path) -> Wanted:
        """For records of this shape; ``data`` is where data sets lie, and public weights may."""
        beside = data / self.weights
        weights = None if not self.weights else beside if beside.is_dir() else self.weights
        return Wanted(shape=shape, classes=classes, seed=seed, weights=weights, bias=self.bias)
