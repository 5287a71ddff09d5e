"""Whole states as bytes, for a process that ends between two messages, or is killed.

The bytes hold everything but the vectors and the long-term keys: vectors are large and lie elsewhere (the model on
disk, the update in an outbox), so they are handed back and checked against the hashes in the state; the keys have a
file of their own. What is left is secret all the same: the nonce that hides an update from peers and, in exact rounds,
the session's mask key. Keep it in a file of mode 600, and delete it with the session.

Write the state down *before* sending what it led to: whoever sent an update and forgot it cannot answer for it, and
whoever masks two updates alike shows their difference. The checksum catches damage; it is no signature, so whoever can
write the file can write a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import singledispatch

from lrdp.errors import InvalidInput
from lrdp.integrity.client import Begun, Committed, Ready, Tagged
from lrdp.integrity.encoding import SIGNATURE_SIZE, as_number, fields, number, pack, sized, unpack
from lrdp.integrity.exact import ExactServer, read_exact_client
from lrdp.integrity.fixed_point import Whole, aggregate_hash, next_model
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import TAG_SIZE, CommittedUpdate, Header, Pledge, Tag, Train
from lrdp.integrity.repeats import Stands
from lrdp.integrity.schemes import ClientScheme, ServerScheme, SketchServer, read_sketch_client
from lrdp.integrity.sealing import (
    PLACE_FIELDS,
    Vectors,
    checked_update,
    handed_back,
    packed,
    place,
    read_aggregate,
    read_place,
    read_pledges,
    seal,
    unseal,
)
from lrdp.integrity.server import Gathering, Idle, Published
from lrdp.integrity.session import Position, ProofMethod, Session
from lrdp.integrity.verdicts import Verdict, rejection

ClientState = Ready | Begun | Committed | Tagged
ServerState = Idle | Gathering | Published

_CLIENT = {
    "Ready": PLACE_FIELDS + 2,
    "Begun": PLACE_FIELDS + 3,
    "Committed": PLACE_FIELDS + 8,
    "Tagged": PLACE_FIELDS + 11,
}
_SERVER = {"Idle": PLACE_FIELDS, "Gathering": PLACE_FIELDS + 3, "Published": PLACE_FIELDS + 4}


def kind(data: bytes) -> str:
    """Which state the bytes hold, by the name of its class."""
    return unseal(data, _CLIENT | _SERVER)[0]


# ---------------------------------------------------------------------------------------------------------- the client
def encode_client(state: ClientState) -> bytes:
    """A client's state without its vectors."""
    return seal(type(state).__name__, _parts(state))


def client_vectors(state: ClientState) -> dict[str, Whole]:
    """What ``decode_client`` wants back: model, values, sent if it is not the values, aggregate."""
    return _vectors(state)


def on_vectors(state: ClientState, vectors: Vectors) -> ClientState:
    """The same state on other memory: ``vectors`` are ``client_vectors(state)``, equal in every coordinate."""
    if isinstance(state, Tagged):
        return replace(state, committed=_committed_on(state.committed, vectors), aggregate=vectors["aggregate"])
    if isinstance(state, Committed):
        return _committed_on(state, vectors)
    return _begun_on(state, vectors) if isinstance(state, Begun) else replace(state, model=vectors["model"])


def _committed_on(state: Committed, vectors: Vectors) -> Committed:
    values = vectors["values"]
    return replace(state, begun=_begun_on(state.begun, vectors), values=values, sent=vectors.get("sent", values))


def _begun_on(state: Begun, vectors: Vectors) -> Begun:
    return replace(state, ready=replace(state.ready, model=vectors["model"]))


