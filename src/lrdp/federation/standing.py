"""Where a client stands in a session, on disk: a process may end after every message, or be killed in the midst of one.

The ledger alone is the memory of what was spent. If what is kept here is lost, the client joins again with receipts,
and nothing else happens.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lrdp.errors import LrdpError
from lrdp.integrity import Identity, states
from lrdp.integrity.encoding import as_number, number, pack, unpack
from lrdp.integrity.fixed_point import Whole
from lrdp.integrity.states import ClientState


class Standing:
    """The folder of one client's session: what was agreed on, and the state that was reached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored: list[tuple[Whole, str]] = []
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One message at a time, whatever process it came to."""
        with _private(self._folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                self._stored = []  # vectors are large: none is held between two messages

    def agreed(self) -> bytes | None:
        """The session that was agreed on last, as it was proposed."""
        path = self._folder / "agreed"
        return path.read_bytes() if path.exists() else None

    def agree(self, proposed: bytes) -> None:
        """Enter a session; where the client stood in another is forgotten."""
        for path in self._folder.iterdir():
            if path.name != "lock":
                path.unlink()
        _replace(self._folder / "agreed", proposed)

    def accepted(self) -> bytes:
        """The last ACCEPT, for a server that did not get it."""
        path = self._folder / "accepted"
        return path.read_bytes() if path.exists() else b""

    def accept(self, state: ClientState, accept: bytes) -> None:
        """A verified round: the next model, and the word that it is."""
        self.save(state)
        _replace(self._folder / "accepted", accept)
        self.wait_with(0, 0)

    def wait_with(self, charge: int, trained_from: int) -> None:
        """Remember the update that was trained ahead of the round in which it will take part; 0 for none."""
        _replace(self._folder / "waiting", pack(number(charge), number(trained_from)))

    def waiting(self) -> tuple[int, int]:
        """The charge of the update that waits, and the round it was trained from; (0, 0) where none does."""
        path = self._folder / "waiting"
        charge, trained_from = unpack(path.read_bytes()) if path.exists() else (number(0), number(0))
        return as_number(charge), as_number(trained_from)

    def load(self, identity: Identity) -> ClientState | None:
        """The state that was saved last; None where there is none that is whole.

        What a power failure cut off is not believed, and receipts bring the client back.
        """
        try:
            data, *named = unpack((self._folder / "state").read_bytes())
            files = {name.decode(): file.decode() for name, file in map(unpack, named)}
            vectors = {name: np.load(self._folder / file, allow_pickle=False) for name, file in files.items()}
            state = states.decode_client(data, identity, vectors)
        except (OSError, ValueError, EOFError, LrdpError):
            return None
        self._stored = [(vectors[name], file) for name, file in files.items()]
        return state

    def save(self, state: ClientState) -> None:
        """Replace the saved state in one step; a vector that is on disk already is not written again."""
        vectors = states.client_vectors(state)
        files = {name: self._file_of(name, vector) for name, vector in vectors.items()}
        named = [pack(name.encode(), file.encode()) for name, file in files.items()]
        _replace(self._folder / "state", pack(states.encode_client(state), *named))
        self._stored = [(vectors[name], file) for name, file in files.items()]
        for path in self._folder.glob("state-*.npy"):
            if path.name not in files.values():
                path.unlink()

    def _file_of(self, name: str, vector: Whole) -> str:
        for known, file in self._stored:
            if known is vector:
                return file
        file = f"state-{name}-{os.urandom(8).hex()}.npy"
        with _private(self._folder / file) as stream:
            np.save(stream, vector, allow_pickle=False)
        return file


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb")


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    with _private(fresh) as stream:
        stream.truncate()
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)
