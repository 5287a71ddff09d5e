"""What a server goes on from after its death: one file, written as a whole and last, with public values only.

Everything else in the folder is written *before* the state that speaks of it: the model, then the state. A server that
dies in between finds the previous state, which is whole as well, and repeats at most one round. Receipts are added to
their file once they have their quorum, so that file may be ahead of the state and is never behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypedDict

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.server.chronicle import Place
from lrdp.federation.server.keeping import Keeping
from lrdp.federation.server.repetitions import ShownSum
from lrdp.federation.wire.averaging import Averaging

STATE_FILE: Final = "session.state"
_LABEL: Final = "lrdp server state/v1"
_MOST_BYTES: Final = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a session has come: ``tried`` attempts ended.

    ``best`` is the round whose model scored ``score``. ``order`` is what was asked for, in hexadecimal. ``waiting`` are
    updates trained ahead, by the round they were trained from; ``shown`` are those in a sum that was published and not
    proved.
    """

    tried: int = 0
    best: int | None = None
    score: float | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    order: str = ""


class ProgressChange(TypedDict, total=False):
    """Fields of a progress that have another value now."""

    tried: int
    best: int | None
    score: float | None
    waiting: Mapping[str, int]
    shown: tuple[str, ...]
    order: str


_KEPT: Final = ("verified", "tagged", "blank")
"""Of a member's place. What it was sent with work counts once it has answered, and no answer outlives the server."""


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """``hello`` opened the session, and ``idle`` is the protocol's own state after ``round`` rounds.

    ``written`` receipts lie in their file, and ``receipts`` are those after them. ``keeping`` is None in a state of an
    earlier version, which did not say what is kept.
    """

    hello: bytes
    round: int
    idle: bytes
    written: int
    receipts: tuple[bytes, ...]
    places: Mapping[str, Place]
    shown: tuple[ShownSum, ...]
    progress: Progress
    keeping: Keeping | None = None

    def encode(self) -> bytes:
        """A checksum, and JSON."""
        record = {
            "label": _LABEL,
            "hello": self.hello.hex(),
            "round": self.round,
            "idle": self.idle.hex(),
            "written": self.written,
            "receipts": [receipt.hex() for receipt in self.receipts],
            "places": {name: {key: getattr(place, key) for key in _KEPT} for name, place in self.places.items()},
            "shown": [asdict(one) for one in self.shown],
            "progress": asdict(self.progress),
            "keeping": None if self.keeping is None else asdict(self.keeping),
        }
        body = json.dumps(record, separators=(",", ":")).encode("ascii")
        return sha256(body).hexdigest().encode() + b"\n" + body + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> SavedState:
        """What ``encode`` wrote; raises InvalidInput for anything else."""
        checksum, _, body = data.partition(b"\n")
        if sha256(body[:-1]).hexdigest().encode() != checksum:
            raise InvalidInput("its checksum does not hold")
        try:
            record = json.loads(body)
            if record.pop("label") != _LABEL:
                raise InvalidInput("it is of another version")
            return cls(
                hello=bytes.fromhex(record["hello"]),
                round=int(record["round"]),
                idle=bytes.fromhex(record["idle"]),
                written=int(record["written"]),
                receipts=tuple(map(bytes.fromhex, record["receipts"])),
                places={name: Place(**place) for name, place in record["places"].items()},
                shown=tuple(map(_shown, record["shown"])),
                progress=_progress(record["progress"]),
                keeping=_keeping(record.get("keeping")),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InvalidInput("it is not a state of a server of this version") from None


def _shown(record: Mapping[str, Any]) -> ShownSum:
    return ShownSum(**{**record, "roster": tuple(record["roster"]), "silent": tuple(record["silent"])})


def _progress(record: Mapping[str, Any]) -> Progress:
    known = {name: value for name, value in record.items() if name != "over"}  # which earlier versions also kept
    return Progress(**{**known, "shown": tuple(record["shown"])})


def _keeping(record: Mapping[str, Any] | None) -> Keeping | None:
    if record is None:
        return None
    every, average = record["every"], record["average"]
    return Keeping(
        every=None if every is None else int(every), average=None if average is None else Averaging(**average)
    )


def write_state(folder: Path, state: SavedState) -> None:
    """Write it in place of the previous state; durable once this returns."""
    try:
        files.replace(folder / STATE_FILE, state.encode(), files.OWNER_ONLY)
    except OSError as problem:
        raise InvalidInput(
            f"the state of the session cannot be written to {folder / STATE_FILE}: {problem.strerror}; a server that "
            f"cannot keep what was paid for does not go on."
        ) from None


def read_state(folder: Path) -> SavedState | None:
    """The state that was written last; None where there never was one."""
    path = folder / STATE_FILE
    try:
        return SavedState.decode(files.read(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InvalidInput(f"the state in {path} cannot be read: {problem.strerror}.") from None
    except InvalidInput as problem:
        raise InvalidInput(
            f"{path} cannot be resumed from: {problem}: restore it, or name another folder for a new session; "
            f"nothing was started."
        ) from None
