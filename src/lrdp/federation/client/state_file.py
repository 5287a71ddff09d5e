"""The state that a client reached in a session, in one file, with its vectors in files of their own.

A process that lives on remembers what it saved or checked, so it need not read and hash it again. Vectors are large, so
it holds them as maps of their files, which cost no memory of its own; and files are overwritten rather than replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np
from numpy.lib.format import open_memmap

from lrdp import files
from lrdp.codec import PACKED, RAW, Format, Part, many, row, text
from lrdp.errors import LrdpError
from lrdp.federation.client.catching_up import last_verified
from lrdp.integrity import MOST_STATE_BYTES, ClientState, Identity, Member, Whole, states

MOST_BYTES: Final = MOST_STATE_BYTES + (1 << 10)
"""A state, and the names of its vectors' files."""
_MOST_VECTORS: Final = 8
_LONGEST_NAME: Final = 40
NO_VECTOR: Final = (ValueError, EOFError, SyntaxError, TokenError, OverflowError, MemoryError, RecursionError)
"""What numpy's format raises for a damaged file, whose header it reads as Python's literals."""
_FILES: Final = many(row(text(_LONGEST_NAME), text(_LONGEST_NAME)), _MOST_VECTORS)
_PARTS: Final[Mapping[str, Part[bytes, Any]]] = {"state": RAW, "files": _FILES}
_SAVED: Final = Format(PACKED, (b"standing/v2",), {**_PARTS, "accept": RAW}, MOST_BYTES)
_SAVED_V1: Final = Format(PACKED, (b"standing/v1",), _PARTS, MOST_BYTES)
"""As earlier versions wrote it, with the last ACCEPT in a file of its own."""


class Saved(NamedTuple):
    """A state without its vectors, in which file each of these lies, and the last ACCEPT: one step saves all."""

    state: bytes
    files: tuple[tuple[str, str], ...]
    accept: bytes = b""


@dataclass(frozen=True)
class Known:
    """A state as it was saved, and the same state on the files that its vectors were saved in."""

    saved: bytes = b""
    files: Mapping[str, str] = field(default_factory=dict)
    state: ClientState | None = None

    @property
    def member(self) -> Member | None:
        """Whose state it is."""
        return None if self.state is None else last_verified(self.state).identity.member

    def stored(self) -> list[tuple[Whole, str]]:
        """The vectors, and where each lies."""
        vectors = {} if self.state is None else states.client_vectors(self.state)
        return [(vector, self.files[name]) for name, vector in vectors.items()]


class StateFile:
    """``state`` and ``vector-N.npy`` in the folder of a client's session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = Known()
        self._written: list[tuple[Whole, str]] = []
        self._maps: list[tuple[ref[Whole], str]] = []

    def forget(self) -> None:
        """Nothing is saved any more."""
        self._known, self._written = Known(), []

    def let_go(self) -> None:
        """Of the vectors that were written since: from here on, the files hold them."""
        self._written = []

    def accepted(self) -> bytes:
        """The ACCEPT of the last round; nothing where the state that it belongs to is damaged."""
        try:
            return _decoded(content(self._folder / "state")).accept or content(self._folder / "accepted")
        except LrdpError:
            return b""

    def is_of_version_1(self) -> bool:
        """Whether an earlier version saved it."""
        try:
            _SAVED_V1.decode(content(self._folder / "state"))
        except LrdpError:
            return False
        return True

    def load(self, identity: Identity) -> ClientState | None:
        """The state that was saved last; None where there is none that is whole.

        A state that is damaged is not believed, and receipts bring the client back.
        """
        try:
            saved = files.read(self._folder / "state", MOST_BYTES)
            if self._known.saved != saved or self._known.member != identity.member:
                kept = _decoded(saved)
                places = dict(kept.files)
                vectors = {name: self._map(file) for name, file in places.items()}
                self._known = Known(saved, places, states.decode_client(kept.state, identity, vectors))
        except (OSError, LrdpError, *NO_VECTOR):
            self._known = Known()
        return self._known.state

    def save(self, state: ClientState, accept: bytes = b"") -> None:
        """Replace the saved state in one step, once its vectors are on disk; one that is there is not written again.

        With the power off in between, the last state stands. ``accept`` is the word for the round that led to it;
        without one, the last is kept.
        """
        places = {name: self._file_of(vector) for name, vector in states.client_vectors(state).items()}
        saved = _SAVED.encode(Saved(states.encode_client(state), tuple(places.items()), accept or self.accepted()))
        files.replace(self._folder / "state", saved, files.OWNER_ONLY)
        vectors = {name: self._map(file) for name, file in places.items()}
        self._known = Known(saved, places, states.on_vectors(state, vectors))

    def _file_of(self, vector: Whole) -> str:
        for known, file in (*self._written, *self._known.stored()):
            if known is vector:
                return file
        file = self._spare_file()
        with files.overwriting(self._folder / file) as stream:
            np.save(stream, vector, allow_pickle=False)
        self._written.append((vector, file))
        return file

    def _spare_file(self) -> str:
        """One that neither the saved state needs nor anybody who holds a map of it, or a view of the map."""
        self._maps = [(mapped, file) for mapped, file in self._maps if mapped() is not None]
        used = {file for _, file in (*self._written, *self._known.stored(), *self._maps)}
        return next(file for number in count() if (file := f"vector-{number}.npy") not in used)

    def _map(self, file: str) -> Whole:
        mapped = open_memmap(self._folder / file, mode="r")  # np.load would also take an archive
        self._maps.append((ref(mapped), file))
        return np.asarray(mapped)


def content(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file; none where it is not there."""
    return files.read(path, most) if path.exists() else b""


def _decoded(data: bytes) -> Saved:
    try:
        return Saved(**_SAVED.decode(data))
    except LrdpError:
        return Saved(**_SAVED_V1.decode(data))
