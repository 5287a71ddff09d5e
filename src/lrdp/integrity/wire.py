"""Messages as they travel between two parties at one position of the history: nothing that the receiver knows is sent.

Names are places in the registry, which both sides have. Of session, tip and model only the first four bytes are sent,
to tell a stale message from a forged one; where they match, the receiver puts its own whole hash in their place. So it
is always the receiver's own context that signatures and tags are checked against, and a sender who meant another one
has signed something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lrdp.errors import InvalidInput
from lrdp.integrity.encoding import HASH_SIZE, SIGNATURE_SIZE, Reader, varint
from lrdp.integrity.fixed_point import LARGE, SMALL, Whole
from lrdp.integrity.messages import (
    NONCE_SIZE,
    TAG_SIZE,
    Accept,
    CommittedUpdate,
    Header,
    Pledge,
    Publish,
    Tag,
    Tags,
    Train,
)
from lrdp.integrity.session import Position
from lrdp.integrity.verdicts import Verdict, rejection

_TRAIN, _PLEDGE, _UPDATE, _PUBLISH, _TAG, _TAGS, _ACCEPT = (bytes([kind]) for kind in range(1, 8))
_HINT_SIZE = 4
_PLACE_SIZE = 2
_PLEDGE_SIZE = _PLACE_SIZE + HASH_SIZE + SIGNATURE_SIZE
_TYPES: dict[bytes, np.dtype[Any]] = {bytes([kind.itemsize]): kind for kind in (SMALL, LARGE)}


def _opened(data: bytes, kind: bytes) -> Reader:
    reader = Reader(data)
    if reader.take(1) != kind:
        raise rejection(Verdict.MALFORMED, f"not a message of kind {kind[0]}")
    return reader


def _hint(value: bytes) -> bytes:
    return value[:_HINT_SIZE]


def _completed(reader: Reader, own: bytes) -> bytes:
    """The receiver's own hash if the hint matches it, otherwise one that is certainly different."""
    hint = reader.take(_HINT_SIZE)
    return own if hint == _hint(own) else hint + bytes(HASH_SIZE - _HINT_SIZE)


def _pledges(reader: Reader) -> int:
    """How many pledges follow, as the message says, if it has bytes for that many."""
    count = reader.varint()
    if count * _PLEDGE_SIZE > reader.left:
        raise rejection(Verdict.MALFORMED, f"cut short: {reader.left} bytes where {count} pledges belong")
    return count


def _type_of(values: Whole) -> bytes:
    return bytes([values.dtype.itemsize])


def _vector(kind: bytes, body: bytes | memoryview) -> Whole:
    if kind not in _TYPES or len(body) % _TYPES[kind].itemsize:
        raise rejection(Verdict.MALFORMED, "the vector is of no known type, or cut short")
    return np.frombuffer(body, _TYPES[kind])


def _value(tag: Tag) -> bytes:
    return tag.value.to_bytes(TAG_SIZE, "little")


