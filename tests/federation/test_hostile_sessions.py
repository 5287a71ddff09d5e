"""A server that forges sessions, replays messages and sends them out of turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lrdp.codec import NUMBER, pack, unpack
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.questions import Closing, Contribute, Contributed, Decline, Hello, Here, OwnTag
from lrdp.federation.wire.signing import run_identifier, sign_session
from lrdp.integrity import ProofMethod, Registry, Session, new_identity
from lrdp.integrity import registry as registries
from lrdp.integrity.encoding import HASH_SIZE

from .hostile import HONEST, VICTIM, Stage, change_policy, raw_order, refused, stage, standing

Attack = Callable[[Stage], Hello]


# ---------------------------------------- forged sessions
def _proposed(given: Stage, layout: bytes | None = None, **changes: Any) -> Hello:
    """A session that is bound to its layout as the real one is, with changes."""
    described = given.coordinator.layout.described if layout is None else layout
    nonce = bytes(range(HASH_SIZE))
    session: Session = replace(given.session, identifier=run_identifier(nonce, described), **changes)
    signature = sign_session(given.identity, session)
    return Hello(session=session.encode(), nonce=nonce, layout=described, signature=signature)


def _other_registry(given: Stage) -> Hello:
    """All members as they are, signed by a consortium of the adversary's own."""
    consortium = new_identity("consortium")
    unsigned = replace(given.session.registry, consortium=consortium.member.signing_key)
    return _proposed(given, registry=registries.sign_registry(unsigned, consortium))


def _registry_with_sybils(given: Stage) -> Hello:
    """The real registry with members of the adversary's added, under the signature that it had."""
    members = (*given.session.registry.members, new_identity("sybil-1").member, new_identity("sybil-2").member)
    forged: Registry = replace(given.session.registry, members=members)
    return _proposed(given, registry=forged)


def _small_roster(given: Stage) -> Hello:
    """Rosters of two: our own class would not make such parameters, so their bytes are made by hand."""
    hello = _proposed(given)
    label, identifier, key, parameters, registry = unpack(hello.session)
    *kept, _, window = unpack(parameters)
    forged = pack(*kept, NUMBER.write(2), window)
    return replace(hello, session=pack(label, identifier, key, forged, registry))


def _other_server(given: Stage) -> Hello:
    """A key of anybody's: the registry says nothing about servers."""
    return _proposed(given, server_key=new_identity("server").member.signing_key)


def _exact(given: Stage) -> Hello:
    return _proposed(given, parameters=replace(given.session.parameters, method=ProofMethod.EXACT))


def _other_size(given: Stage) -> Hello:
    point = replace(given.session.parameters.point, size=11)
    return _proposed(given, parameters=replace(given.session.parameters, point=point))


def _unbound(given: Stage) -> Hello:
    return replace(_proposed(given), nonce=bytes(HASH_SIZE))


def _layout(*shapes: tuple[str, tuple[int, ...]]) -> Attack:
    return lambda given: _proposed(given, layout=Layout(shapes).described)


SESSIONS: list[tuple[str, Attack, str]] = [
    ("other registry", _other_registry, "registry"),
    ("sybils added", _registry_with_sybils, "registry"),
    ("other server", _other_server, "server"),
    ("rosters of two", _small_roster, "malformed"),
    ("method exact", _exact, "scheme"),
    ("other size", _other_size, "invalid"),
    ("not bound to its layout", _unbound, "invalid"),
    ("a tensor missing", _layout(("weight", (2, 4))), "invalid"),
    ("a tensor more", _layout(("weight", (2, 4)), ("bias", (2,)), ("extra", (1,))), "invalid"),
    ("another order", _layout(("bias", (2,)), ("weight", (2, 4))), "invalid"),
    ("another shape", _layout(("weight", (4, 2)), ("bias", (2,))), "invalid"),
    ("a path for a name", _layout(("../../keys/identity.pem", (2, 4)), ("bias", (2,))), "invalid"),
    ("no layout", lambda given: _proposed(given, layout=json.dumps({"weight": [2, 4]}).encode()), "invalid"),
    ("no session", lambda given: replace(_proposed(given), session=b"../../etc/passwd"), "malformed"),
]


@pytest.mark.parametrize(("attack", "code"), [(a, c) for _, a, c in SESSIONS], ids=[name for name, _, _ in SESSIONS])
def test_a_forged_session_is_not_entered(settled: Stage, attack: Attack, code: str) -> None:
    refused(settled, attack(settled), code)


