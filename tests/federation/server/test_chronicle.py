"""Where members stand, as far as the server knows: what each is owed and what each is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from federation.hostile import VICTIM, Stage, stage
from lrdp.federation.server.chronicle import Chronicle
from lrdp.federation.wire.questions import NOWHERE, Here


@pytest.fixture
def ended(tmp_path: Path) -> Stage:
    """A round that was concluded and that nobody has accepted yet."""
    made = stage(tmp_path)
    made.greet()
    made.gather()
    made.publish()
    made.coordinator.conclude()
    return made


def chronicle(given: Stage) -> Chronicle:
    return given.coordinator.chronicle


def here(given: Stage, rounds: int, tip: bytes | None = None) -> Here:
    tips = [given.coordinator.history[0].position.tip, given.coordinator._idle.position.tip]
    return Here(name=VICTIM, round=rounds, tip=tips[rounds] if tip is None else tip)


def test_whoever_took_part_is_owed_the_tags_and_nothing_else(ended: Stage) -> None:
    found = chronicle(ended)
    assert found.tags_for(VICTIM) == ended.coordinator.history[0].tags
    assert found.current(VICTIM)
    assert found.missed(VICTIM) == ()
    assert sorted(found.waiting()) == ended.names


def test_a_member_that_has_verified_the_round_is_owed_no_tags_though_its_accept_was_lost(ended: Stage) -> None:
    found = chronicle(ended)
    found.greet(replace(here(ended, 1), accept=b"no ACCEPT at all"), ended.coordinator._idle.position.tip)
    assert found.tags_for(VICTIM) == b""
    assert found.current(VICTIM)
    assert VICTIM not in found.waiting()
    assert ended.coordinator.history[0].receipt.accepts == ()


def test_a_member_that_still_stands_before_the_round_keeps_its_claim(ended: Stage) -> None:
    found = chronicle(ended)
    found.greet(here(ended, 0), ended.coordinator._idle.position.tip)
    assert found.tags_for(VICTIM) == ended.coordinator.history[0].tags
    found.forget(VICTIM)
    assert VICTIM in found.waiting(), "declining takes nothing away that it is owed"


def test_a_member_of_another_history_is_shown_this_one_from_the_start(ended: Stage) -> None:
    found = chronicle(ended)
    for lost in (here(ended, 0, NOWHERE), here(ended, 1, bytes(range(32))), replace(here(ended, 1), round=7)):
        found.greet(lost, ended.coordinator._idle.position.tip)
        assert found.tags_for(VICTIM) == b""
        assert not found.current(VICTIM)
        assert found.missed(VICTIM) == (ended.coordinator.history[0].receipt.encode(),)
        assert not found.can_follow(VICTIM), "nobody has accepted that round yet"