@dataclass(frozen=True)
class Wire:
    """The encoding of every message of the round that starts at ``position``; both sides must stand there.

    An ACCEPT or TAGS of a round that is over are encoded at the position where *that* round started.
    """

    position: Position

    def train(self, train: Train) -> bytes:
        place = varint(train.round) + varint(train.attempt) + _hint(train.tip)
        invited = b"".join(map(self._place, train.invited))
        return _TRAIN + _hint(train.session) + place + train.signature + invited

    def read_train(self, data: bytes) -> Train:
        reader = _opened(data, _TRAIN)
        return Train(
            session=_completed(reader, self.position.session.digest),
            round=reader.varint(),
            attempt=reader.varint(),
            tip=_completed(reader, self.position.tip),
            signature=reader.take(SIGNATURE_SIZE),
            invited=tuple(self._name(reader) for _ in self._members(-(-reader.left // _PLACE_SIZE))),
        )

    def pledge(self, pledge: Pledge) -> bytes:
        """A pledge that travels before its update, in exact rounds."""
        return _PLEDGE + self._pledge(pledge)

    def read_pledge(self, data: bytes) -> Pledge:
        reader = _opened(data, _PLEDGE)
        pledge = self._read_pledge(reader)
        reader.end()
        return pledge

    def update(self, update: CommittedUpdate) -> bytes:
        """The prefix; the body is ``values`` as they lie in memory."""
        return _UPDATE + _type_of(update.values) + self._pledge(update.pledge) + update.nonce

    def read_update(self, prefix: bytes, body: bytes | memoryview) -> CommittedUpdate:
        reader = _opened(prefix, _UPDATE)
        values = _vector(reader.take(1), body)
        update = CommittedUpdate(pledge=self._read_pledge(reader), nonce=reader.take(NONCE_SIZE), values=values)
        reader.end()
        return update

    def publish(self, publish: Publish) -> bytes:
        """The prefix; the bodies are the aggregate and then the relayed updates' values, in the roster's order."""
        header = publish.header
        if publish.relayed and tuple(update.pledge for update in publish.relayed) != header.roster:
            raise InvalidInput("what is relayed must be the roster's updates in its order, or none.")
        nonces = b"".join(update.nonce for update in publish.relayed)
        return _PUBLISH + _type_of(publish.aggregate) + publish.signature + self._header(header) + nonces

    def read_publish(self, prefix: bytes, *bodies: bytes | memoryview) -> Publish:
        reader = _opened(prefix, _PUBLISH)
        kind, signature, header = reader.take(1), reader.take(SIGNATURE_SIZE), self._read_header(reader)
        nonces = [reader.take(NONCE_SIZE) for _ in header.roster] if reader.left else []
        reader.end()
        if len(bodies) != 1 + len(nonces):
            raise rejection(Verdict.MALFORMED, f"{len(bodies)} vectors where {1 + len(nonces)} belong")
        relayed = (
            CommittedUpdate(pledge=pledge, nonce=nonce, values=_vector(kind, body))
            for pledge, nonce, body in zip(header.roster, nonces, bodies[1:], strict=False)
        )
        aggregate = _vector(kind, bodies[0])
        return Publish(header=header, signature=signature, aggregate=aggregate, relayed=tuple(relayed))

    def tag(self, tag: Tag) -> bytes:
        return _TAG + self._place(tag.name) + _value(tag) + tag.signature

    def read_tag(self, data: bytes) -> Tag:
        reader = _opened(data, _TAG)
        tag = _read_tag(reader, self._name(reader))
        reader.end()
        return tag

    def tags(self, tags: Tags, header: Header) -> bytes:
        """A bit for each name of the roster, set if its tag is there, and then these tags in the roster's order."""
        given = {tag.name: tag for tag in tags.tags}
        present = sum(1 << place for place, name in enumerate(header.names) if name in given)
        if present.bit_count() != len(tags.tags):
            raise InvalidInput("tags travel at most once for each of the roster, and for nobody else.")
        there = (given[name] for name in header.names if name in given)
        said = b"".join(_value(tag) + tag.signature for tag in there)
        return _TAGS + present.to_bytes(-(-len(header.roster) // 8), "little") + said

    def read_tags(self, data: bytes, header: Header) -> Tags:
        reader = _opened(data, _TAGS)
        present = int.from_bytes(reader.take(-(-len(header.roster) // 8)), "little")
        if present >> len(header.roster):
            raise rejection(Verdict.MALFORMED, "tags of more participants than the roster names")
        names = (name for place, name in enumerate(header.names) if present >> place & 1)
        tags = Tags(tags=tuple(_read_tag(reader, name) for name in names))
        reader.end()
        return tags

    def accept(self, accept: Accept) -> bytes:
        return _ACCEPT + self._place(accept.name) + accept.signature

    def read_accept(self, data: bytes) -> Accept:
        reader = _opened(data, _ACCEPT)
        accept = Accept(name=self._name(reader), signature=reader.take(SIGNATURE_SIZE))
        reader.end()
        return accept

    def _place(self, name: str) -> bytes:
        places = self.position.session.registry.places
        if name not in places:
            raise InvalidInput(f"{name} is not in the registry, so there is no way to name it.")
        return places[name].to_bytes(_PLACE_SIZE, "little")

    def _members(self, count: int) -> range:
        """One step for each of ``count`` names to be read, if the registry has that many."""
        most = len(self.position.session.registry.members)
        if count > most:
            raise rejection(Verdict.ROSTER_MALFORMED, f"{count} names, and the registry has {most}")
        return range(count)

    def _name(self, reader: Reader) -> str:
        members, place = self.position.session.registry.members, int.from_bytes(reader.take(_PLACE_SIZE), "little")
        if place >= len(members):
            raise rejection(Verdict.ROSTER_UNKNOWN, f"the registry has {len(members)} members, and none at {place}")
        return members[place].name

    def _header(self, header: Header) -> bytes:
        place = _hint(header.session) + varint(header.round) + varint(header.attempt)
        hashes = _hint(header.previous) + _hint(header.model) + header.next_model + header.aggregate
        return place + hashes + varint(len(header.roster)) + b"".join(map(self._pledge, header.roster))

    def _read_header(self, reader: Reader) -> Header:
        return Header(
            session=_completed(reader, self.position.session.digest),
            round=reader.varint(),
            attempt=reader.varint(),
            previous=_completed(reader, self.position.tip),
            model=_completed(reader, self.position.model),
            next_model=reader.take(HASH_SIZE),
            aggregate=reader.take(HASH_SIZE),
            roster=tuple(self._read_pledge(reader) for _ in self._members(_pledges(reader))),
        )

    def _pledge(self, pledge: Pledge) -> bytes:
        return self._place(pledge.name) + pledge.commitment + pledge.signature

    def _read_pledge(self, reader: Reader) -> Pledge:
        return Pledge(name=self._name(reader), commitment=reader.take(HASH_SIZE), signature=reader.take(SIGNATURE_SIZE))


def _read_tag(reader: Reader, name: str) -> Tag:
    value = int.from_bytes(reader.take(TAG_SIZE), "little")
    return Tag(name=name, value=value, signature=reader.take(SIGNATURE_SIZE))
