"""A server that has every key of the real one, and asks for what it must not get: it is refused, free of charge.

Each attack is what a competent adversary would send: signed where the protocol wants a signature, and wrong in one
place only. After it the books stand where they stood, and the client goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrdp.federation.wire.questions import Closing, Contribute, Contributed, Count, Counted, Decline
from lrdp.integrity import RoundReceipt, new_identity
from lrdp.integrity.encoding import HASH_SIZE
from lrdp.ledger import read_policy
from lrdp.ledger.starting import Home

from .hostile import HONEST, VICTIM, Stage, change_policy, ordering, raw_order, refused, shown, stage

Attack = Callable[[Stage], Any]
LOOSE = {
    "min_noise_multiplier": "1.2",
    "max_steps_per_round": "4",
    "batch_size": "9",
    "clip_norm": "1.5",
    "max_abs_weight": "1e5",
}


def policy_noise(given: Stage) -> float:
    policy = read_policy(Home(folder=given.world.consortium.client(VICTIM).folder).policy)
    return policy.mechanism.costliest.noise_multiplier


# ---------------------------------------- off-policy orders
OFF_POLICY = [
    ({"noise_multiplier": 0.999}, "noise"),  # a share of the policy's
    ({"noise_multiplier": 1e-5}, "noise"),
    ({"noise_multiplier": 1e-12}, "invalid"),  # no accountant resolves it
    ({"steps": 4}, "steps"),
    ({"steps": 2**62}, "steps"),
    ({"steps": 2**63}, "invalid"),
    ({"batch_size": 9}, "batch-size"),
    ({"batch_size": 99}, "batch-size"),
    ({"batch_size": 100}, "invalid"),  # there is no such mechanism
    ({"batch_size": 2**64 - 1}, "invalid"),
    ({"clip_norm": 1.0000001}, "clip-norm"),
    ({"clip_norm": 1e8}, "clip-norm"),
    ({"clip_norm": 1e300}, "invalid"),
    ({"metrics": ["correct"]}, "metrics"),
    ({"metrics": ["loss", "num-examples"]}, "metrics"),
    ({"metrics": ["../../etc/passwd"]}, "metrics"),
]


@pytest.mark.parametrize(("asked", "code"), OFF_POLICY)
def test_an_order_looser_than_the_policy_is_refused_with_its_reason(
    settled: Stage, asked: dict[str, Any], code: str
) -> None:
    given = dict(asked)
    if "noise_multiplier" in given:
        given["noise_multiplier"] *= policy_noise(settled)
    refused(settled, ordering(settled.invitation(), raw_order(**given)), code)


@pytest.mark.parametrize(
    "asked",
    [{"noise_multiplier": 1.3}, {"steps": 4}, {"batch_size": 9}, {"clip_norm": 1.0000001}],
    ids=lambda asked: next(iter(asked)),
)
def test_control_a_client_with_a_looser_policy_does_release(tmp_path: Path, asked: dict[str, Any]) -> None:
    """The same bytes: it is the policy that refuses them, and not some other mistake in the attack."""
    loose = stage(tmp_path, **LOOSE)
    loose.greet()
    answer = loose.ask(replace(loose.invitation(), order=raw_order(**{"steps": 1, **asked})))
    assert isinstance(answer, Contributed), answer
    assert answer.values


def test_a_count_of_several_steps_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    made = stage(tmp_path, metrics='["correct"]')
    made.greet()
    work = made.invitation()
    assert made.ask(ordering(work, raw_order(metrics=["correct"], steps=3))) == Decline(code="invalid")
    assert made.account() == (0, 0, 0.0)
    counted = made.ask(ordering(work, raw_order(metrics=["correct"])))
    assert isinstance(counted, Counted), counted
    assert made.account()[:2] == (1, 1)


def test_only_a_count_counts(tmp_path: Path) -> None:
    """An order with metrics is no training, and one without is no count: nothing is charged for either."""
    made = stage(tmp_path, metrics='["correct"]')
    made.greet()
    work = made.invitation()
    assert made.ask(replace(work, order=raw_order(metrics=["correct"]))) == Decline(code="invalid")
    assert made.ask(Count(order=HONEST.encode(), signature=b"", since=work.since)) == Decline(code="invalid")
    assert made.account() == (0, 0, 0.0)


NOT_UNDERSTOOD = {
    "noise is NaN": b'{"noise_multiplier":NaN}',
    "noise is infinite": b'{"noise_multiplier":Infinity}',
    "clip norm overflows": b'{"clip_norm":1e999}',
    "clip norm is negative": b'{"clip_norm":-1}',
    "clip norm is zero": b'{"clip_norm":0.0}',
    "rate is negative": b'{"learning_rate":-0.1}',
    "rate is NaN": b'{"learning_rate":NaN}',
    "rate is no float": b'{"learning_rate":1' + b"0" * 400 + b"}",
    "steps are none": b'{"steps":0}',
    "steps are negative": b'{"steps":-3}',
    "steps are a float": b'{"steps":2.0}',
    "steps are true": b'{"steps":true}',
    "steps are text": b'{"steps":"2"}',
    "steps are null": b'{"steps":null}',
    "steps are a list": b'{"steps":[2]}',
    "a key is not known": b'{"steps":2,"seed":4111}',
    "a data set is named": b'{"dataset_size":1000000}',
    "a path is a key": b'{"../../policy.toml":1}',
    "metrics are text": b'{"metrics":"correct"}',
    "metrics hold numbers": b'{"metrics":[1]}',
    "no object": b"[]",
    "no JSON": b"steps=2",
    "no text": b"\xff\xfe\x00",
    "nested deeply": b"[" * 4000,
    "cut short": b'{"steps":',
    "too long": b'{"steps":2}' + b" " * 5000,
}


@pytest.mark.parametrize("order", NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD.keys())
def test_an_order_that_is_not_understood_is_refused_whole(settled: Stage, order: bytes) -> None:
    refused(settled, replace(settled.invitation(), order=order), "invalid")


# ---------------------------------------- rounds, models and histories
def _stale_train(given: Stage) -> Contribute:
    return replace(given.invitation(), invitation=given.signed_train(round=0))


def _future_train(given: Stage) -> Contribute:
    return replace(given.invitation(), invitation=given.signed_train(round=7))


def _forked_train(given: Stage) -> Contribute:
    return replace(given.invitation(), invitation=given.signed_train(tip=bytes(HASH_SIZE)))


def _other_key(given: Stage) -> Contribute:
    return replace(given.invitation(), invitation=given.signed_train(signer=new_identity("server")))


def _two_invited(given: Stage) -> Contribute:
    return replace(given.invitation(), invitation=given.signed_train(invited=tuple(given.names[:2])))


def _not_invited(given: Stage) -> Contribute:
    """Three others, one of them twice, are not three others."""
    invited = ("hospital-1", "hospital-1", "hospital-2")
    return replace(given.invitation(), invitation=given.signed_train(invited=invited))


def _older_model(given: Stage) -> Contribute:
    """The model of the first round, with a TRAIN that is right for this one."""
    old = given.fresh().coordinator.model
    return shown(given.invitation(), model=old.tobytes(), receipts=())


def _own_model(given: Stage) -> Contribute:
    model = given.coordinator.model + np.float32(0.01)
    return shown(given.invitation(), model=model.tobytes())


def _receipt_without_quorum(given: Stage) -> Contribute:
    ended = given.coordinator.history[-1]
    model = (given.coordinator.model * np.float32(2)).tobytes()
    bare: RoundReceipt = replace(ended.receipt, accepts=())
    return shown(given.invitation(), receipts=(bare.encode(),), model=model)


HISTORIES: list[tuple[Attack, str]] = [
    (_stale_train, "stale-context"),
    (_future_train, "stale-context"),
    (_forked_train, "chain-break"),
    (_other_key, "server-sig"),
    (_two_invited, "roster-too-small"),
    (_not_invited, "roster-malformed"),
    (_older_model, "model-mismatch"),
    (_own_model, "model-mismatch"),
    (_receipt_without_quorum, "stale-context"),
    (lambda given: shown(given.invitation(), model=b"\0" * 12), "invalid"),
    (lambda given: shown(given.invitation(), model=b"\0" * 4096), "invalid"),
    (lambda given: replace(given.invitation(), invitation=b"TRAIN"), "malformed"),
    (lambda given: Closing(tags=b""), "behind"),
]


@pytest.mark.parametrize(("attack", "code"), HISTORIES, ids=lambda value: getattr(value, "__name__", None))
def test_another_round_model_or_history_than_the_one_verified_is_refused(
    settled: Stage, attack: Attack, code: str
) -> None:
    refused(settled, attack(settled), code)


WEIGHTS = {np.nan: "invalid", np.inf: "invalid", -np.inf: "invalid", 1.001e4: "model-weights", 3e38: "model-weights"}


@pytest.mark.parametrize(("weight", "code"), WEIGHTS.items())
def test_a_session_that_begins_with_a_broken_model_spends_nothing(tmp_path: Path, weight: float, code: str) -> None:
    made = stage(tmp_path)
    made.greet()
    assert made.ask(_broken(made, weight)) == Decline(code=code)
    assert made.account() == (0, 0, 0.0)
    made.fresh().honest_round()


def _broken(given: Stage, weight: float) -> Contribute:
    model = given.coordinator.model.copy()
    model[3] = weight
    return given.from_model(model)


def test_control_weights_within_a_looser_policy_are_trained_on(tmp_path: Path) -> None:
    made = stage(tmp_path, **LOOSE)
    made.greet()
    assert isinstance(made.ask(_broken(made, 1.001e4)), Contributed)


def test_a_model_larger_than_the_policy_allows_is_refused(tmp_path: Path) -> None:
    made = stage(tmp_path, max_bytes="39")  # the model has ten numbers of four bytes
    made.greet()
    refused_work = made.ask(made.invitation())
    assert refused_work == Decline(code="model-size")
    assert made.account() == (0, 0, 0.0)
    change_policy(made.world, VICTIM, max_bytes="40")
    assert isinstance(made.ask(made.invitation()), Contributed)
