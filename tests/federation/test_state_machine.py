"""What a server can make honest clients sign, whatever it sends in whatever order: every state is tried.

See ``exploring`` for how. The controls take one line of defence away each, and what it defends against is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lrdp.federation.client import catching_up
from lrdp.federation.client import participant as clients
from lrdp.federation.client.standing import Standing
from lrdp.integrity import checks
from lrdp.integrity import client as protocol
from lrdp.integrity.repeats import NOTHING_SHOWN, Stands

from .exploring import Cast, Explorer, Found, Scope
from .worlds import world

Search = Callable[[Scope], Found]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Searches everything within a scope."""
    place = world(tmp_path / "world", 4)
    homes = {name: place.consortium.client(name) for name in place.names}
    cast = Cast(
        identities={name: home.identity() for name, home in homes.items()},
        policies={name: home.policy() for name, home in homes.items()},
        server=place.consortium.server_identity(),
        registry=place.consortium.registry(),
    )
    monkeypatch.setattr(clients._LOG, "disabled", True)
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    monkeypatch.setattr(clients, "os", SimpleNamespace(urandom=bytes))
    return lambda scope: Explorer(tmp_path / "disks", cast, scope).search()


QUICK = [Scope(attempts=1), Scope(altered=False), Scope(attempts=1, rounds=2, altered=False)]
SLOW = [
    Scope(),
    Scope(attempts=1, renewals=2, altered=False),
    Scope(attempts=1, rounds=2, sessions=2, altered=False),
    Scope(attempts=1, clients=4, rosters=True, altered=False),  # any three, or all four
]


@pytest.mark.parametrize("scope", QUICK, ids=str)
def test_no_server_makes_clients_sign_what_contradicts_itself(search: Search, scope: Scope) -> None:
    found = search(scope)
    assert not found.violation
    assert found.states > 1000  # it went somewhere


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scope", SLOW, ids=str)
def test_nor_in_a_larger_world(search: Search, scope: Scope) -> None:
    found = search(scope)
    assert not found.violation
    assert found.states > 10_000


# ---------------------------------------- controls: without one line of defence, what it defends against is found
def forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients as they were: whoever leaves a session forgets that it was there, and what it showed."""
    genuine = Standing.enter

    def enter(self: Standing, session: bytes, proposed: bytes) -> None:
        (self._folder / "left").unlink(missing_ok=True)
        genuine(self, session, proposed)

    monkeypatch.setattr(Standing, "enter", enter)
    monkeypatch.setattr(catching_up, "nothing_before", lambda _update: NOTHING_SHOWN)


def test_control_who_enters_a_session_again_accepts_two_histories_of_it(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetting(monkeypatch)
    assert search(Scope(altered=False)).violation == "a client accepted two histories of one round"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_control_who_does_not_mind_rosters_shows_an_update_twice(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stands, "show", lambda self, _update, _roster, _repeats: self)
    found = search(Scope(renewals=2))
    assert found.violation == "a client showed one update in two rosters, or one roster two updates"


def test_control_who_takes_an_attempt_for_open_after_it_answered_signs_two_tags_in_it(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "roll_back", lambda tagged: tagged.ready)
    assert search(Scope(attempts=1)).violation == "a client signed two tags in one attempt"


def test_control_who_does_not_add_up_the_tags_accepts_another_sum(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "TAGS", checks.TAGS[:2])
    assert search(Scope(attempts=1)).violation == "a sum was accepted that is not the sum"
