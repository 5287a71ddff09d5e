"""Members and registries as JSON, for people to read, send and compare.

>>> from lrdp.integrity import new_identity
>>> member = new_identity("hospital-a").member
>>> read_card(json.dumps(card(member))) == member
True
"""

from __future__ import annotations

import json
from typing import Any

from lrdp.codec import MOST_BYTES
from lrdp.integrity.keys import Member
from lrdp.integrity.registry import Registry
from lrdp.integrity.verdicts import Verdict, rejection

MOST_CARD_CHARACTERS = MOST_BYTES
"""What a card or a registry may have as JSON: longer ones are refused unread."""
_MOST_MARKS = 16
_CHARACTERS_A_MARK = 32


def card(member: Member) -> dict[str, str]:
    """What a member sends to the consortium: public keys, and the signature that shows they are its own."""
    return {
        "name": member.name,
        "signing_key": member.signing_key.hex(),
        "agreement_key": member.agreement_key.hex(),
        "proof": member.proof.hex(),
    }


def registry_record(registry: Registry) -> dict[str, Any]:
    """A registry as JSON; ``digest`` is what clients pin."""
    return {
        "version": registry.version,
        "first_round": registry.first_round,
        "previous": registry.previous.hex(),
        "consortium": registry.consortium.hex(),
        "members": [card(member) for member in registry.members],
        "signature": registry.signature.hex(),
        "digest": registry.digest.hex(),
    }


def read_card(text: str) -> Member:
    """What ``card`` made; ``Member.holds`` says whether its keys are sound."""
    return _member(json_object(text))


def read_registry(text: str) -> Registry:
    """What ``registry_record`` made; the digest in it is not believed but computed again."""
    record = json_object(text)
    members = record.get("members")
    if not isinstance(members, list):
        raise rejection(Verdict.MALFORMED, "members is not a list")
    return Registry(
        version=_number(record, "version"),
        first_round=_number(record, "first_round"),
        previous=_hex(record, "previous"),
        consortium=_hex(record, "consortium"),
        members=tuple(_member(entry) for entry in members),
        signature=_hex(record, "signature"),
    )


def json_object(text: str, most: int = MOST_CARD_CHARACTERS) -> dict[str, Any]:
    """A JSON object of names and keys, which are long: many short parts would cost many times the length of the text.

    Guarantees: what it costs to read is at most a small multiple of its length.

    >>> json_object('{"name": "hospital-a"}')
    {'name': 'hospital-a'}
    """
    if len(text) > most or not text.isascii():
        raise rejection(Verdict.MALFORMED, f"not ASCII, or more than {most} characters")
    if sum(map(text.count, "[{,")) > _MOST_MARKS + len(text) // _CHARACTERS_A_MARK:
        raise rejection(Verdict.MALFORMED, "JSON, but not of names and keys")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise rejection(Verdict.MALFORMED, "not JSON") from None
    return _dict(record)


def _dict(record: object) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise rejection(Verdict.MALFORMED, "not a JSON object")
    return record


def _member(entry: object) -> Member:
    record = _dict(entry)
    name = record.get("name")
    if not isinstance(name, str):
        raise rejection(Verdict.MALFORMED, "a member without a name")
    keys = {field: _hex(record, field) for field in ("signing_key", "agreement_key", "proof")}
    return Member(name=name, **keys)


def _hex(record: dict[str, Any], field: str) -> bytes:
    try:
        return bytes.fromhex(record[field])
    except (KeyError, TypeError, ValueError):
        raise rejection(Verdict.MALFORMED, f"{field} is missing or not hexadecimal") from None


def _number(record: dict[str, Any], field: str) -> int:
    value = record.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise rejection(Verdict.MALFORMED, f"{field} is missing or not a whole number")
    return value
