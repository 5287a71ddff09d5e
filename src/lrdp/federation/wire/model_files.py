"""A model as a file: safetensors, and in its metadata where it stands in its session's history.

Whoever has the file and the session's receipts can tell that clients verified this very model: the hash of its values
is in one of the receipts, and its names and shapes, with the session's nonce, give the identifier that the session has
in their first line. Reading a file runs no code of its author.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.questions import Hello
from lrdp.integrity import MODEL, Model, Position, Session, model_hash
from lrdp.version import __version__

_MOST_BYTES: Final = 1 << 36
_ROUND: Final = re.compile(r"[0-9]{1,9}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_LENGTH_BYTES: Final = 8
_KEYS: Final = ("session", "model", "layout")


class AnyModel(Protocol):
    """Parameters in a layout, the session that they come from, and which models of it they are made of.

    ``nonce`` is the session's, by which its identifier binds the layout; None in a file of an earlier version.
    """

    @property
    def session(self) -> str: ...
    @property
    def nonce(self) -> bytes | None: ...
    @property
    def digest(self) -> str: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def vector(self) -> Model: ...
    @property
    def version(self) -> str: ...

    @property
    def places(self) -> tuple[ModelPlace, ...]:
        """What receipts must lead to, if clients verified what this is made of."""

    @property
    def words(self) -> Mapping[str, object]:
        """Where it stands in the history, for people."""

    @property
    def marks(self) -> Mapping[str, str]:
        """The same, for its file's metadata."""

    def under(self, nonce: bytes) -> Self:
        """The same, with this nonce."""

    def check_made_of(self, folder: Path) -> None:
        """Make it again from the models in a folder; raises NotVerified where that fails or gives another."""


class ModelPlace(NamedTuple):
    """A model of a history: after which round, with which tip; hashes in hexadecimal."""

    round: int
    tip: str
    digest: str


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptModel:
    """``round`` is how many rounds of ``session`` led to it; ``tip`` ends their history, ``digest`` is its hash."""

    session: str
    nonce: bytes | None
    round: int
    tip: str
    digest: str
    layout: Layout
    vector: Model
    version: str = __version__

    @property
    def places(self) -> tuple[ModelPlace, ...]:
        """This model's own."""
        return (ModelPlace(self.round, self.tip, self.digest),)

    @property
    def words(self) -> Mapping[str, object]:
        """Its round, and the history up to it."""
        return {"round": self.round, "tip": self.tip}

    @property
    def marks(self) -> Mapping[str, str]:
        """As in words."""
        return {"round": str(self.round), "tip": self.tip}

    def under(self, nonce: bytes) -> Self:
        """As of any model."""
        return replace(self, nonce=nonce)

    def check_made_of(self, folder: Path) -> None:
        """A round led to it: it is made of nothing else."""

    @classmethod
    def at(cls, position: Position, vector: Model, *, opened: Hello) -> KeptModel:
        """The model of a place in the history of a session, by the name under which that was ``opened``."""
        return cls(
            session=Session.decode(opened.session).digest.hex(),
            nonce=opened.nonce,
            round=position.round,
            tip=position.tip.hex(),
            digest=position.model.hex(),
            layout=Layout.decode(opened.layout),
            vector=vector,
        )


def model_name(session: str, round_: int) -> str:
    """The name of a model's file in a server's folder."""
    return f"model-{session[:16]}-{round_:05}.safetensors"


def metadata_of(kept: AnyModel) -> dict[str, str]:
    """What a file of any format says of its model."""
    return {
        "lrdp": kept.version,
        "session": kept.session,
        "model": kept.digest,
        "layout": kept.layout.described.hex(),
        **({} if kept.nonce is None else {"nonce": kept.nonce.hex()}),
        **kept.marks,
    }


def write_model(path: Path, kept: AnyModel) -> None:
    """Write it, durably, and whole under its name or not at all."""
    about = {"format": "pt", **metadata_of(kept)}
    try:
        files.replace(path, save(kept.layout.arrays(kept.vector), about), files.OWNER_ONLY)
    except OSError as problem:
        raise InvalidInput(f"the model cannot be written to {path}: {problem.strerror}.") from None


def read_model(path: Path) -> KeptModel:
    """What ``write_model`` wrote; raises InvalidInput for any other file, and for a model that is not what it says."""
    return kept_model(read_tensors(path), path)


def kept_model(tensors: ModelTensors, path: Path) -> KeptModel:
    """The model of a round in these tensors of a file; raises InvalidInput where they name none."""
    about = tensors.about
    if not (_ROUND.fullmatch(about.get("round", "")) and _HASH.fullmatch(about.get("tip", ""))):
        raise InvalidInput(f"{path} does not say which round of which session it is of: a server of lrdp writes that.")
    return KeptModel(
        session=about["session"],
        nonce=tensors.nonce,
        round=int(about["round"]),
        tip=about["tip"],
        digest=about["model"],
        layout=tensors.layout,
        vector=tensors.vector,
        version=about.get("lrdp", ""),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelTensors:
    """A file's parameters, which hash to what its metadata ``about`` says."""

    about: Mapping[str, str]
    layout: Layout
    vector: Model

    @property
    def nonce(self) -> bytes | None:
        """The session's; earlier versions wrote none. What is no nonce fits no session."""
        return _bytes(self.about["nonce"]) if "nonce" in self.about else None


def read_tensors(path: Path) -> ModelTensors:
    """What ``write_model`` wrote; raises InvalidInput for any other file, and for parameters that were changed."""
    try:
        data = files.read(path, _MOST_BYTES)
        arrays, about = load(data), metadata(data)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    except MemoryError:
        raise InvalidInput(f"{path} is larger than this machine has memory for.") from None
    except (SafetensorError, ValueError, KeyError) as problem:
        raise InvalidInput(f"{path} is not a safetensors file, or is damaged: {problem}.") from None
    return tensors_from(path, arrays, about)


def tensors_from(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> ModelTensors:
    """The parameters of a file with these arrays and this metadata; raises InvalidInput where they do not agree."""
    if not (set(_KEYS) <= set(about) and _HASH.fullmatch(about["session"])):
        raise InvalidInput(f"{path} does not say which round of which session it is of: a server of lrdp writes that.")
    layout = layout_in(about)
    vector = _vector(arrays, layout, path)
    if (digest := model_hash(vector).hex()) != about["model"]:
        raise InvalidInput(f"{path} is damaged or was changed: its parameters hash to {digest}.")
    return ModelTensors(about=about, layout=layout, vector=vector)


def layout_in(about: Mapping[str, str]) -> Layout:
    """Which arrays of a file are the model's; raises InvalidInput where its metadata does not say."""
    return Layout.decode(_bytes(about.get("layout", "")))


def _vector(arrays: Mapping[str, np.ndarray], layout: Layout, path: Path) -> Model:
    found = {name: (given.shape, given.dtype) for name, given in arrays.items()}
    if found != {name: (shape, MODEL) for name, shape in layout.shapes}:
        raise InvalidInput(f"{path} is damaged or was changed: names, shapes or types are not those of its layout.")
    return layout.flat(arrays)


def _bytes(text: str) -> bytes:
    """The bytes of hexadecimal digits; for any other text none, which describe no layout and are no nonce."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def metadata(data: bytes) -> dict[str, str]:
    """The metadata of a file that safetensors itself has read: a header of JSON, after its length."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    about = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length]).get("__metadata__") or {}
    return {str(name): str(value) for name, value in about.items()}
