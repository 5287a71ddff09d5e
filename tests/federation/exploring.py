"""An exhaustive search of what a server with its own keys can make honest clients sign.

Breadth first over all states of a few clients, each on its real files: every step is ``Participant.handle`` on the
bytes of a message, by a new process that finds a folder. The server greets, orders, publishes, withholds, replays,
equivocates, rolls back and tries again as it likes; what it knows only grows, and is what the clients have signed.

The books alone are small here: they number updates and give the same one to the same question, as the ledger does
(tests/ledger tries that one). Nonces are constant and nothing waits for the disk, so that equal states are equal bytes;
a step from equal bytes is computed once.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from lrdp.federation.client.catching_up import last_verified
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.paying import Job, Made, Payer
from lrdp.federation.client.standing import Standing
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout, pack_values, raw, unpack_values
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import (
    Accepted,
    Announcement,
    CatchUp,
    Closing,
    Contribute,
    Contributed,
    Decline,
    Hello,
    OwnTag,
    Question,
    read_message,
    to_frame,
)
from lrdp.federation.wire.signing import run_identifier, sign_order, sign_session
from lrdp.integrity import (
    FixedPoint,
    Header,
    Identity,
    Parameters,
    Pledge,
    Publish,
    Registry,
    RoundReceipt,
    Session,
    Tag,
    Tags,
    Train,
    Wire,
    client,
    genesis,
    states,
)
from lrdp.integrity.fixed_point import aggregate_hash, model_hash
from lrdp.integrity.messages import Accept
from lrdp.integrity.states import ClientState
from lrdp.ledger import ChainPoint, Head, Policy, Reply

LAYOUT = Layout((("weight", (2,)),))
POINT = FixedPoint(size=LAYOUT.size)
FIRST_MODEL = np.array([0.5, -0.25], "<f4")
EVIDENCE = ("lock", "word", "disputed.txt")
"""Files that decide nothing."""
Label = tuple[Any, ...]
"""Which message it is: for equal labels to one disk, equal bytes."""


class Books:
    """In the place of the ledger: numbers updates, on disk, and knows which question each answers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: list[str] = json.loads(path.read_text()) if path.exists() else []
        self.books = self

    @property
    def seq(self) -> int:
        return len(self._keys)

    def charge_of(self, key: str) -> int:
        if key not in self._keys:
            self._keys.append(key)
            self._path.write_text(json.dumps(self._keys))
        return 1 + self._keys.index(key)

    def sent(self, _reply: Reply) -> None:
        pass

    def witness(self, _head: Head) -> None:
        pass

    def continues(self, _head: Head) -> bool:
        return True  # nobody restores these from a backup

    def head(self) -> Head:
        points = (ChainPoint(seq=self.seq, digest="ab" * 32, steps=self.seq),)
        return Head(ledger="cd" * 16, generation=0, points=points, signature="ef" * 64)

    def close(self) -> None:
        pass


class Drawn(Payer):
    """Makes updates of the client's name and the question."""

    def trained(self, job: Job) -> Made:
        request = job.request(self.home.policy())
        books: Any = job.ledger
        drawn = sha256(f"{self.home.identity().name}/{request.key}".encode()).digest()
        values = np.frombuffer(drawn[: POINT.size], np.int8).astype("<i4")
        return Made(
            Reply(charge=books.charge_of(request.key), body=pack_values(values, POINT), head="head"),
            job.ready.position.round,
        )


@dataclass(frozen=True, kw_only=True)
class Pledged:
    """That a client will stand by these values, at this place in the history."""

    name: str
    tip: bytes
    pledge: Pledge
    values: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Told:
    """A tag, and the header that it is for."""

    name: str
    header: Header
    tag: Tag


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """An ACCEPT, and the header that it is for."""

    name: str
    header: Header
    accept: Accept


Fact = Pledged | Told | Agreed
Facts = frozenset[Fact]


@dataclass(frozen=True, eq=False)
class Disk:
    """A client's files, and what a look at them shows."""

    files: Mapping[str, bytes]
    state: ClientState | None
    session: bytes


