"""A server that has all of its own keys and none of the consortium's, and would decide who takes part: it is refused.

Each attack is what a competent adversary would send: the rotation, and an order that is signed for the place in the
history to which it leads. After it the books stand where they stood, and the client goes on under the true registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lrdp.federation.client.lineage import Lineage
from lrdp.federation.wire.questions import CatchUp, Contribute, Contributed, Decline, Here, to_frame
from lrdp.federation.wire.signing import sign_order, sign_session
from lrdp.integrity import Position, Registry, Wire, digest, new_identity, server
from lrdp.integrity import registry as registries

from .hostile import HONEST, Stage, opened, stage
from .rotations import signed
from .worlds import world


def led(given: Stage, *steps: Registry) -> Position:
    """Where these registries would lead, whoever signed them."""
    position = given.coordinator._idle.position
    for registry in steps:
        session = replace(position.session, registry=registry)
        position = replace(position, session=session, tip=digest(b"rotate/v1", position.tip, session.digest))
    return position


def order(given: Stage, *steps: Registry, shown: tuple[Registry, ...] | None = None) -> Contribute:
    """Work at the place to which ``steps`` lead; the client is shown them, or others."""
    position = led(given, *steps)
    idle = replace(given.coordinator._idle, position=position)
    names = [name for name in given.names if name in position.session.registry.by_name]
    _, train = server.open_round(idle, names)
    asked = HONEST.encode()
    since = CatchUp(receipts=tuple(each.encode() for each in (steps if shown is None else shown)))
    signature = sign_order(given.identity, position, asked)
    return Contribute(order=asked, signature=signature, invitation=Wire(position).train(train), since=since)


def current(given: Stage) -> Registry:
    return given.coordinator.registry


def without_the_fifth(folder: Path) -> Stage:
    """After a round of five hospitals, a rotation, and a round of four."""
    place = world(folder, 5)
    made = Stage(place, opened(place), place.consortium.server_identity())
    made.honest_round()
    made.coordinator.rotate(signed(made.world, current(made), without=["hospital-4"]))
    made.world.names.remove("hospital-4")
    made.honest_round()
    return made


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All attacks on it are refused, so that it stays what it is: the last round shows it."""
    made = without_the_fifth(tmp_path_factory.mktemp("moved"))
    yield made
    made.honest_round()


def _old_registry(given: Stage) -> Contribute:
    return order(given, given.world.consortium.registry())


def _excluded_again_by_the_server(given: Stage) -> Contribute:
    """The next version, with the member that was excluded, under the server's signature."""
    old = given.world.consortium.registry().members
    return order(given, registries.sign_registry(registries.next_registry(current(given), old), given.identity))


def _another_consortium(given: Stage) -> Contribute:
    return order(given, signed(given.world, current(given), by=new_identity("consortium")))


def _unsigned(given: Stage) -> Contribute:
    return order(given, replace(signed(given.world, current(given)), signature=bytes(64)))


def _a_fork_of_the_version_in_force(given: Stage) -> Contribute:
    """Two of one number, both of them the consortium's."""
    return order(given, signed(given.world, given.world.consortium.registry(), without=["hospital-3"]))


def _a_version_left_out(given: Stage) -> Contribute:
    following = signed(given.world, current(given))
    return order(given, signed(given.world, following))


def _too_early(given: Stage) -> Contribute:
    return order(given, signed(given.world, current(given), first_round=1000))


def _below_the_least_roster(given: Stage) -> Contribute:
    return order(given, signed(given.world, current(given), without=["hospital-2", "hospital-3"]))


def _in_silence(given: Stage) -> Contribute:
    """The server rotates and does not say so."""
    return order(given, signed(given.world, current(given), without=["hospital-3"]), shown=())


ATTACKS: list[tuple[Callable[[Stage], Contribute], str]] = [
    (_old_registry, "registry-refused"),
    (_excluded_again_by_the_server, "registry-refused"),
    (_another_consortium, "registry-refused"),
    (_unsigned, "registry-refused"),
    (_a_fork_of_the_version_in_force, "registry-refused"),
    (_a_version_left_out, "registry-refused"),
    (_too_early, "registry-refused"),
    (_below_the_least_roster, "roster-too-small"),
    (_in_silence, "server-sig"),
]


