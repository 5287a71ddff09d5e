"""What a chaos left behind, read from its files; the books by code of its own, which shares none with the library."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

from federation.test_retries import whole
from lrdp.errors import NotVerified
from lrdp.federation import Consortium
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.masked import MaskedAnnouncement, Pledged, Reveal, Revealed
from lrdp.federation.wire.questions import Announcement, Answer, Contributed, Question, Sum, read_message
from lrdp.integrity import Position, Publish, Registry, RoundReceipt, Wire, genesis, read_step
from lrdp.integrity.encoding import SIGNATURE_SIZE
from lrdp.integrity.history import read_session, walk_history
from lrdp.integrity.messages import Header

from .schedule import ACTS, SERVER, Schedule


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
    """A sum that was shown: by which life of the server, over whom, and what each of these had handed in, by hash.

    Under masks, a roster that was asked to reveal counts as shown, even if no sum followed: then it has no signature.
    """

    life: int
    round: int
    names: tuple[str, ...]
    signature: bytes
    total: np.ndarray
    updates: dict[str, tuple[str, np.ndarray]]


@dataclass(frozen=True)
class Blow:
    """What struck somebody: the death of a server, guard or node, or the loss of a key; between which rounds."""

    kind: str
    hospital: str
    round: int
    until: int


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
        return _lines(self.folder / "diary.jsonl")

    @cached_property
    def blows(self) -> list[Blow]:
        """In their order; the server's are no hospital's."""
        return [_blow(note) for note in self.notes if "dead" in note or "lost" in note]

    @cached_property
    def parted(self) -> set[str]:
        """Who left, in whichever way."""
        left = [note for note in self.notes if ACTS.get(note.get("change", "")) == "left"]
        return {f"hospital-{note['hospital']}" for note in left}

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

    @cached_property
    def models(self) -> dict[int, Path]:
        """Those that the server keeps, by their rounds.

        But for the first model of a session that nobody entered: its server died before it had written its state.
        """
        session = self.history_file.stem.partition("-")[2]
        kept = self.consortium.server_folder.glob(f"model-{session}-*.safetensors")
        return {int(path.stem.rpartition("-")[2]): path for path in kept}

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
    def registries(self) -> list[tuple[int, Registry]]:
        """Each with the number of rounds that were verified before it was in force."""
        first, *lines = self.lines
        rounds, found = 0, [(0, read_session(first, None).registry)]
        for line in lines:
            step = read_step(bytes.fromhex(line))
            if isinstance(step, Registry):
                found.append((rounds, step))
            else:
                rounds += 1
        return found

    @cached_property
    def days(self) -> list[tuple[int, str, str]]:
        """What each registry changed: after how many rounds, what, and for whom."""
        found = []
        for (_, before), (rounds, after) in pairwise(self.registries):
            old, new = before.by_name, after.by_name
            found += [(rounds, "joined", name) for name in sorted(new.keys() - old.keys())]
            found += [(rounds, "left", name) for name in sorted(old.keys() - new.keys())]
            found += [(rounds, "new key", name) for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
        return found

    def charges(self, name: str) -> list[Charge]:
        """Those of a hospital's ledger."""
        return list(self._books[name][0].values())

    @cached_property
    def _books(self) -> dict[str, tuple[dict[int, Charge], dict[int, int]]]:
        """Each ledger's charges, and by the entry of each reply the charge that it answers."""
        return {name: _read_books(self.consortium.client(name).folder / "ledger.db") for name in self.names}

    @cached_property
    def published(self) -> list[Published]:
        """Every sum that anybody was shown, once each, in its order."""
        handed = {id(each): (digest, values) for each, digest, values in self.contributions()}
        latest, pledged = dict[tuple[int, str], tuple[str, np.ndarray]](), dict[bytes, Passing]()
        found = dict[tuple[bytes, ...], Published]()
        for each in self.passed:
            said = each.said
            if id(each) in handed:
                latest[each.life, each.hospital] = handed[id(each)]
            elif isinstance(said, Pledged):
                pledged[_mark(said.pledge)] = each
            elif isinstance(said, Reveal) and (key := tuple(map(_mark, said.pledges))) not in found:
                found[key] = self._asked_for([pledged[mark] for mark in key])
            elif isinstance(said, Announcement | MaskedAnnouncement):
                header, signature = self._headers[said.publish]
                key = tuple(pledge.signature for pledge in header.roster)
                if key not in found or not found[key].signature:
                    updates = {name: latest[each.life, name] for name in header.names}
                    total = np.frombuffer(bytes(said.aggregate or b""), "<i4")
                    found[key] = Published(each.life, header.round, header.names, signature, total, updates)
        return list(found.values())

    def _asked_for(self, bound: list[Passing]) -> Published:
        """A roster that was asked for its masked updates."""
        said = {each.hospital: each.said for each in bound if isinstance(each.said, Pledged)}
        (number,) = {one.trained_from for one in said.values()}
        none = np.zeros(0, np.int64)
        updates = {name: (self._charged_at(name, one.head), none) for name, one in said.items()}
        return Published(bound[0].life, number, tuple(said), b"", none, updates)

    def _charged_at(self, name: str, head: str) -> str:
        """The hash of the update whose reply was the newest entry of a ledger when it signed this head."""
        charges, answered = self._books[name]
        _label, _ledger, _generation, points, *_ = head.split(" ")
        return charges[answered[int(points.partition(":")[0])]].digest

    @cached_property
    def _headers(self) -> dict[bytes, tuple[Header, bytes]]:
        """Of each announcement, as it reads where it was published: at one place of the history, and at no other."""
        places = [self.receipts[0][0], *(step.position for step in walk_history(self.lines, None))]
        sums = {each.said.publish: each.said for each in self.passed if isinstance(each.said, Sum)}
        found = {}
        for publish, said in sums.items():
            here = [read for place in places if (read := _published_at(place, said)) is not None]
            (there,) = {read.signature: read for read in here}.values()
            found[publish] = there.header, there.signature
        return found

    def contributions(self) -> Iterator[tuple[Passing, str, np.ndarray]]:
        """Each update that was handed to the server, and the hash of what was charged for.

        Of a masked update that hash is in nothing that was sent: the head that came with its commitment leads to it.
        """
        bound = dict[str, str]()
        for each in self.passed:
            if isinstance(each.said, Contributed):
                body = bytes(each.said.values or b"")
                yield each, sha256(body).hexdigest(), whole(body)
            elif isinstance(each.said, Pledged):
                bound[each.hospital] = self._charged_at(each.hospital, each.said.head)
            elif isinstance(each.said, Revealed):
                masked = np.frombuffer(bytes(each.said.values or b""), "<i4").astype(np.int64)
                yield each, bound[each.hospital], masked


