"""What a chaos left behind, read from its files; the books by code of its own, which shares none with the library."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from federation.test_retries import whole
from lrdp.errors import NotVerified
from lrdp.federation import Consortium
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import (
    Announcement,
    Answer,
    Contributed,
    Question,
    read_message,
)
from lrdp.integrity import Position, Publish, Registry, RoundReceipt, Wire, genesis, read_step
from lrdp.integrity.history import read_session, walk_history
from lrdp.integrity.messages import Header

from .schedule import Schedule


@dataclass(frozen=True)
class Passing:
    """A message that passed through a hospital's node: when, by which life of the server, and what it was."""

    hospital: str
    at: float
    life: int
    number: str
    said: Question | Answer


@dataclass(frozen=True)
class Charge:
    """One charge of a ledger, and how far it got."""

    entry: int
    round: int
    key: str
    state: str
    digest: str


@dataclass(frozen=True)
class Published:
    """A sum that was shown: by which life of the server, over whom, and what each of these had handed in, by hash."""

    life: int
    round: int
    names: tuple[str, ...]
    signature: bytes
    total: np.ndarray
    updates: dict[str, tuple[str, np.ndarray]]


@dataclass(frozen=True)
class Evidence:
    """Everything that is in the folder of a chaos."""

    folder: Path
    schedule: Schedule

    @property
    def consortium(self) -> Consortium:
        return Consortium(folder=self.folder / "consortium")

    @property
    def names(self) -> list[str]:
        return self.consortium.names()

    @cached_property
    def notes(self) -> list[dict]:
        return _lines(self.folder / "director.jsonl")

    @cached_property
    def deaths(self) -> list[tuple[str, int]]:
        """Who died, and how many rounds were verified when that was noticed."""
        return [(note["dead"], note["round"]) for note in self.notes if "dead" in note]

    @cached_property
    def parted(self) -> set[str]:
        """Who left, or was excluded."""
        return {f"hospital-{note['hospital']}" for note in self.notes if note.get("change") in ("leave", "exclude")}

    @cached_property
    def reports(self) -> list[dict]:
        return _lines(self.folder / "reports.jsonl")

    @cached_property
    def passed(self) -> list[Passing]:
        """In their order in time."""
        found = []
        for name in self.names:
            for line in _lines(self.folder / "passed" / name):
                prefix, *bodies = map(bytes.fromhex, line["parts"])
                said = read_message(Frame(prefix, tuple(bodies)))
                found.append(Passing(name, line["at"], int(line["number"].partition("-")[0]), line["number"], said))
        return sorted(found, key=lambda each: each.at)

    @property
    def last_model(self) -> Path:
        """The server keeps the last one, and no other without being asked to.

        But for the first model of a session that nobody entered: its server died before it had written its state.
        """
        session = self.history_file.stem.partition("-")[2]
        kept = list(self.consortium.server_folder.glob(f"model-{session}-*.safetensors"))
        assert len(kept) == 1, f"{len(kept)} models are kept"
        return kept[0]

    @property
    def history_file(self) -> Path:
        """There is one: a chaos is one session, whenever its server died."""
        (path,) = self.consortium.server_folder.glob("receipts-*.txt")
        return path

    @cached_property
    def lines(self) -> list[str]:
        return self.history_file.read_text().split()

    @cached_property
    def receipts(self) -> list[tuple[Position, RoundReceipt]]:
        """Each verified round, with the place where it began."""
        first, *lines = self.lines
        session, found, after = read_session(first, None), [], None
        for line in lines:
            step = read_step(bytes.fromhex(line))
            if isinstance(step, Registry):
                assert after is not None
                after = after.rotated(step)
                continue
            position = after or genesis(session, step.header.model)
            found.append((position, step))
            after = position.after(step.header.digest, step.header.next_model)
        return found

    @cached_property
    def rotations(self) -> Counter[int]:
        """How often the registry was replaced, by the rounds that were verified before."""
        _, *lines = self.lines
        rounds, found = 0, Counter[int]()
        for line in lines:
            replaced = isinstance(read_step(bytes.fromhex(line)), Registry)
            found[rounds] += replaced
            rounds += not replaced
        return found

    def charges(self, name: str) -> list[Charge]:
        """The ledger's lines as they are in the file: no code of the library reads them here."""
        with closing(
            sqlite3.connect(f"file:{self.consortium.client(name).folder}/ledger.db?mode=ro", uri=True)
        ) as file:
            rows = file.execute("SELECT seq, line FROM entries ORDER BY seq").fetchall()
        made: dict[int, Charge] = {}
        for number, line in rows:
            kind, _at, *fields = line.decode().split("\t")
            if kind == "RESERVED":
                made[number] = Charge(number, int(fields[2]), fields[0], kind, "")
            elif kind in ("READY", "SENT"):
                of = made[int(fields[0])]
                made[of.entry] = Charge(of.entry, of.round, of.key, kind, fields[1] if kind == "READY" else of.digest)
        return list(made.values())

    @cached_property
    def published(self) -> list[Published]:
        """Everything that anybody was shown a sum of, once each, in its order."""
        handed = {id(each): (digest, values) for each, digest, values in self.contributions()}
        latest, found = dict[tuple[int, str], tuple[str, np.ndarray]](), dict[bytes, Published]()
        for each in self.passed:
            if id(each) in handed:
                latest[each.life, each.hospital] = handed[id(each)]
            elif isinstance(each.said, Announcement) and each.said.publish not in found:
                header, signature = self._header(each.said)
                updates = {name: latest[each.life, name] for name in header.names}
                total = np.frombuffer(bytes(each.said.aggregate or b""), "<i4")
                found[each.said.publish] = Published(each.life, header.round, header.names, signature, total, updates)
        return list(found.values())

    def _header(self, said: Announcement) -> tuple[Header, bytes]:
        """As it reads where it was published: at one place of the history, and at no other."""
        places = [self.receipts[0][0], *(step.position for step in walk_history(self.lines, None))]
        here = [publish for place in places if (publish := _published_at(place, said.publish)) is not None]
        (publish,) = {publish.signature: publish for publish in here}.values()
        return publish.header, publish.signature

    def contributions(self) -> Iterator[tuple[Passing, str, np.ndarray]]:
        """Each update that was handed to the server, and the hash of its bytes."""
        for each in self.passed:
            if isinstance(each.said, Contributed):
                body = bytes(each.said.values or b"")
                yield each, sha256(body).hexdigest(), whole(body)


def _published_at(position: Position, prefix: bytes) -> Publish | None:
    try:
        said = Wire(position).read_publish(prefix, b"")
    except NotVerified:
        return None
    here = (said.header.session, said.header.round, said.header.previous)
    return said if here == (position.session.digest, position.round, position.tip) else None


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
