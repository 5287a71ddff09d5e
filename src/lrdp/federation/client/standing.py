"""Where a client stands in a session, on disk: a process may end after any message, or be killed in the midst of one.

The ledger alone is the memory of what was spent. If the saved state is lost, the client joins again with receipts.

A session that was left is over: to enter it again would be to forget what was verified in it, and to sign for a second
history of it. So the sessions that were left are written down, 32 bytes each, before anything of them is forgotten.

A process that lives on remembers what it saved or checked, so it need not read and hash it again. Vectors are large, so
it holds them as maps of their files, which cost no memory of its own; and files are overwritten rather than replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np

from lrdp.codec import NUMBER, PACKED, RAW, Format, Part, many, pack, packed, row, text
from lrdp.errors import InvalidInput, LrdpError, PolicyRefused
from lrdp.federation.client.catching_up import last_verified
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Hello, read_message
from lrdp.files import OWNER_ONLY, append, locked, overwriting, read, replace, sync_folder
from lrdp.integrity import (
    HASH_SIZE,
    MOST_STATE_BYTES,
    ClientState,
    Identity,
    Member,
    Session,
    Whole,
    states,
)
from lrdp.ledger import Refusal

_MOST_BYTES: Final = MOST_STATE_BYTES + (1 << 10)  # a state, and the names of its vectors' files
_MOST_VECTORS: Final = 8
_LONGEST_NAME: Final = 40
_MOST_LEFT: Final = 1 << 30  # thirty-three million sessions
_NO_VECTOR: Final = (ValueError, EOFError, SyntaxError, TokenError, OverflowError, MemoryError, RecursionError)
"""What numpy raises for a damaged file, whose header it reads as Python's literals."""
_LEFT: Final = pack(b"left/v1")
MOST_ORDERS_PER_ROUND: Final = 4
"""An honest server asks about one order, and about another for each renewal."""
_OUTLASTING: Final = ("lock", "left", "registries", "disputed.txt")
"""What does not end with a session."""


class Asked(NamedTuple):
    """The orders of a round that the client was asked about."""

    round: int = 0
    orders: tuple[bytes, ...] = ()


class Waiting(NamedTuple):
    """The charge of an update that waits, and the round it was trained from; 0 and 0 where none does."""

    charge: int = 0
    trained_from: int = 0


class Saved(NamedTuple):
    """A state without its vectors, in which file each of these lies, and the last ACCEPT: one step saves all."""

    state: bytes
    files: tuple[tuple[str, str], ...]
    accept: bytes = b""


@dataclass(frozen=True)
class Followed:
    """The registries that a client has followed, each encoded."""

    registries: tuple[bytes, ...]


_ASKED: Final = packed(b"asked/v1", round=NUMBER, orders=many(RAW, MOST_ORDERS_PER_ROUND))
_WAITING: Final = packed(b"waiting/v1", charge=NUMBER, trained_from=NUMBER)
_FILES: Final = many(row(text(_LONGEST_NAME), text(_LONGEST_NAME)), _MOST_VECTORS)
_FOLLOWED: Final = Format(PACKED, (b"registries/v1",), {"registries": many(RAW, most_bytes=_MOST_BYTES)}, _MOST_BYTES)
_PARTS: Final[Mapping[str, Part[bytes, Any]]] = {"state": RAW, "files": _FILES}
_SAVED: Final = Format(PACKED, (b"standing/v2",), {**_PARTS, "accept": RAW}, _MOST_BYTES)
_SAVED_V1: Final = Format(PACKED, (b"standing/v1",), _PARTS, _MOST_BYTES)
"""As version 0.1 wrote it, with the last ACCEPT in a file of its own."""


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


class LeftSession(InvalidInput):
    """This client was in the session before, and has left it for another one."""


