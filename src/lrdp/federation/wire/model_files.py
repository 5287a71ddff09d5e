"""A model as a file: safetensors, and in its metadata where it stands in its session's history.

Whoever has the file and the session's receipts can tell that clients verified this very model: its hash is in one of
them. Reading one runs no code of its author.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.wire.layout import Layout
from lrdp.integrity import MODEL, Model, Position, model_hash
from lrdp.version import __version__

_MOST_BYTES: Final = 1 << 36
_LENGTH_BYTES: Final = 8
_KEYS: Final = ("session", "round", "tip", "model", "layout")


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptModel:
    """``round`` is how many rounds of ``session`` led to it; ``tip`` ends their history, ``digest`` is its hash."""

    session: str
    round: int
    tip: str
    digest: str
    layout: Layout
    vector: Model
    version: str = __version__

    @classmethod
    def at(cls, position: Position, layout: Layout, vector: Model) -> KeptModel:
        """The model of a place in a history."""
        return cls(
            session=position.session.digest.hex(),
            round=position.round,
            tip=position.tip.hex(),
            digest=position.model.hex(),
            layout=layout,
            vector=vector,
        )


def metadata_of(kept: KeptModel) -> dict[str, str]:
    """What a file of any format says of its model."""
    return {
        "lrdp": kept.version,
        "session": kept.session,
        "round": str(kept.round),
        "tip": kept.tip,
        "model": kept.digest,
        "layout": kept.layout.described.hex(),
    }


def write_model(path: Path, kept: KeptModel) -> None:
    """Durable, and whole under its name or not there."""
    about = {"format": "pt", **metadata_of(kept)}
    try:
        files.replace(path, save(kept.layout.arrays(kept.vector), about), files.OWNER_ONLY)
    except OSError as problem:
        raise InvalidInput(f"the model cannot be written to {path}: {problem.strerror}.") from None


def read_model(path: Path) -> KeptModel:
    """What ``write_model`` wrote; raises InvalidInput for any other file, and for a model that is not what it says."""
    try:
        data = files.read(path, _MOST_BYTES)
        arrays, about = load(data), _metadata(data)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    except (SafetensorError, ValueError, KeyError) as problem:
        raise InvalidInput(f"{path} is no safetensors file, or is damaged: {problem}.") from None
    return kept_from(path, arrays, about)


def kept_from(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> KeptModel:
    """The model of a file with these arrays and this metadata; raises InvalidInput where they do not agree."""
    if not (set(_KEYS) <= set(about) and about["round"].isascii() and about["round"].isdigit()):
        raise InvalidInput(f"{path} does not say which round of which session it is of: a server of lrdp writes that.")
    layout = layout_in(about)
    vector = _vector(arrays, layout, path)
    if (digest := model_hash(vector).hex()) != about["model"]:
        raise InvalidInput(f"{path} is damaged or was changed: its parameters hash to {digest}.")
    return KeptModel(
        session=about["session"],
        round=int(about["round"]),
        tip=about["tip"],
        digest=digest,
        layout=layout,
        vector=vector,
        version=about.get("lrdp", ""),
    )


def layout_in(about: Mapping[str, str]) -> Layout:
    """Which arrays of a file are the model's; raises InvalidInput where its metadata does not say."""
    return Layout.decode(_bytes(about.get("layout", "")))


def _vector(arrays: Mapping[str, np.ndarray], layout: Layout, path: Path) -> Model:
    found = {name: (given.shape, given.dtype) for name, given in arrays.items()}
    if found != {name: (shape, MODEL) for name, shape in layout.shapes}:
        raise InvalidInput(f"{path} is damaged or was changed: names, shapes or types are not those of its layout.")
    return layout.flat(arrays)


def _bytes(text: str) -> bytes:
    """Of hexadecimal digits; none of what is not, which no layout is described by."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _metadata(data: bytes) -> dict[str, str]:
    """Of a file that safetensors itself has read: a header of JSON, after its length."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    about = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length]).get("__metadata__") or {}
    return {str(name): str(value) for name, value in about.items()}