@dataclass(frozen=True)
class Node:
    """One client: its disk, by number, and everything that it has signed on the way there."""

    disk: int
    signed: Facts


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is tried; ``sessions`` is in how many of the two the server orders work."""

    clients: int = 3
    rounds: int = 1
    attempts: int = 2
    renewals: int = 1
    sessions: int = 1
    altered: bool = True
    rosters: bool = False


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who takes part."""

    identities: Mapping[str, Identity]
    policies: Mapping[str, Policy]
    server: Identity
    registry: Registry


@dataclass(frozen=True, kw_only=True)
class Found:
    """How many states were seen, how many steps of real clients they took, and the first thing that must not be."""

    states: int
    steps: int
    violation: str = ""


class Explorer:
    """The clients, the server's keys, and all that was found."""

    def __init__(self, folder: Path, cast: Cast, scope: Scope) -> None:
        self._folder, self._cast, self._scope = folder, cast, scope
        self._names = tuple(sorted(cast.identities))[: scope.clients]
        self._greetings = [self._greeting(number) for number in (0, 1)]
        self._sessions = {Session.decode(hello.session).digest: hello for hello in self._greetings}
        self._disks: list[Disk] = []
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._steps: dict[tuple[str, int, Label], tuple[int, Fact | None]] = {}
        self._nodes: list[Node] = []
        self._places: dict[Node, int] = {}
        self._following: dict[tuple[int, Facts], tuple[int, ...]] = {}
        self._alone: dict[int, str] = {}
        self._together: dict[Facts, str] = {}
        self._models: dict[bytes, Any] = {model_hash(FIRST_MODEL): FIRST_MODEL}

    def _greeting(self, number: int) -> Hello:
        nonce = bytes([number]) * 32
        session = Session(
            identifier=run_identifier(nonce, LAYOUT.described),
            server_key=self._cast.server.member.signing_key,
            parameters=Parameters(point=POINT),
            registry=self._cast.registry,
        )
        signature = sign_session(self._cast.server, session)
        return Hello(session=session.encode(), nonce=nonce, layout=LAYOUT.described, signature=signature)

    # ---------------------------------------- the search
    def search(self) -> Found:
        """All states that can be reached, or those before the first in which something must not be."""
        start = tuple(self._place(Node(self._kept(name, {}, None), frozenset())) for name in self._names)
        seen, queue = {start}, deque([start])
        while queue:
            for there in self._successors(queue.popleft()):
                if there in seen:
                    continue
                seen.add(there)
                violation = self._violation(there)
                if violation:
                    return Found(states=len(seen), steps=len(self._steps), violation=violation)
                queue.append(there)
        return Found(states=len(seen), steps=len(self._steps))

    def _place(self, node: Node) -> int:
        """A number for each node: states are tuples of them."""
        if node not in self._places:
            self._places[node] = len(self._nodes)
            self._nodes.append(node)
        return self._places[node]

    def _known(self, here: tuple[int, ...]) -> Facts:
        return frozenset[Fact]().union(*(self._nodes[place].signed for place in here))

    def _successors(self, here: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        known = self._known(here)
        for at, name in enumerate(self._names):
            key = (here[at], known)
            if key not in self._following:
                self._following[key] = tuple({*self._moves(name, self._nodes[here[at]], known)} - {here[at]})
            for place in self._following[key]:
                yield (*here[:at], place, *here[at + 1 :])

    def _moves(self, name: str, node: Node, known: Facts) -> Iterator[int]:
        for label, question in self._questions(name, self._disks[node.disk], known):
            disk, fact = self._step(name, node.disk, label, question)
            yield self._place(Node(disk, node.signed if fact is None else node.signed | {fact}))

    # ---------------------------------------- one client, one message
    def _step(self, name: str, disk: int, label: Label, question: Question) -> tuple[int, Fact | None]:
        """The disk after a message, and what was signed; from equal bytes it is computed once."""
        key = (name, disk, label)
        if key not in self._steps:
            home = self._folder / name
            before = self._disks[disk]
            shutil.rmtree(home, ignore_errors=True)
            (home / "session").mkdir(parents=True)
            for path, data in before.files.items():
                (home / path).write_bytes(data)
            answer = read_message(self._participant(name, home).handle(to_frame(question)))
            paths = [path for path in home.rglob("*") if path.is_file() and path.name not in EVIDENCE]
            files = {str(path.relative_to(home)): path.read_bytes() for path in paths}
            after = self._kept(name, files, Standing(home / "session").load(self._cast.identities[name]))
            self._steps[key] = after, self._fact(name, before.state, answer, self._disks[after].state)
        return self._steps[key]

    def _participant(self, name: str, home: Path) -> Participant:
        """A new process."""
        around: Any = SimpleNamespace(
            folder=home,
            standing=home / "session",
            policy=lambda: self._cast.policies[name],
            identity=lambda: self._cast.identities[name],
            ledger=lambda: Books(home / "books"),
            require_budget=lambda: None,  # it is open
        )
        bench: Any = SimpleNamespace(layout=LAYOUT, set_up=lambda _policy: None)
        made = Participant(around, bench)
        made._payer = Drawn(around, bench)  # everything else is as it is
        return made

    def _kept(self, name: str, files: Mapping[str, bytes], state: ClientState | None) -> int:
        """The number of a disk. Which vector lies in which file, and in which order sessions were left, is all one."""
        left, agreed = files.get("session/left", b""), files.get("session/agreed", b"")
        sealed = b"" if state is None else states.encode_client(state)
        vectors = [] if state is None else [one.tobytes() for one in states.client_vectors(state).values()]
        sessions = sorted({left[at : at + 32] for at in range(0, len(left), 32)})
        known = b"known" if "session/head" in files else b""
        parts = (sealed, *vectors, b"|", agreed, *sessions, files.get("books", b""), known)
        key = (name, sha256(b"".join(sha256(part).digest() for part in parts)).digest())
        if key not in self._numbers:
            self._numbers[key] = len(self._disks)
            hello: Any = read_message(Frame(agreed)) if agreed else None
            self._disks.append(Disk(files, state, Session.decode(hello.session).digest if hello else b""))
        return self._numbers[key]

    def _fact(self, name: str, before: Any, answer: Any, after: Any) -> Fact | None:
        if isinstance(answer, Contributed):
            position = after.begun.ready.position
            update = Wire(position).read_update(answer.update, raw(unpack_values(answer.values or b"", POINT)))
            values = tuple(update.values.tolist())
            return Pledged(name=name, tip=position.tip, pledge=update.pledge, values=values)
        if isinstance(answer, OwnTag):
            return Told(name=name, header=after.header, tag=Wire(after.ready.position).read_tag(answer.tag))
        if isinstance(answer, Accepted):
            accept = Wire(before.ready.position).read_accept(answer.accept)
            self._models[after.position.model] = np.array(after.model)
            return Agreed(name=name, header=before.header, accept=accept)
        if isinstance(answer, Decline) and answer.code == "failed":
            raise RuntimeError("a client failed where it should have declined.")
        return None

    # ---------------------------------------- everything that the server can send one client
    def _questions(self, name: str, disk: Disk, known: Facts) -> Iterator[tuple[Label, Question]]:
        for hello in self._greetings:
            yield ("greet", hello.nonce), hello
        if disk.session in list(self._sessions)[: self._scope.sessions]:
            yield from self._orders(disk)
            yield from self._announcements(name, disk.state, known)
            yield from self._closings(disk.state, known)
            yield from self._receipts(disk.state, known)

    def _orders(self, disk: Disk) -> Iterator[tuple[Label, Question]]:
        session = Session.decode(self._sessions[disk.session].session)
        position = genesis(session, model_hash(FIRST_MODEL))
        model: memoryview | None = raw(FIRST_MODEL)
        if disk.state is not None:
            position, model = last_verified(disk.state).position, None
        if position.round >= self._scope.rounds:
            return
        attempts, renewals = range(self._scope.attempts), range(self._scope.renewals)
        for attempt, renewal in itertools.product(attempts, renewals):
            place = {"session": session.digest, "round": position.round, "tip": position.tip}
            unsigned = Train(**place, attempt=attempt, invited=self._names)  # type: ignore[arg-type]
            train = replace(unsigned, signature=self._cast.server.sign(b"train/v1", unsigned.unsigned))
            order = Order(steps=1, renewal=renewal or None).encode()
            signature = sign_order(self._cast.server, position, order)
            invitation = Wire(position).train(train)
            since = CatchUp(model=model)
            work = Contribute(order=order, signature=signature, invitation=invitation, since=since)
            yield ("order", position.tip, attempt, renewal), work

    def _rosters(self, name: str) -> list[tuple[str, ...]]:
        sizes = range(3 if self._scope.rosters else len(self._names), len(self._names) + 1)
        return [roster for size in sizes for roster in itertools.combinations(self._names, size) if name in roster]

    def _announcements(self, name: str, state: Any, known: Facts) -> Iterator[tuple[Label, Question]]:
        """Every roster, with every pledge of each, and the true sum or another one."""
        if not isinstance(state, client.Committed | client.Tagged):
            return
        committed = state.committed if isinstance(state, client.Tagged) else state
        ready = committed.begun.ready
        here = [fact for fact in known if isinstance(fact, Pledged) and fact.tip == ready.position.tip]
        for roster in self._rosters(name):
            for chosen in itertools.product(*([fact for fact in here if fact.name == member] for member in roster)):
                for added in (0, 1)[: 1 + self._scope.altered]:
                    publish = self._published(ready, committed.attempt, chosen, added)
                    prefix = Wire(ready.position).publish(publish)
                    yield (
                        ("publish", publish.header.digest),
                        Announcement(publish=prefix, aggregate=raw(publish.aggregate)),
                    )

    def _published(self, ready: client.Ready, attempt: int, chosen: tuple[Pledged, ...], added: int) -> Publish:
        aggregate = np.sum([fact.values for fact in chosen], axis=0).astype("<i4")
        aggregate[0] += added
        header = Header(
            session=ready.position.session.digest,
            round=ready.position.round,
            attempt=attempt,
            previous=ready.position.tip,
            model=ready.position.model,
            next_model=model_hash(stepped(ready.model, aggregate, len(chosen))),
            aggregate=aggregate_hash(aggregate),
            roster=tuple(fact.pledge for fact in chosen),
        )
        return Publish(header=header, signature=self._signature(header), aggregate=aggregate)

    def _signature(self, header: Header) -> bytes:
        return self._cast.server.sign(b"server/v1", header.digest)

    def _closings(self, state: Any, known: Facts) -> Iterator[tuple[Label, Question]]:
        if not isinstance(state, client.Tagged):
            return
        tags = tags_of(state.header, known)
        if set(tags) == set(state.header.names):
            told = Tags(tags=tuple(tags[name] for name in sorted(tags)))
            yield ("close", state.header.digest), Closing(tags=Wire(state.ready.position).tags(told, state.header))

    def _receipts(self, state: ClientState | None, known: Facts) -> Iterator[tuple[Label, Question]]:
        """A round that others ended, for a client that was absent or went back; the order with it comes to nothing."""
        here = b"" if state is None else last_verified(state).position.tip
        for header, accepts in certified(known).items():
            if header.previous == here:
                tags = tags_of(header, known)
                receipt = RoundReceipt(
                    header=header,
                    signature=self._signature(header),
                    tags=tuple(tags[name] for name in sorted(tags)),
                    accepts=tuple(accepts[name] for name in sorted(accepts)),
                )
                model = raw(self._models[header.next_model])
                label = ("receipt", header.digest, tuple(sorted(accepts)))
                since = CatchUp(receipts=(receipt.encode(),), model=model)
                yield label, Contribute(order=b"-", signature=b"", invitation=b"", since=since)

    # ---------------------------------------- what must never be
    def _violation(self, here: tuple[int, ...]) -> str:
        """The first rule that is broken, by one client alone or by all together."""
        known = self._known(here)
        for place in here:
            if place not in self._alone:
                node = self._nodes[place]
                self._alone[place] = broken(EACH, node.signed) or self._misplaced(node)
            if self._alone[place]:
                return self._alone[place]
        if known not in self._together:
            self._together[known] = broken(ALL, known)
        return self._together[known]

    def _misplaced(self, node: Node) -> str:
        state = self._disks[node.disk].state
        fine = state is None or last_verified(state).position.model in self._models
        return "" if fine else "a client stands on a model that nobody verified"


# ---------------------------------------- what must hold, in plain words and numbers
def stepped(model: Any, aggregate: Any, count: int) -> Any:
    """θ' by the formula of docs/integrity.md."""
    return (model.astype(np.float64) + aggregate.astype(np.float64) / (count * 2.0**POINT.fraction_bits)).astype("<f4")


def by_round(header: Header) -> Any:
    return header.session, header.round


def by_attempt(header: Header) -> Any:
    return header.session, header.round, header.attempt


def one_each(headers: Iterable[Header], place: Callable[[Header], Any]) -> bool:
    """Whether there is one header at each place."""
    different = set(headers)
    return len(different) == len({place(header) for header in different})


def accepted_once(own: Facts) -> bool:
    return one_each((fact.header for fact in own if isinstance(fact, Agreed)), by_round)


def told_once(own: Facts) -> bool:
    return one_each((fact.header for fact in own if isinstance(fact, Told)), by_attempt)


def stands_once(own: Facts) -> bool:
    """Of the rounds of one client: one update for one roster, and one roster for one update."""
    shown = set()
    for fact in own:
        if isinstance(fact, Told):
            (pledge,) = (one for one in fact.header.roster if one.name == fact.name)
            shown.add((by_round(fact.header), pledge.commitment, fact.header.names))
    return all((c == d) == (r == s) for p, c, r in shown for q, d, s in shown if p == q)


def broken(rules: Mapping[str, Callable[[Facts], bool]], facts: Facts) -> str:
    return next((what for what, holds in rules.items() if not holds(facts)), "")


def tags_of(header: Header, known: Facts) -> dict[str, Tag]:
    return {fact.name: fact.tag for fact in known if isinstance(fact, Told) and fact.header == header}


def certified(known: Facts) -> dict[Header, dict[str, Accept]]:
    """What an absent client would believe: rounds with ACCEPTs of a quorum."""
    accepts: dict[Header, dict[str, Accept]] = {}
    for fact in known:
        if isinstance(fact, Agreed):
            accepts.setdefault(fact.header, {})[fact.name] = fact.accept
    return {header: words for header, words in accepts.items() if len(words) >= max(3, len(header.roster) // 2 + 1)}


def seen_by_all(known: Facts) -> bool:
    accepted = {fact.header for fact in known if isinstance(fact, Agreed)}
    return all(set(tags_of(header, known)) == set(header.names) for header in accepted)


def true_sums(known: Facts) -> bool:
    values = {fact.pledge.commitment: fact.values for fact in known if isinstance(fact, Pledged)}
    accepted = {fact.header for fact in known if isinstance(fact, Agreed)}
    sums = {header: np.sum([values[one.commitment] for one in header.roster], axis=0) for header in accepted}
    return all(aggregate_hash(total.astype("<i4")) == header.aggregate for header, total in sums.items())


EACH: dict[str, Callable[[Facts], bool]] = {
    "a client accepted two histories of one round": accepted_once,
    "a client signed two tags in one attempt": told_once,
    "a client showed one update in two rosters, or one roster two updates": stands_once,
}
ALL: dict[str, Callable[[Facts], bool]] = {
    "two histories of one round have a quorum": lambda known: one_each(certified(known), by_round),
    "a round was accepted that not everybody in it saw": seen_by_all,
    "a sum was accepted that is not the sum": true_sums,
}
