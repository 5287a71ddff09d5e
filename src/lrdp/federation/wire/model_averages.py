"""The average of some verified models: what it was made of stands in its file, so that anybody can make it again.

It is a function of models that are public already, so it costs no privacy. No round leads to it, and no receipt names
it: whoever doubts it proves each model that went in, and computes it again, to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation.wire.averaging import Averaging
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_files import (
    AnyModel,
    KeptModel,
    ModelPlace,
    ModelTensors,
    kept_model,
    model_name,
    read_model,
    read_tensors,
)
from lrdp.integrity import MODEL, Model, Verdict, model_hash
from lrdp.version import __version__

_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9a-f]{64}):([0-9a-f]{64})")
_DECAY: Final = "decay"  # a word that only an average has in its metadata


def averaged(rule: Averaging, models: Sequence[KeptModel]) -> AveragedModel:
    """The average of models of one session in the order of their rounds; of more than the rule's, the last ones.

    Raises:
        InvalidInput: where they are of several sessions, out of order, or the first model, which no round led to.
    """
    chosen = models[-rule.rounds :]
    _check_history(chosen)
    total = np.zeros(chosen[0].layout.size, np.float64)
    for weight, model in zip(rule.weights(len(chosen)), chosen, strict=True):
        total += weight * model.vector.astype(np.float64)
    vector = total.astype(MODEL)
    return AveragedModel(
        session=chosen[0].session,
        nonce=chosen[-1].nonce,  # the last may be the first that a version wrote which keeps it
        decay=rule.decay,
        places=tuple(place for model in chosen for place in model.places),
        digest=model_hash(vector).hex(),
        layout=chosen[0].layout,
        vector=vector,
    )


def _check_history(models: Sequence[KeptModel]) -> None:
    if not models:
        raise InvalidInput("there is no model to average: name the files of some rounds.")
    if len({(model.session, model.layout.described) for model in models}) > 1:
        raise InvalidInput("the models are of more than one session, so of more than one training: average one's.")
    rounds = [model.round for model in models]
    if rounds != sorted(set(rounds)) or rounds[0] == 0:
        raise InvalidInput(
            f"models must stand in the order of their rounds, from round 1 on and each once, got {rounds}: the first "
            f"model of a session is proved by no receipt."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class AveragedModel:
    """``places`` are those of the models that went in, the oldest first, weighted by ``decay``."""

    session: str
    nonce: bytes | None
    decay: float
    places: tuple[ModelPlace, ...]
    digest: str
    layout: Layout
    vector: Model
    version: str = __version__

    @property
    def words(self) -> Mapping[str, object]:
        """The rounds that went in, and the rule."""
        return {"average_of_rounds": [place.round for place in self.places], "decay": self.decay}

    @property
    def marks(self) -> Mapping[str, str]:
        """Each model that went in, and the rule."""
        places = " ".join(f"{each.round}:{each.tip}:{each.digest}" for each in self.places)
        return {_DECAY: repr(self.decay), "places": places}

    def under(self, nonce: bytes) -> Self:
        """As of any model."""
        return replace(self, nonce=nonce)

    def check_made_of(self, folder: Path) -> None:
        """Make it again, to the bit, from a server's files of the same rounds.

        Raises:
            NotVerified: where one is missing, is not the one that went in, or they give another average.
        """
        try:
            parts = [read_model(folder / model_name(self.session, place.round)) for place in self.places]
            again = averaged(Averaging(rounds=len(parts), decay=self.decay), parts)
        except InvalidInput as problem:
            raise NotVerified(f"the average cannot be made again: {problem}", Verdict.MODEL_MISMATCH) from None
        if (again.session, again.places, again.digest) != (self.session, self.places, self.digest):
            raise NotVerified(
                f"this is not the average that it says it is: the models of the same rounds in {folder} give "
                f"{again.digest}, and not {self.digest}.",
                Verdict.MODEL_MISMATCH,
            )


def read_kept(path: Path) -> AnyModel:
    """A model, or an average of some; raises InvalidInput for any other file."""
    return understood(read_tensors(path), path)


def understood(tensors: ModelTensors, path: Path) -> AnyModel:
    """What the tensors of a file are; raises InvalidInput where it does not say."""
    return _average(tensors, path) if _DECAY in tensors.about else kept_model(tensors, path)


def _average(tensors: ModelTensors, path: Path) -> AveragedModel:
    about = tensors.about
    found = [_PLACE.fullmatch(word) for word in about.get("places", "").split(" ")]
    places = tuple(ModelPlace(int(each[1]), each[2], each[3]) for each in found if each)
    rule: Averaging | None
    try:
        rule = Averaging(rounds=len(places), decay=float(about[_DECAY]))
    except ValueError:
        rule = None
    if rule is None or len(places) < len(found):
        raise InvalidInput(f"{path} does not say of which models it is the average: lrdp model average writes that.")
    return AveragedModel(
        session=about["session"],
        nonce=tensors.nonce,
        decay=rule.decay,
        places=places,
        digest=about["model"],
        layout=tensors.layout,
        vector=tensors.vector,
        version=about.get("lrdp", ""),
    )
