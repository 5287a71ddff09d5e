"""Whole states as bytes: a client's between any two messages, a server's between rounds.

The bytes hold everything but the vectors and the long-term keys: vectors are large and lie elsewhere (the model on
disk, the update in an outbox), so they are handed back and checked against the hashes in the state; the keys have a
file of their own. What is left is still secret: the nonce that hides an update from peers and, in exact rounds,
the session's mask key. Keep it in a file of mode 600, and delete it with the session.

Write the state down *before* sending what it led to: whoever sent an update and forgot it cannot answer for it, and
whoever masks two updates alike shows their difference. The checksum catches damage; it is no signature, so whoever can
write the file can write a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import singledispatch
from typing import Any, Final

from lrdp.codec import NUMBER, PACKED, Format, Kinds, Part, many, optional
from lrdp.errors import InvalidInput
from lrdp.integrity.client import Begun, Committed, Ready, Tagged
from lrdp.integrity.encoding import HASH, part_of, strictly
from lrdp.integrity.exact import ExactServer, read_exact_client
from lrdp.integrity.fixed_point import Model, Whole, aggregate_hash
from lrdp.integrity.keys import Identity, Member
from lrdp.integrity.messages import NONCE, TAG_VALUE, CommittedUpdate, Header, Pledge, Train
from lrdp.integrity.repeats import Stands
from lrdp.integrity.schemes import ClientScheme, ServerScheme, SketchServer, read_sketch_client
from lrdp.integrity.sealing import (
    MOST_STATE_BYTES,
    NamedVectors,
    handed_back,
    read_aggregate,
    read_place,
    require_pledged,
    seal,
    unseal,
)
from lrdp.integrity.server import Idle
from lrdp.integrity.session import ProofMethod, Session
from lrdp.integrity.verdicts import Verdict, rejection

NamedParts = Mapping[str, Part[bytes, Any]]
ClientState = Ready | Begun | Committed | Tagged
"""Where a client may be in a round, in this order."""


def _in(name: str, parts: NamedParts) -> NamedParts:
    """The parts of a state that another one holds as ``name``."""
    return {f"{name}.{path}": part for path, part in parts.items()}


_PLACE: Final[NamedParts] = {
    "identity.member": part_of(Member),
    "position.session": part_of(Session),
    "position.round": NUMBER,
    "position.tip": HASH,
    "position.model": HASH,
    "attempt": NUMBER,
}
_READY: Final[NamedParts] = {**_PLACE, "scheme": Part(lambda scheme: scheme.encode(), bytes), "stands": part_of(Stands)}
_BEGUN: Final[NamedParts] = {**_in("ready", _READY), "train": part_of(Train)}
_COMMITTED: Final[NamedParts] = {
    **_in("begun", _BEGUN),
    "update": NUMBER,
    "pledge": part_of(Pledge),
    "nonce": NONCE,
    "hidden": optional(HASH),
    "pledges": many(part_of(Pledge)),
}
_STATES: Final[dict[type[ClientState | Idle], NamedParts]] = {
    Ready: _READY,
    Begun: _BEGUN,
    Committed: _COMMITTED,
    Tagged: {**_in("committed", _COMMITTED), "header": part_of(Header), "expected": TAG_VALUE, "waited": NUMBER},
    Idle: _PLACE,
}
_FORMATS: Final = {
    kind: Format(PACKED, (b"STATE/v1", kind.__name__.encode()), parts, MOST_STATE_BYTES)
    for kind, parts in _STATES.items()
}
_CLIENT, _SERVER = (
    Kinds({_FORMATS[kind].label[-1]: _FORMATS[kind] for kind in kinds})
    for kinds in ((Ready, Begun, Committed, Tagged), (Idle,))
)


def _encoded(state: ClientState | Idle) -> bytes:
    if type(state) not in _FORMATS:
        raise InvalidInput(f"{type(state).__name__} is not a state of a client or a server.")
    return seal(_FORMATS[type(state)].encode(state))


def _decoded(kinds: Kinds[bytes], data: bytes) -> tuple[str, dict[str, Any]]:
    """The kind, and its parts by the last words of their names, of which no two are alike."""
    body = unseal(data)
    with strictly():
        word, parts = kinds.decode(body)
    return word.decode(), {path.rpartition(".")[2]: value for path, value in parts.items()}


# ---------------------------------------------------------------------------------------------------------- the client
def encode_client(state: ClientState) -> bytes:
    """A client's state without its vectors."""
    return _encoded(state)


def client_vectors(state: ClientState) -> dict[str, Whole]:
    """What ``decode_client`` wants back: model, values, sent if it is not the values, aggregate."""
    return _vectors(state)


def on_vectors(state: ClientState, vectors: NamedVectors) -> ClientState:
    """The same state on other memory: ``vectors`` are ``client_vectors(state)``, equal in every coordinate."""
    if isinstance(state, Tagged):
        return replace(state, committed=_committed_on(state.committed, vectors), aggregate=vectors["aggregate"])
    if isinstance(state, Committed):
        return _committed_on(state, vectors)
    return _begun_on(state, vectors) if isinstance(state, Begun) else replace(state, model=vectors["model"])


def _committed_on(state: Committed, vectors: NamedVectors) -> Committed:
    values = vectors["values"]
    return replace(state, begun=_begun_on(state.begun, vectors), values=values, sent=vectors.get("sent", values))


def _begun_on(state: Begun, vectors: NamedVectors) -> Begun:
    return replace(state, ready=replace(state.ready, model=vectors["model"]))


def decode_client(data: bytes, identity: Identity, vectors: NamedVectors) -> ClientState:
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


def _read_committed(begun: Begun, given: Mapping[str, Any], vectors: NamedVectors) -> Committed:
    values = handed_back(vectors, "values")
    sent = handed_back(vectors, "sent") if given["hidden"] else values
    if given["hidden"] and aggregate_hash(values) != given["hidden"]:
        raise rejection(Verdict.MALFORMED, "the values handed back are not those that were saved")
    own = {name: given[name] for name in ("update", "pledge", "nonce", "pledges")}
    require_pledged(begun.ready.position, CommittedUpdate(pledge=own["pledge"], nonce=own["nonce"], values=sent))
    return Committed(begun=begun, values=values, sent=sent, **own)


def _read_tagged(committed: Committed, given: Mapping[str, Any], vectors: NamedVectors) -> Tagged:
    own = {name: given[name] for name in ("header", "expected", "waited")}
    return Tagged(committed=committed, aggregate=read_aggregate(own["header"], vectors), **own)


@singledispatch
def _vectors(state: object) -> dict[str, Whole]:
    raise InvalidInput(f"{type(state).__name__} is not a state of a client.")


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


# ---------------------------------------------------------------------------------------------------------- the server
def encode_server(idle: Idle) -> bytes:
    """The server between rounds, without its model. What was under way in a round is not kept: it is tried again."""
    return _encoded(idle)


def decode_server(data: bytes, identity: Identity, model: Model) -> Idle:
    """What ``encode_server`` wrote; NotVerified if it is damaged, or if the model is not the one that it stands on."""
    _, given = _decoded(_SERVER, data)
    position, checked = read_place(given, identity, {"model": model})
    scheme = _server_scheme(position.session.parameters.method)
    return Idle(identity=identity, scheme=scheme, position=position, model=checked, attempt=given["attempt"])


def _server_scheme(method: ProofMethod) -> ServerScheme:
    schemes: dict[ProofMethod, ServerScheme] = {ProofMethod.SKETCH: SketchServer(), ProofMethod.EXACT: ExactServer()}
    return schemes[method]