def _mark(pledge: bytes) -> bytes:
    """The signature of a pledge as it travels: no two are alike."""
    return pledge[-SIGNATURE_SIZE:]


def _blow(note: dict) -> Blow:
    until = note.get("until", note["round"])
    if "lost" in note:
        return Blow("key", note["lost"], note["round"], until)
    kind, _, number = note["dead"].partition("-")
    return Blow(kind, "" if kind == SERVER else f"hospital-{number}", note["round"], until)


def _read_books(path: Path) -> tuple[dict[int, Charge], dict[int, int]]:
    """The ledger's lines as they are in the file: no code of the library reads them here.

    Whoever died last may have left a commit half-way: SQLite rolls it back for a reader that may write.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as file:
        rows = file.execute("SELECT seq, line FROM entries ORDER BY seq").fetchall()
    made, answered = dict[int, Charge](), dict[int, int]()
    for number, line in rows:
        kind, _at, *fields = line.decode().split("\t")
        if kind == "RESERVED":
            made[number] = Charge(number, int(fields[2]), fields[0], kind, "")
        elif kind in ("READY", "SENT"):
            of = made[int(fields[0])]
            made[of.entry] = replace(of, state=kind, digest=fields[1] if kind == "READY" else of.digest)
            if kind == "READY":
                answered[number] = of.entry
    return made, answered


def _published_at(position: Position, said: Sum) -> Publish | None:
    try:
        read = Wire(position).read_publish(said.publish, *said.vectors)
    except NotVerified:
        return None
    here = (read.header.session, read.header.round, read.header.previous)
    return read if here == (position.session.digest, position.round, position.tip) else None


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
