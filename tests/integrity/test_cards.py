"""Cards and registries as JSON: what was not written here is refused, and each limit holds at its edge."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from integrity.parties import federation, verdict_of
from lrdp.integrity.cards import card, json_object, read_card, read_registry, registry_record
from lrdp.integrity.verdicts import Verdict

REGISTRY = federation(3, size=5).session.registry
MEMBER = REGISTRY.members[0]


def changed(**changes: Any) -> str:
    return json.dumps({**registry_record(REGISTRY), **changes})


def test_what_was_written_is_read_as_it_was():
    assert read_card(json.dumps(card(MEMBER))) == MEMBER
    assert read_registry(json.dumps(registry_record(REGISTRY))) == REGISTRY


def test_the_digest_in_a_registry_is_not_believed():
    assert read_registry(changed(digest="00" * 32)).digest == REGISTRY.digest


@pytest.mark.parametrize("number", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("field", ["version", "first_round"])
def test_the_least_and_the_largest_number_are_read(field, number):
    assert getattr(read_registry(changed(**{field: number})), field) == number


@pytest.mark.parametrize("number", [-1, 2**63, True, False, 1.0, 0.5, "1", None, [1]])
@pytest.mark.parametrize("field", ["version", "first_round"])
def test_what_is_not_a_whole_number_within_its_limits_is_malformed(field, number):
    assert verdict_of(partial(read_registry, changed(**{field: number}))) is Verdict.MALFORMED


@pytest.mark.parametrize("members", [{}, "", None, 3, {"c000": card(MEMBER)}])
def test_members_are_a_list(members):
    assert verdict_of(partial(read_registry, changed(members=members))) is Verdict.MALFORMED
    assert read_registry(changed(members=[])).members == (), "control"


@pytest.mark.parametrize("entry", [None, [], "c000", 5])
def test_a_member_is_an_object(entry):
    assert verdict_of(partial(read_registry, changed(members=[entry]))) is Verdict.MALFORMED
    assert verdict_of(partial(read_card, json.dumps(entry))) is Verdict.MALFORMED


@pytest.mark.parametrize("field", ["name", "signing_key", "agreement_key", "proof"])
@pytest.mark.parametrize("value", [None, 5, ["c000"], "Not a name, not a key"])
def test_a_card_without_a_name_or_a_key_is_malformed(field, value):
    record: dict[str, Any] = {**card(MEMBER), field: value}
    assert verdict_of(lambda: read_card(json.dumps(record))) is Verdict.MALFORMED
    del record[field]
    assert verdict_of(lambda: read_card(json.dumps(record))) is Verdict.MALFORMED


def test_parts_are_counted_before_they_are_parsed_up_to_the_last_one_allowed():
    """Sixteen, and one more for every 32 characters."""
    nested = {depth: '{"a":' + "[" * depth + "]" * depth + "}" for depth in (16, 17)}
    assert [len(text) // 32 for text in nested.values()] == [1, 1]
    assert list(json_object(nested[16])) == ["a"]
    assert verdict_of(partial(json_object, nested[17])) is Verdict.MALFORMED


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"a"', "null", '{"a": 1} {}'])
def test_what_is_not_one_json_object_is_malformed(text):
    assert verdict_of(partial(json_object, text)) is Verdict.MALFORMED