def decode_client(data: bytes, identity: Identity, vectors: Vectors) -> ClientState:
    """What ``encode_client`` wrote; NotVerified if it is damaged, or if a vector is not the one that was saved."""
    name, parts = unseal(data, _CLIENT)
    position, attempt, model = read_place(parts[:PLACE_FIELDS], identity, vectors)
    own, stands, *rest = parts[PLACE_FIELDS:]
    scheme = _client_scheme(position.session, identity, own)
    shown = Stands.decode(stands)
    ready = Ready(identity=identity, scheme=scheme, position=position, model=model, attempt=attempt, stands=shown)
    if name == "Ready":
        return ready
    begun = Begun(ready=ready, train=Train.decode(rest[0]))
    if name == "Begun":
        return begun
    committed = _read_committed(begun, rest[1:6], vectors)
    return committed if name == "Committed" else _read_tagged(committed, rest[6:], vectors)


def _client_scheme(session: Session, identity: Identity, data: bytes) -> ClientScheme:
    readers: dict[ProofMethod, Callable[[Identity, Session, bytes], ClientScheme]] = {
        ProofMethod.SKETCH: read_sketch_client,
        ProofMethod.EXACT: read_exact_client,
    }
    return readers[session.parameters.method](identity, session, data)


def _read_committed(begun: Begun, parts: Iterable[bytes], vectors: Vectors) -> Committed:
    given, own, nonce, hidden, pledges = parts
    values = handed_back(vectors, "values")
    sent = handed_back(vectors, "sent") if hidden else values
    if hidden and aggregate_hash(values) != hidden:
        raise rejection(Verdict.MALFORMED, "the values handed back are not those that were saved")
    pledge = checked_update(begun.ready.position, Pledge.decode(own), nonce, sent).pledge
    bound = Committed(begun=begun, update=as_number(given), pledge=pledge, nonce=nonce, values=values, sent=sent)
    return replace(bound, pledges=read_pledges(pledges))


def _read_tagged(committed: Committed, parts: Iterable[bytes], vectors: Vectors) -> Tagged:
    header, expected, waited = parts
    read = Header.decode(header)
    return Tagged(
        committed=committed,
        header=read,
        aggregate=read_aggregate(read, vectors),
        expected=int.from_bytes(sized(expected, TAG_SIZE), "little"),
        waited=as_number(waited),
    )


# ---------------------------------------------------------------------------------------------------------- the server
def encode_server(state: ServerState) -> bytes:
    """The server's state without its vectors."""
    return seal(type(state).__name__, _parts(state))


def server_vectors(state: ServerState) -> dict[str, Whole]:
    """What ``decode_server`` wants back: model, aggregate, and update/NAME for each update that came in."""
    return _vectors(state)


def decode_server(data: bytes, identity: Identity, vectors: Vectors) -> ServerState:
    """What ``encode_server`` wrote.

    Updates that are not handed back are left out: before PUBLISH they must come in again, after it only ``blame`` and
    ``republish`` miss them.
    """
    name, parts = unseal(data, _SERVER)
    position, attempt, model = read_place(parts[:PLACE_FIELDS], identity, vectors)
    scheme = _server_scheme(position.session.parameters.method)
    idle = Idle(identity=identity, scheme=scheme, position=position, model=model, attempt=attempt)
    rest = parts[PLACE_FIELDS:]
    if name == "Idle":
        return idle
    return (_read_gathering if name == "Gathering" else _read_published)(idle, rest, vectors)


def _server_scheme(method: ProofMethod) -> ServerScheme:
    schemes: dict[ProofMethod, ServerScheme] = {ProofMethod.SKETCH: SketchServer(), ProofMethod.EXACT: ExactServer()}
    return schemes[method]


def _read_gathering(idle: Idle, parts: Iterable[bytes], vectors: Vectors) -> Gathering:
    train, pledges, updates = parts
    return Gathering(
        idle=idle,
        train=Train.decode(train),
        pledges=read_pledges(pledges),
        updates=_read_updates(idle.position, updates, vectors),
    )


