"""Whole states as bytes, for a process that ends between two messages, or is killed.

The bytes hold everything but the vectors and the long-term keys: vectors are large and lie elsewhere (the model on
disk, the update in an outbox), so they are handed back and checked against the hashes in the state; the keys have a
file of their own. What is left is still secret: the nonce that hides an update from peers and, in exact rounds,
the session's mask key. Keep it in a file of mode 600, and delete it with the session.

Write the state down *before* sending what it led to: whoever sent an update and forgot it cannot answer for it, and
whoever masks two updates alike shows their difference. The checksum catches damage; it is no signature, so whoever can
write the file can write a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Any, Final

from lrdp.codec import NUMBER, PACKED, Format, Kinds, Part, many, optional, packed
from lrdp.errors import InvalidInput
from lrdp.integrity.client import Begun, Committed, Ready, Tagged
from lrdp.integrity.encoding import HASH, SIGNATURE, part_of, strictly
from lrdp.integrity.exact import ExactServer, read_exact_client
from lrdp.integrity.fixed_point import Whole, aggregate_hash, next_model
from lrdp.integrity.keys import Identity, Member
from lrdp.integrity.messages import NONCE, TAG_VALUE, CommittedUpdate, Header, Pledge, Tag, Train
from lrdp.integrity.repeats import Stands
from lrdp.integrity.schemes import ClientScheme, ServerScheme, SketchServer, read_sketch_client
from lrdp.integrity.sealing import (
    MOST_STATE_BYTES,
    Vectors,
    checked_update,
    handed_back,
    read_aggregate,
    read_place,
    seal,
    unseal,
)
from lrdp.integrity.server import Gathering, Idle, Published
from lrdp.integrity.session import Position, ProofMethod, Session
from lrdp.integrity.verdicts import Verdict, rejection

Parts = Mapping[str, Part[bytes, Any]]
ClientState = Ready | Begun | Committed | Tagged
"""Where a client may be in a round, in this order."""
ServerState = Idle | Gathering | Published
"""Where a server may be in a round, in this order."""


def _in(name: str, parts: Parts) -> Parts:
    """The parts of a state that another one holds as ``name``."""
    return {f"{name}.{path}": part for path, part in parts.items()}


_PLACE: Final[Parts] = {
    "identity.member": part_of(Member),
    "position.session": part_of(Session),
    "position.round": NUMBER,
    "position.tip": HASH,
    "position.model": HASH,
    "attempt": NUMBER,
}
_READY: Final[Parts] = {**_PLACE, "scheme": Part(lambda scheme: scheme.encode(), bytes), "stands": part_of(Stands)}
_BEGUN: Final[Parts] = {**_in("ready", _READY), "train": part_of(Train)}
_PLEDGES: Final = many(part_of(Pledge))
_COMMITTED: Final[Parts] = {
    **_in("begun", _BEGUN),
    "update": NUMBER,
    "pledge": part_of(Pledge),
    "nonce": NONCE,
    "hidden": optional(HASH),
    "pledges": _PLEDGES,
}
_UPDATE: Final = packed(b"U", pledge=part_of(Pledge), nonce=NONCE)
_UPDATES: Final = many(Part(_UPDATE.encode, _UPDATE.decode))
_HEADER: Final = part_of(Header)
_STATES: Final[dict[type[ClientState | ServerState], Parts]] = {
    Ready: _READY,
    Begun: _BEGUN,
    Committed: _COMMITTED,
    Tagged: {**_in("committed", _COMMITTED), "header": _HEADER, "expected": TAG_VALUE, "waited": NUMBER},
    Idle: _PLACE,
    Gathering: {**_in("idle", _PLACE), "train": part_of(Train), "pledges": _PLEDGES, "updates": _UPDATES},
    Published: {
        **_in("idle", _PLACE),
        "header": _HEADER,
        "signature": SIGNATURE,
        "updates": _UPDATES,
        "tags": many(part_of(Tag)),
    },
}
_FORMATS: Final = {
    kind: Format(PACKED, (b"STATE/v1", kind.__name__.encode()), parts, MOST_STATE_BYTES)
    for kind, parts in _STATES.items()
}
_CLIENT, _SERVER = (
    Kinds({_FORMATS[kind].label[-1]: _FORMATS[kind] for kind in kinds})
    for kinds in ((Ready, Begun, Committed, Tagged), (Idle, Gathering, Published))
)


def _encoded(state: ClientState | ServerState) -> bytes:
    if type(state) not in _FORMATS:
        raise InvalidInput(f"{type(state).__name__} is not a state of a client or a server.")
    return seal(_FORMATS[type(state)].encode(state))


def _decoded(kinds: Kinds[bytes], data: bytes) -> tuple[str, dict[str, Any]]:
    """The kind, and its parts by the last words of their names, of which no two are alike."""
    body = unseal(data)
    with strictly():
        word, parts = kinds.decode(body)
    return word.decode(), {path.rpartition(".")[2]: value for path, value in parts.items()}


def kind(data: bytes) -> str:
    """Which state the bytes hold, by the name of its class."""
    return _decoded(Kinds({**_CLIENT.formats, **_SERVER.formats}), data)[0]


# ---------------------------------------------------------------------------------------------------------- the client
def encode_client(state: ClientState) -> bytes:
    """A client's state without its vectors."""
    return _encoded(state)


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
    name, given = _decoded(_CLIENT, data)
    position, model = read_place(given, identity, vectors)
    scheme, again = _client_scheme(position.session, identity, given["scheme"]), given["attempt"]
    ready = Ready(
        identity=identity, scheme=scheme, position=position, model=model, attempt=again, stands=given["stands"]
    )
    if name == "Ready":
        return ready
    begun = Begun(ready=ready, train=given["train"])
    if name == "Begun":
        return begun
    committed = _read_committed(begun, given, vectors)
    return committed if name == "Committed" else _read_tagged(committed, given, vectors)