@pytest.mark.parametrize(("attack", "code"), ATTACKS, ids=lambda value: getattr(value, "__name__", None))
def test_a_server_that_decides_who_takes_part_is_refused_and_nothing_is_charged(
    moved: Stage, attack: Callable[[Stage], Contribute], code: str
) -> None:
    before = moved.account()
    assert moved.send(to_frame(attack(moved))) == Decline(code=code)
    assert moved.account() == before


def test_who_was_excluded_is_invited_by_nobody_and_refuses_to_take_part(moved: Stage) -> None:
    moved.world.names.append("hospital-4")
    try:
        answer = moved.ask(moved.coordinator.hello, "hospital-4")
    finally:
        moved.world.names.remove("hospital-4")
    assert answer == Decline(code="no-member")
    assert not moved.coordinator.knows(Here(name="hospital-4", round=0, tip=bytes(32)))


# ---------------------------------------- greetings
def _greeting(given: Stage, *rotations: Registry) -> Decline | Here:
    """The same session, under these registries since it was opened; the server stands by them."""
    hello = given.coordinator.hello
    opened = given.coordinator.history[0].position.session
    encoded = tuple(each.encode() for each in rotations)
    signature = sign_session(given.identity, opened, rotations)
    answer = given.ask(replace(hello, rotations=encoded, signature=signature))
    assert isinstance(answer, Decline | Here), answer
    return answer


def test_a_greeting_under_an_old_or_a_forked_registry_is_refused(moved: Stage) -> None:
    first, newest = moved.world.consortium.registry(), current(moved)
    before = moved.account()
    fork = signed(moved.world, first, without=["hospital-3"])
    for rotations in ((), (fork,), (newest, newest), (signed(moved.world, newest, by=moved.identity),)):
        assert _greeting(moved, *rotations) == Decline(code="registry-refused")
    assert isinstance(_greeting(moved, newest), Here), "the control"
    assert moved.account() == before


def test_a_registry_that_the_server_did_not_take_up_is_not_believed_in_a_greeting(moved: Stage) -> None:
    """Whoever only brings messages cannot make a client wait for a registry that is not due yet."""
    following = signed(moved.world, current(moved), first_round=1000)
    hello = moved.coordinator.hello
    given = replace(hello, rotations=(*hello.rotations, following.encode()))
    assert moved.ask(given) == Decline(code="server-sig")


def test_a_new_session_under_the_old_registry_is_refused_by_whoever_followed_the_new_one(moved: Stage) -> None:
    fresh = moved.fresh()
    assert fresh.coordinator.registry == moved.world.consortium.registry()
    before = moved.account()
    assert fresh.ask(fresh.coordinator.hello) == Decline(code="registry-refused")
    assert moved.account() == before


# ---------------------------------------- in the middle of a round, and controls
def test_who_signed_a_tag_follows_no_other_registry_before_the_round_ends(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.honest_round()
    following = signed(made.world, current(made))
    made.gather()
    made.publish()
    before = made.account()
    assert not made.coordinator.between_rounds
    assert made.send(to_frame(order(made, following))) == Decline(code="stale-context")
    assert made.account() == before
    made.coordinator.conclude()
    made.close()
    made.coordinator.rotate(following)
    made.honest_round()
    assert made.coordinator.registry == following


def test_who_has_seen_a_newer_registry_takes_no_order_under_the_one_before(tmp_path: Path) -> None:
    """The server tells this client of it, and others not. Put in force, it is followed."""
    made = stage(tmp_path)
    made.honest_round()
    following, before = signed(made.world, current(made)), made.account()
    assert isinstance(_greeting(made, following), Here)
    assert made.send(to_frame(order(made))) == Decline(code="registry-refused")
    assert made.account() == before
    made.coordinator.rotate(following)
    made.honest_round()
    assert made.account()[0] == before[0] + 1


def test_control_who_does_not_remember_registries_is_led_back_to_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = without_the_fifth(tmp_path)
    monkeypatch.setattr(Lineage, "require_newest", lambda _self, _known: None)
    fresh = made.fresh()
    assert isinstance(fresh.ask(fresh.coordinator.hello), Here)
    assert isinstance(fresh.ask(fresh.from_model(fresh.coordinator.model)), Contributed)
