"""Every attack of the matrix is answered with its own verdict, and every check is needed for one of them by name."""

from __future__ import annotations

from typing import Any

import pytest

from integrity.attacks import ATTACKS
from lrdp.integrity import checks, exact, receipts
from lrdp.integrity.verdicts import Check, Verdict


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name):
    assert ATTACKS[name].run() is ATTACKS[name].expected


# For each check the attack that only this check meets with its verdict.
NEEDED: dict[tuple[Any, ...], Any] = {
    (checks, "TRAIN", "STALE_CONTEXT"): "invite_to_another_round",
    (checks, "TRAIN", "CHAIN_BREAK"): "invite_to_another_history",
    (checks, "TRAIN", "ROSTER_MALFORMED"): "invite_somebody_twice",
    (checks, "TRAIN", "ROSTER_TOO_SMALL"): "invite_too_few",
    (checks, "TRAIN", "ROSTER_UNKNOWN"): "invite_a_stranger",
    (checks, "TRAIN", "EXCLUDED"): "show_an_invitation_of_others",
    (checks, "TRAIN", "SERVER_SIG"): "invite_in_the_servers_name",
    (checks, "PUBLISH", "STALE_CONTEXT"): "replay_publish_in_the_next_round",
    (checks, "PUBLISH", "CHAIN_BREAK"): "fork_the_history",
    (checks, "PUBLISH", "MODEL_MISMATCH"): "start_from_another_model",
    (checks, "PUBLISH", "ROSTER_MALFORMED"): "name_somebody_twice",
    (checks, "PUBLISH", "ROSTER_TOO_SMALL"): "below_the_quorum",
    (checks, "PUBLISH", "ROSTER_UNKNOWN"): "sybil",
    (checks, "PUBLISH", "EXCLUDED"): "omit_an_update_and_claim_a_dropout",
    (checks, "PUBLISH", "OWN_COMMIT_ALTERED"): "use_another_update_that_the_client_signed_in_this_round",
    (checks, "PUBLISH", "PEER_UPDATE_SIG"): "forge_an_absent_client",
    (checks, "PUBLISH", "SHAPE"): "widen_the_aggregate",
    (checks, "PUBLISH", "RANGE"): "one_beyond_the_range",
    (checks, "PUBLISH", "SERVER_SIG"): "alter_the_aggregate_and_not_the_header",
    (checks, "PUBLISH", "NEXT_MODEL_MISMATCH"): "announce_another_next_model",
    (checks, "TAGS", "TAGS_INCOMPLETE"): "drop_a_tag",
    (checks, "TAGS", "TAG_SIG"): "shift_a_tag_by_what_was_added",
    (checks, "TAGS", "SUM_MISMATCH"): "alter_one_coordinate_by_one_quantum",
    (exact, "RELAYED", "SHARE_ALTERED", 0): "exact_alter_a_share_of_an_owner_who_helps",
    (exact, "RELAYED", "SHARE_ALTERED", 1): "exact_alter_a_share",
    (exact, "RELAYED", "SUM_MISMATCH", 2): "exact_alter_one_coordinate_by_one_quantum",
    (receipts, "RECEIPT", "STALE_CONTEXT"): "receipt_of_another_round",
    (receipts, "RECEIPT", "CHAIN_BREAK"): "receipt_of_another_history",
    (receipts, "RECEIPT", "MODEL_MISMATCH"): "receipt_from_another_model",
    (receipts, "RECEIPT", "ROSTER_MALFORMED"): "receipt_that_names_somebody_twice",
    (receipts, "RECEIPT", "ROSTER_TOO_SMALL"): "receipt_of_two",
    (receipts, "RECEIPT", "ROSTER_UNKNOWN"): "receipt_with_a_stranger",
    (receipts, "RECEIPT", "PEER_UPDATE_SIG"): "receipt_with_a_forged_pledge",
    (receipts, "RECEIPT", "SERVER_SIG"): "receipt_that_the_server_did_not_sign",
    (receipts, "RECEIPT", "TAGS_INCOMPLETE"): "receipt_without_a_tag",
    (receipts, "RECEIPT", "TAG_SIG"): "receipt_with_a_forged_tag",
    (receipts, "RECEIPT", "QUORUM_MISSING"): "receipt_that_too_few_accepted",
}


def _index(listed: tuple[Check, ...], verdict: str, *index: int) -> int:
    return index[0] if index else [check.verdict.name for check in listed].index(verdict)


# What comes after one of these takes it for granted: without it a name is looked up that nobody has, or the attack
# itself sees that it went another way.
RESTED_ON: dict[tuple[Any, ...], type[Exception]] = {
    (checks, "PUBLISH", "ROSTER_UNKNOWN"): KeyError,
    (checks, "PUBLISH", "EXCLUDED"): AssertionError,
    (receipts, "RECEIPT", "ROSTER_UNKNOWN"): KeyError,
}


@pytest.mark.parametrize("key", NEEDED, ids=lambda key: f"{key[0].__name__}.{'.'.join(map(str, key[1:]))}")
def test_without_this_check_an_attack_is_no_longer_met(key, monkeypatch):
    module, name, verdict, *index = key
    listed = getattr(module, name)
    at = _index(listed, verdict, *index)
    assert listed[at].verdict is Verdict[verdict]
    monkeypatch.setattr(module, name, (*listed[:at], *listed[at + 1 :]))
    attack = ATTACKS[NEEDED[key]]
    assert attack.expected is listed[at].verdict
    if key in RESTED_ON:
        with pytest.raises(RESTED_ON[key]):
            attack.run()
    else:
        assert attack.run() is not attack.expected


@pytest.mark.parametrize(
    "module_name", [(checks, "TRAIN"), (checks, "PUBLISH"), (checks, "TAGS"), (exact, "RELAYED"), (receipts, "RECEIPT")]
)
def test_every_check_has_its_attack(module_name):
    module, name = module_name
    listed = getattr(module, name)
    covered = {_index(listed, *key[2:]) for key in NEEDED if key[:2] == (module, name)}
    assert covered == set(range(len(listed)))


def test_the_verdicts_come_in_the_order_of_the_specification():
    order = list(Verdict)
    for listed in (checks.PUBLISH, checks.TAGS, receipts.RECEIPT, checks.TRAIN):
        places = [order.index(check.verdict) for check in listed]
        assert places == sorted(places)
    assert order[-1] is Verdict.VERIFIED