def _client_scheme(session: Session, identity: Identity, data: bytes) -> ClientScheme:
    readers: dict[ProofMethod, Callable[[Identity, Session, bytes], ClientScheme]] = {
        ProofMethod.SKETCH: read_sketch_client,
        ProofMethod.EXACT: read_exact_client,
    }
    return readers[session.parameters.method](identity, session, data)


def _read_committed(begun: Begun, given: Mapping[str, Any], vectors: Vectors) -> Committed:
    values = handed_back(vectors, "values")
    sent = handed_back(vectors, "sent") if given["hidden"] else values
    if given["hidden"] and aggregate_hash(values) != given["hidden"]:
        raise rejection(Verdict.MALFORMED, "the values handed back are not those that were saved")
    own = {name: given[name] for name in ("update", "pledge", "nonce", "pledges")}
    checked_update(begun.ready.position, own["pledge"], own["nonce"], sent)
    return Committed(begun=begun, values=values, sent=sent, **own)


def _read_tagged(committed: Committed, given: Mapping[str, Any], vectors: Vectors) -> Tagged:
    own = {name: given[name] for name in ("header", "expected", "waited")}
    return Tagged(committed=committed, aggregate=read_aggregate(own["header"], vectors), **own)


# ---------------------------------------------------------------------------------------------------------- the server
def encode_server(state: ServerState) -> bytes:
    """The server's state without its vectors."""
    return _encoded(state)


def server_vectors(state: ServerState) -> dict[str, Whole]:
    """What ``decode_server`` wants back: model, aggregate, and update/NAME for each update that came in."""
    return _vectors(state)


def decode_server(data: bytes, identity: Identity, vectors: Vectors) -> ServerState:
    """What ``encode_server`` wrote.

    Updates that are not handed back are left out: before PUBLISH they must come in again, after it only ``blame`` and
    ``republish`` miss them.
    """
    name, given = _decoded(_SERVER, data)
    position, model = read_place(given, identity, vectors)
    scheme = _server_scheme(position.session.parameters.method)
    idle = Idle(identity=identity, scheme=scheme, position=position, model=model, attempt=given["attempt"])
    if name == "Idle":
        return idle
    return (_read_gathering if name == "Gathering" else _read_published)(idle, given, vectors)


def _server_scheme(method: ProofMethod) -> ServerScheme:
    schemes: dict[ProofMethod, ServerScheme] = {ProofMethod.SKETCH: SketchServer(), ProofMethod.EXACT: ExactServer()}
    return schemes[method]


def _read_gathering(idle: Idle, given: Mapping[str, Any], vectors: Vectors) -> Gathering:
    updates = _read_updates(idle.position, given["updates"], vectors)
    return Gathering(idle=idle, train=given["train"], pledges=given["pledges"], updates=updates)


def _read_published(idle: Idle, given: Mapping[str, Any], vectors: Vectors) -> Published:
    header: Header = given["header"]
    aggregate, point = read_aggregate(header, vectors), idle.position.session.parameters.point
    return Published(
        idle=idle,
        header=header,
        signature=given["signature"],
        aggregate=aggregate,
        next_model=next_model(idle.model, aggregate, len(header.roster), point),
        updates=_read_updates(idle.position, given["updates"], vectors),
        tags=given["tags"],
    )


def _read_updates(
    position: Position, prefixes: Iterable[Mapping[str, Any]], vectors: Vectors
) -> tuple[CommittedUpdate, ...]:
    kept = [(one, vectors[key]) for one in prefixes if (key := f"update/{one['pledge'].name}") in vectors]
    return tuple(checked_update(position, **one, values=values) for one, values in kept)


# ------------------------------------------------------------------------------------------------ each state's vectors
@singledispatch
def _vectors(state: object) -> dict[str, Whole]:
    raise InvalidInput(f"{type(state).__name__} is not a state of a client or a server.")


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