def test_control_a_client_that_pins_the_other_registry_enters_it(tmp_path: Path) -> None:
    made = stage(tmp_path)
    hello = _other_registry(made)
    digest = Session.decode(hello.session).registry.digest.hex()
    change_policy(made.world, VICTIM, registry_sha256=f'"{digest}"')
    assert isinstance(made.ask(hello), Here)


def test_no_registry_pinned_means_no_session(tmp_path: Path) -> None:
    made = stage(tmp_path, registry_sha256='""')
    assert made.ask(made.coordinator.hello) == Decline(code="registry")


# ---------------------------------------- replays and wrong order
def test_the_same_work_twice_is_paid_once_and_gives_the_same_update(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    work = made.invitation()
    first = made.ask(work)
    paid = made.account()
    for _ in range(5):
        again = made.ask(work)
        assert isinstance(first, Contributed)
        assert isinstance(again, Contributed)
        assert bytes(again.values or b"") == bytes(first.values or b"")
    assert made.account() == paid
    assert paid[0] == 1


def test_a_round_is_charged_twice_at_most_however_many_orders_it_is_given(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    orders = [replace(made.invitation(), order=raw_order(steps=1, learning_rate=rate)) for rate in (0.1, 0.2, 0.3, 0.4)]
    answers = [made.ask(work) for work in orders]
    assert [isinstance(answer, Contributed) for answer in answers] == [True, True, False, False]
    assert answers[2:] == [Decline(code="recharge")] * 2
    assert made.account()[:2] == (2, 2)


def test_greeting_it_again_in_another_session_does_not_give_a_client_its_budget_back(tmp_path: Path) -> None:
    made = stage(tmp_path)
    spent = 0.0
    for _ in range(12):
        made = made.fresh()
        made.greet()
        answer = made.ask(made.invitation())
        now = made.account()[2]
        assert now > spent if isinstance(answer, Contributed) else (answer, now) == (Decline(code="budget"), spent)
        spent = now
    assert answer == Decline(code="budget")
    assert spent <= 8.0


def test_a_session_that_was_left_is_never_entered_again(tmp_path: Path) -> None:
    """Else the server would erase what was verified in it, and have a second history of it verified."""
    made = stage(tmp_path)
    made.honest_round()
    here = made.ask(made.coordinator.hello)
    assert isinstance(here, Here)
    assert here.round == 1
    other = made.fresh()
    other.greet()
    for _ in range(2):
        refused(made, made.coordinator.hello, "left")
    other.honest_round()
    refused(other, made.coordinator.hello, "left")


def test_greeting_a_client_in_the_session_it_is_in_erases_nothing(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    made.gather()
    announcement, _ = made.coordinator.announce()
    steps: list[Any] = [announcement, Closing(tags=b"")]
    for question in steps:
        made.ask(question)
        before = standing(made)
        assert isinstance(made.ask(made.coordinator.hello), Here)
        assert standing(made) == before


def _asked(invitation: bytes) -> Contribute:
    return Contribute(order=HONEST.encode(), signature=b"", invitation=invitation)


def test_an_attempt_with_the_last_number_there_is_does_not_keep_a_client_out(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    made.gather()
    refused(made, _asked(made.signed_train(attempt=2**64 - 1)), "stale-context")
    made.publish()
    made.coordinator.conclude()
    made.close()
    made.honest_round()


def test_messages_out_of_turn_are_refused_and_the_round_goes_on(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.honest_round()
    made.gather()
    announced = made.coordinator.announce()
    announcement, _ = announced
    tags = made.coordinator.history[-1].tags
    late = stage(tmp_path / "late")
    late.greet()
    assert late.ask(announcement) == Decline(code="behind"), "PUBLISH before Work"
    refused(made, Closing(tags=tags), "behind")
    refused(made, replace(announcement, aggregate=None), "shape")
    first, second = made.ask(announcement), made.ask(announcement)
    assert isinstance(first, OwnTag)
    assert first == second, "one word on one attempt"
    made.publish(announced)
    ended = made.coordinator.conclude()
    refused(made, Closing(tags=ended.tags[:-1]), "malformed")
    made.close()
    refused(made, Closing(tags=ended.tags), "behind")
    refused(made, replace(made.invitation(), invitation=made.signed_train(attempt=0, round=1)), "stale-context")
    made.honest_round()


def test_an_attempt_that_was_given_up_is_stale(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    made.gather()
    old, _ = made.coordinator.announce()
    assert isinstance(made.ask(old), OwnTag)
    made.coordinator.give_up()
    made.gather()
    paid = made.account()
    refused(made, old, "stale-context")
    refused(made, _asked(made.signed_train(attempt=0)), "stale-context")
    assert made.account() == paid
    made.publish()