class Standing:
    """The folder of one client's session: what was agreed on, and the state that was reached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = Known()
        self._written: list[tuple[Whole, str]] = []
        self._maps: list[tuple[ref[Whole], str]] = []
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One message at a time, whatever process it came to."""
        with locked(self._folder / "lock"):
            try:
                yield
            finally:
                self._written = []  # from here on, the files hold them

    def agreed(self) -> bytes | None:
        """The session that the client is in, as it was proposed."""
        return _content(self._folder / "agreed") or None

    def is_in(self, session: bytes) -> bool:
        """Whether the client is in the session of this digest."""
        proposed = self.agreed()
        return proposed is not None and _session_of(proposed) == session

    def enter(self, session: bytes, proposed: bytes) -> None:
        """Enter the session of this digest; where the client stood in another is forgotten, and that one is over.

        Where it is in that session already, it takes the new greeting. Raises LeftSession for a session that was left.
        """
        if self.is_in(session):
            if proposed != self.agreed():
                _replace(self._folder / "agreed", proposed)
            return
        left, current = self._left(), self.agreed()
        if session in left:
            raise LeftSession("this session was left for another one, and is not entered again: begin a new one.")
        if current is not None:
            self._dispute()
            _replace(self._folder / "left", _LEFT + b"".join((*left, _session_of(current))))
            (self._folder / "agreed").unlink()  # from here on it is over, and what lies here belongs to no session
            sync_folder(self._folder)
        for path in self._folder.iterdir():
            if path.name not in _OUTLASTING:
                path.unlink()
        self._known, self._written = Known(), []
        _replace(self._folder / "agreed", proposed)

    def _left(self) -> list[bytes]:
        """The sessions that were left, in their order; a file that does not name them for certain is refused."""
        label, left = (content := _content(self._folder / "left", _MOST_LEFT))[: len(_LEFT)], content[len(_LEFT) :]
        if content and (label != _LEFT or len(left) % HASH_SIZE):
            raise InvalidInput("the file `left` of this client is damaged, so no session is entered: restore it.")
        return [left[at : at + HASH_SIZE] for at in range(0, len(left), HASH_SIZE)]

    def registries(self) -> tuple[bytes, ...]:
        """Those that this client has followed in the session that it is in, or was in last; the last is in force."""
        kept = _content(self._folder / "registries")
        return Followed(**_FOLLOWED.decode(kept)).registries if kept else ()

    def follow(self, registries: tuple[bytes, ...]) -> None:
        """Follow these registries of the consortium, beyond the session too: there is no way back to an older one."""
        if registries != self.registries():
            _replace(self._folder / "registries", _FOLLOWED.encode(Followed(registries)))

    def accepted(self) -> bytes:
        """The last ACCEPT, for a server that did not get it; nothing where the state that it belongs to is damaged."""
        try:
            return _saved(_content(self._folder / "state")).accept or _content(self._folder / "accepted")
        except LrdpError:
            return b""

    def accept(self, state: ClientState, accept: bytes) -> None:
        """Keep a verified round: the next model, and the client's word that the round is verified."""
        self.save(state, accept)
        (self._folder / "word").unlink(missing_ok=True)
        self.wait_with(0, 0)

    def answer(self, state: ClientState, word: bytes) -> None:
        """Keep one's tag for what the server published; ``word`` is both with their signatures.

        It is kept until the round is verified, and for good if it never is: it shows who signed what, and so who lied.
        """
        if _content(self._folder / "word") != word:
            self._dispute()
        _replace(self._folder / "word", word)
        self.save(state)

    def _dispute(self) -> None:
        word = _content(self._folder / "word")
        if word:
            append(self._folder / "disputed.txt", word.hex().encode("ascii"), OWNER_ONLY)

    def wait_with(self, charge: int, trained_from: int) -> None:
        """Remember the update that was trained ahead of the round in which it will take part; 0 for none."""
        _replace(self._folder / "waiting", _WAITING.encode(Waiting(charge, trained_from)))

    def waiting(self) -> Waiting:
        """The update that waits."""
        kept = _content(self._folder / "waiting")
        return Waiting(**_WAITING.decode(kept)) if kept else Waiting()

    def ask_about(self, round_: int, order: bytes) -> None:
        """Note an order that the client was asked about, ahead of work; raises PolicyRefused for too many in a round.

        Asking costs nothing, so without a limit a server could try orders until it knew how much of the budget is left.
        """
        kept = _content(self._folder / "asked")
        known = Asked(**_ASKED.decode(kept)) if kept else Asked()
        orders = known.orders if known.round == round_ else ()
        if order in orders:
            return
        if len(orders) >= MOST_ORDERS_PER_ROUND:
            raise PolicyRefused(
                f"{len(orders)} orders were asked about in round {round_}, at most {MOST_ORDERS_PER_ROUND} are "
                f"answered: nothing was trained and nothing was spent.",
                Refusal.RECHARGE,
            )
        _replace(self._folder / "asked", _ASKED.encode(Asked(round_, (*orders, order))))

    def load(self, identity: Identity) -> ClientState | None:
        """The state that was saved last; None where there is none that is whole.

        A state that a power failure cut off is not believed, and receipts bring the client back.
        """
        if not (self._folder / "agreed").exists():
            return None  # it was killed while it left
        try:
            saved = read(self._folder / "state", _MOST_BYTES)
            if self._known.saved != saved or self._known.member != identity.member:
                kept = _saved(saved)
                files = dict(kept.files)
                vectors = {name: self._map(file) for name, file in files.items()}
                self._known = Known(saved, files, states.decode_client(kept.state, identity, vectors))
        except (OSError, LrdpError, *_NO_VECTOR):
            self._known = Known()
        return self._known.state

    def save(self, state: ClientState, accept: bytes = b"") -> None:
        """Replace the saved state in one step; a vector that is on disk already is not written again.

        ``accept`` is the word for the round that led to it; without one, the last is kept.
        """
        files = {name: self._file_of(vector) for name, vector in states.client_vectors(state).items()}
        saved = _SAVED.encode(Saved(states.encode_client(state), tuple(files.items()), accept or self.accepted()))
        _replace(self._folder / "state", saved)
        vectors = {name: self._map(file) for name, file in files.items()}
        self._known = Known(saved, files, states.on_vectors(state, vectors))

    def _file_of(self, vector: Whole) -> str:
        for known, file in (*self._written, *self._known.stored()):
            if known is vector:
                return file
        file = self._spare_file()
        with overwriting(self._folder / file) as stream:
            np.save(stream, vector, allow_pickle=False)
        self._written.append((vector, file))
        return file

    def _spare_file(self) -> str:
        """One that neither the saved state needs nor anybody who holds a map of it, or a view of the map."""
        self._maps = [(mapped, file) for mapped, file in self._maps if mapped() is not None]
        used = {file for _, file in (*self._written, *self._known.stored(), *self._maps)}
        return next(file for number in count() if (file := f"vector-{number}.npy") not in used)

    def _map(self, file: str) -> Whole:
        mapped = np.load(self._folder / file, mmap_mode="r", allow_pickle=False)
        self._maps.append((ref(mapped), file))
        return np.asarray(mapped)


def _saved(data: bytes) -> Saved:
    try:
        return Saved(**_SAVED.decode(data))
    except LrdpError:
        return Saved(**_SAVED_V1.decode(data))


def _session_of(proposed: bytes) -> bytes:
    """The digest of a session that was agreed on."""
    try:
        hello = read_message(Frame(proposed))
        if isinstance(hello, Hello):
            return Session.decode(hello.session).digest
    except LrdpError:
        pass
    raise InvalidInput("the file `agreed` of this client's session is damaged: delete it, and enter another session.")


def _replace(path: Path, data: bytes) -> None:
    replace(path, data, OWNER_ONLY)


def _content(path: Path, most: int = _MOST_BYTES) -> bytes:
    return read(path, most) if path.exists() else b""