def _read_published(idle: Idle, parts: Iterable[bytes], vectors: Vectors) -> Published:
    header, signature, updates, tags = parts
    read = Header.decode(header)
    aggregate, point = read_aggregate(read, vectors), idle.position.session.parameters.point
    return Published(
        idle=idle,
        header=read,
        signature=sized(signature, SIGNATURE_SIZE),
        aggregate=aggregate,
        next_model=next_model(idle.model, aggregate, len(read.roster), point),
        updates=_read_updates(idle.position, updates, vectors),
        tags=tuple(Tag.decode(part) for part in unpack(tags)),
    )


def _update_prefixes(updates: Iterable[CommittedUpdate]) -> bytes:
    return pack(*(pack(b"U", update.pledge.encode(), update.nonce) for update in updates))


def _read_updates(position: Position, data: bytes, vectors: Vectors) -> tuple[CommittedUpdate, ...]:
    prefixes = [fields(part, b"U", 2) for part in unpack(data)]
    named = [(Pledge.decode(own), nonce) for own, nonce in prefixes]
    kept = [(own, nonce, vectors[key]) for own, nonce in named if (key := f"update/{own.name}") in vectors]
    return tuple(checked_update(position, own, nonce, values) for own, nonce, values in kept)


# ------------------------------------------------------------------------------------------------- each state's fields
@singledispatch
def _parts(state: object) -> tuple[bytes, ...]:
    raise InvalidInput(f"{type(state).__name__} is no state of a client or a server.")


@_parts.register
def _(state: Ready) -> tuple[bytes, ...]:
    return (*place(state), state.scheme.encode(), state.stands.encode())


@_parts.register
def _(state: Begun) -> tuple[bytes, ...]:
    return (*_parts(state.ready), state.train.encode())


@_parts.register
def _(state: Committed) -> tuple[bytes, ...]:
    hidden = b"" if state.sent is state.values else aggregate_hash(state.values)
    own = number(state.update), state.pledge.encode(), state.nonce, hidden
    return (*_parts(state.begun), *own, packed(state.pledges))


@_parts.register
def _(state: Tagged) -> tuple[bytes, ...]:
    numbers = state.expected.to_bytes(TAG_SIZE, "little"), number(state.waited)
    return (*_parts(state.committed), state.header.encode(), *numbers)


@_parts.register
def _(state: Idle) -> tuple[bytes, ...]:
    return place(state)


@_parts.register
def _(state: Gathering) -> tuple[bytes, ...]:
    return (*place(state.idle), state.train.encode(), packed(state.pledges), _update_prefixes(state.updates))


@_parts.register
def _(state: Published) -> tuple[bytes, ...]:
    said = state.header.encode(), state.signature
    return (*place(state.idle), *said, _update_prefixes(state.updates), packed(state.tags))


@singledispatch
def _vectors(state: object) -> dict[str, Whole]:
    raise InvalidInput(f"{type(state).__name__} is no state of a client or a server.")


@_vectors.register
def _(state: Ready) -> dict[str, Whole]:
    return {"model": state.model}


@_vectors.register
def _(state: Begun) -> dict[str, Whole]:
    return _vectors(state.ready)


@_vectors.register
def _(state: Committed) -> dict[str, Whole]:
    sent = {} if state.sent is state.values else {"sent": state.sent}
    return {**_vectors(state.begun), "values": state.values, **sent}


@_vectors.register
def _(state: Tagged) -> dict[str, Whole]:
    return {**_vectors(state.committed), "aggregate": state.aggregate}


@_vectors.register
def _(state: Idle) -> dict[str, Whole]:
    return {"model": state.model}


@_vectors.register
def _(state: Gathering) -> dict[str, Whole]:
    return {**_vectors(state.idle), **_update_vectors(state.updates)}


@_vectors.register
def _(state: Published) -> dict[str, Whole]:
    return {**_vectors(state.idle), "aggregate": state.aggregate, **_update_vectors(state.updates)}


def _update_vectors(updates: Iterable[CommittedUpdate]) -> dict[str, Whole]:
    return {f"update/{update.pledge.name}": update.values for update in updates}
