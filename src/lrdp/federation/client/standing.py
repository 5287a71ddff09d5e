"""Where a client stands in a session, on disk: a process may end after any message, or be killed in the midst of one.

The ledger alone is the memory of what was spent. If the saved state is lost, the client joins again with receipts.

A session that was left is over: to enter it again would be to forget what was verified in it, and to sign for a second
history of it. So the sessions that were left are written down, 32 bytes each, before anything of them is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from lrdp import files
from lrdp.codec import NUMBER, PACKED, RAW, Format, many, pack, packed
from lrdp.errors import InvalidInput, LrdpError, PolicyRefused
from lrdp.federation.client.catching_up import last_verified
from lrdp.federation.client.home import LOCK_FILE
from lrdp.federation.client.state_file import MOST_BYTES, StateFile, content
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Hello, read_message
from lrdp.integrity import HASH_SIZE, ClientState, Identity, Session, client
from lrdp.ledger import Refusal

_MOST_LEFT: Final = 1 << 30  # thirty-three million sessions
_LEFT: Final = pack(b"left/v1")
MOST_ORDERS_PER_ROUND: Final = 4
"""An honest server asks about one order, and about another for each renewal."""
_OUTLASTING: Final = (LOCK_FILE, "left", "registries", "head", "disputed.txt")
"""What does not end with a session."""


class Asked(NamedTuple):
    """The orders of a round that the client was asked about."""

    round: int = 0
    orders: tuple[bytes, ...] = ()


class Waiting(NamedTuple):
    """The charge of an update that waits, and the round it was trained from; 0 and 0 where none does."""

    charge: int = 0
    trained_from: int = 0


@dataclass(frozen=True)
class Followed:
    """The registries that a client has followed, each encoded."""

    registries: tuple[bytes, ...]


_ASKED: Final = packed(b"asked/v1", round=NUMBER, orders=many(RAW, MOST_ORDERS_PER_ROUND))
_WAITING: Final = packed(b"waiting/v1", charge=NUMBER, trained_from=NUMBER)
_FOLLOWED: Final = Format(PACKED, (b"registries/v1",), {"registries": many(RAW, most_bytes=MOST_BYTES)}, MOST_BYTES)


class LeftSession(InvalidInput):
    """This client was in the session before, and has left it for another one."""


class Standing:
    """The folder of one client's session: what was agreed on, and the state that was reached."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._state = folder, StateFile(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One message at a time, whatever process it came to."""
        with files.locked(self._folder / LOCK_FILE):
            try:
                yield
            finally:
                self._state.let_go()

    def agreed(self) -> bytes | None:
        """The session that the client is in, as it was proposed."""
        return content(self._folder / "agreed") or None

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
            files.sync_folder(self._folder)
        for path in self._folder.iterdir():
            if path.name not in _OUTLASTING:
                path.unlink()
        self._state.forget()
        _replace(self._folder / "agreed", proposed)

    def _left(self) -> list[bytes]:
        """The sessions that were left, in their order; a file that does not name them for certain is refused."""
        kept = content(self._folder / "left", _MOST_LEFT)
        label, left = kept[: len(_LEFT)], kept[len(_LEFT) :]
        if kept and (label != _LEFT or len(left) % HASH_SIZE):
            raise InvalidInput("the file `left` of this client is damaged, so no session is entered: restore it.")
        return [left[at : at + HASH_SIZE] for at in range(0, len(left), HASH_SIZE)]

    def registries(self) -> tuple[bytes, ...]:
        """Those that this client has followed in the session that it is in, or was in last; the last is in force."""
        kept = content(self._folder / "registries")
        return Followed(**_FOLLOWED.decode(kept)).registries if kept else ()

    def follow(self, registries: tuple[bytes, ...]) -> None:
        """Follow these registries of the consortium, beyond the session too: there is no way back to an older one."""
        if registries != self.registries():
            _replace(self._folder / "registries", _FOLLOWED.encode(Followed(registries)))

    def accepted(self) -> bytes:
        """The last ACCEPT, for a server that did not get it; nothing where the state that it belongs to is damaged."""
        return self._state.accepted()

    def accept(self, state: ClientState, accept: bytes) -> None:
        """Keep a verified round: the next model, and the client's word that the round is verified."""
        self._state.save(state, accept)
        (self._folder / "word").unlink(missing_ok=True)
        self.wait_with(0, 0)

    def answer(self, state: ClientState, word: bytes) -> None:
        """Keep one's tag for what the server published; ``word`` is both with their signatures.

        It is kept until the round is verified, and for good if it never is: it shows who signed what, and so who lied.
        """
        if content(self._folder / "word") != word:
            self._dispute()
        _replace(self._folder / "word", word)
        self.save(state)

    def _dispute(self) -> None:
        word = content(self._folder / "word")
        if word:
            files.append(self._folder / "disputed.txt", word.hex().encode("ascii"), files.OWNER_ONLY)

    def wait_with(self, charge: int, trained_from: int) -> None:
        """Remember the update that was trained ahead of the round in which it will take part; 0 for none."""
        _replace(self._folder / "waiting", _WAITING.encode(Waiting(charge, trained_from)))

    def waiting(self) -> Waiting:
        """The update that waits."""
        kept = content(self._folder / "waiting")
        return Waiting(**_WAITING.decode(kept)) if kept else Waiting()

    def ask_about(self, round_: int, order: bytes) -> None:
        """Note an order that the client was asked about, ahead of work; raises PolicyRefused for too many in a round.

        Asking costs nothing, so without a limit a server could try orders at leisure until it knew how much of the
        budget is left. With one it needs a session for every few of them; what is left depends on no record.
        """
        kept = content(self._folder / "asked")
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
        """The state that was saved last; None where there is none that is whole."""
        if not (self._folder / "agreed").exists():
            return None  # it was killed while it left
        return self._state.load(identity)

    def save(self, state: ClientState) -> None:
        """Replace the saved state in one step."""
        self._state.save(state)

    def head(self) -> str:
        """The last head of the ledger that is known here; empty where none is."""
        return content(self._folder / "head").decode("ascii", errors="replace")

    def predates_heads(self) -> bool:
        """Whether an earlier version saved it, which kept no head: the books that are here were its own then, too."""
        return not self.head() and self._state.is_of_version_1()

    def keep_head(self, head: str) -> None:
        """Remember it, beyond the session too."""
        if head != self.head():
            _replace(self._folder / "head", head.encode("ascii"))

    def bind(self, committed: client.Committed, head: str) -> None:
        """Keep the update that the client is bound to, and before it the head of the books that hold its charge.

        Whoever is killed in between has the head alone, so books without that charge are found out in any case.
        """
        self.keep_head(head)
        self.save(committed)

    def turn_to_other_books(self, identity: Identity, last: int) -> None:
        """From now on updates are numbered by books that end at ``last``; to none made before is the client bound."""
        state = self.load(identity)
        if state is not None:
            ready = last_verified(state)
            self.save(replace(ready, stands=ready.stands.in_other_books(last)))
        if any(self.waiting()):
            self.wait_with(0, 0)


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
    files.replace(path, data, files.OWNER_ONLY)
