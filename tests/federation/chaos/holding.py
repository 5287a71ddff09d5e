"""What must hold of a federation, whoever died in it and whenever."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import numpy as np
from safetensors.numpy import load_file
from typer.testing import CliRunner

from federation.worlds import initial
from lrdp.cli import app
from lrdp.federation.client.catching_up import last_verified
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.standing import Standing
from lrdp.federation.server.saved_state import read_state
from lrdp.federation.wire.questions import Able, CanYou, Contribute, TrainAhead
from lrdp.integrity.history import walk_history

from .evidence import Evidence

FRACTION_BITS = 20
"""Of the fixed point that sessions have by default: an independent reader of sums must know it."""
LEAST = 3


def check(found: Evidence) -> None:
    """All of it."""
    no_round_that_was_reported_is_forgotten(found)
    the_run_came_to_its_end(found)
    the_final_model_equals_its_receipt(found)
    the_model_is_the_first_one_and_the_sums_of_what_was_handed_in(found)
    chains_of_all_clients_agree(found)
    ledgers_verify(found)
    nobody_paid_twice_for_the_same_bytes(found)
    every_charge_has_its_release_or_is_named_lost(found)
    nobody_was_charged_for_a_round_that_could_not_be(found)
    a_servers_death_repeats_one_round_at_the_most(found)
    no_update_stands_in_two_different_sums(found)


def no_round_that_was_reported_is_forgotten(found: Evidence) -> None:
    """It is in the server's state before anybody hears of it; else clients go on to what a server forgot in death."""
    state, verified = read_state(found.consortium.server_folder), 0
    for report in found.reports:
        _still_known(verified, report["model"])
        verified = report["model"] + report["verified"]
    _still_known(verified, 0 if state is None else state.round)


def _still_known(verified: int, stands: int) -> None:
    assert stands >= verified, f"the server reported round {verified} as verified, and forgot it: it stands at {stands}"


def the_run_came_to_its_end(found: Evidence) -> None:
    assert found.notes[-1].get("ended") == 0, (found.folder / "logs" / "server-0").read_text()[-3000:]
    verified = [report["model"] for report in found.reports if report["verified"]]
    history = walk_history(found.lines, found.consortium.registry().digest)
    rounds = [step.position.round for step in history if step.participants]
    assert rounds == list(range(1, 1 + len(rounds)))
    # A server may die between a proof and its report; no round is proved twice.
    assert verified == sorted(set(verified))
    assert set(verified) <= set(range(len(rounds)))


def the_final_model_equals_its_receipt(found: Evidence) -> None:
    last = found.last_model
    pin = found.consortium.registry().digest.hex()
    answer = CliRunner().invoke(app, ["model", "verify", str(last), "--pin", pin, "--json"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)
    assert said["round"] == len(found.receipts)
    assert said["model"] == found.receipts[-1][1].header.next_model.hex()


def the_model_is_the_first_one_and_the_sums_of_what_was_handed_in(found: Evidence) -> None:
    """By numpy alone: no code of the library adds anything up here."""
    model = np.concatenate([array.numpy().ravel() for array in initial().values()])
    shown = {each.signature: each for each in found.published}
    for _, receipt in found.receipts:
        published = shown[receipt.signature]
        total = np.sum([values for _, values in published.updates.values()], axis=0)
        assert published.total.tolist() == total.tolist()
        model = (model.astype(np.float64) + total / (len(published.names) << FRACTION_BITS)).astype(np.float32)
    last = found.last_model
    kept = load_file(last)
    assert np.array_equal(np.concatenate([kept[name].ravel() for name in initial()]), model)


def chains_of_all_clients_agree(found: Evidence) -> None:
    """Each stands somewhere in the one history that the receipts tell; who took part last, and stayed, at its end."""
    tips = {step.position.tip: step.position.round for step in walk_history(found.lines, None)}
    last = found.receipts[-1][1].header.names
    for name in found.names:
        home = found.consortium.client(name)
        state = Standing(home.standing).load(home.identity())
        if state is None:
            assert name not in last
            continue
        position = last_verified(state).position
        if position.round:
            assert tips.get(position.tip) == position.round, f"{name} stands in another history"
        if name in last and name not in found.parted:  # who parts right after a round has not heard that it was proved
            assert position.round == len(found.receipts), f"{name} has not accepted the last round"


def ledgers_verify(found: Evidence) -> None:
    for name in found.names:
        answer = CliRunner().invoke(app, ["ledger", "verify", "--folder", str(found.consortium.client(name).folder)])
        assert answer.exit_code == 0, answer.output


def nobody_paid_twice_for_the_same_bytes(found: Evidence) -> None:
    given = defaultdict[str, set[str]](set)
    for each, digest, _ in found.contributions():
        given[each.hospital].add(digest)
    for name in found.names:
        charges = found.charges(name)
        digests = [charge.digest for charge in charges if charge.digest]
        assert len(digests) == len(set(digests))
        assert given[name] <= set(digests), f"{name} handed out what it had not paid for"
        answered = Counter(charge.key for charge in charges if charge.digest)
        assert all(count == 1 for count in answered.values()), f"{name} paid twice for one request that was answered"


def every_charge_has_its_release_or_is_named_lost(found: Evidence) -> None:
    """It is in a sum that was proved. Or it is lost, and there is a reason: a death of its own, or a roster that fell
    apart after its sum was shown, or a registry that replaced the one it was made under, or the run's last breath."""
    proved = {receipt.signature for _, receipt in found.receipts}
    for name in found.names:
        charges = found.charges(name)
        shown = {each.updates[name][0]: each for each in found.published if name in each.names}
        counted = {digest for digest, each in shown.items() if each.signature in proved}
        assert counted <= {charge.digest for charge in charges}, f"{name} took part without having paid"
        torn = [charge for charge in charges if charge.state == "RESERVED"]
        assert len(torn) <= sum(dead == f"guard-{name.partition('-')[2]}" for dead, _ in found.deaths)
        unseen = Counter(charge.round for charge in charges if charge.digest and charge.digest not in shown)
        for number, lost in unseen.items():
            assert lost <= _reasons(found, name, number), f"{name} lost {lost} charges in round {number} for nothing"
        _named(found.consortium.client(name), Counter(charge.state.lower() for charge in charges))


def _reasons(found: Evidence, name: str, number: int) -> int:
    """How many updates of a round may have been seen by nobody but the server."""
    if found.schedule.buffer:  # it may have waited for long, and one may wait still
        own = {f"{kind}-{name.partition('-')[2]}" for kind in ("guard", "node")}
        return 1 + found.rotations.total() + sum(dead in own for dead, _ in found.deaths)
    last = number == len(found.receipts) and any(at >= number for _, at in found.deaths)
    return _deaths_of(found, name, number) + found.rotations[number] + last


def _named(home: ClientHome, states: Counter[str]) -> None:
    """The hospital's own books say of each state how many there are."""
    answer = CliRunner().invoke(app, ["ledger", "show", "--folder", str(home.folder), "--json"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)["charges"]
    assert {state: count for state, count in said.items() if count} == dict(states)


def _deaths_of(found: Evidence, name: str, number: int) -> int:
    """Of its guard or its node while a round was made; the director looks twenty times a second, so perhaps later."""
    own = {f"{kind}-{name.partition('-')[2]}" for kind in ("guard", "node")}
    return sum(dead in own and number <= at <= number + 1 for dead, at in found.deaths)


def nobody_was_charged_for_a_round_that_could_not_be(found: Evidence) -> None:
    """Whoever was sent work had said yes to that very order, and with it enough others to make a round."""
    asked: dict[str, bytes] = {}
    able = defaultdict[bytes, set[str]](set)
    for each in found.passed:
        if isinstance(each.said, CanYou):
            asked[each.number] = each.said.signature
        elif isinstance(each.said, Able):
            able[asked[each.number]].add(each.hospital)
        elif isinstance(each.said, Contribute):
            assert len(able[each.said.signature]) >= LEAST, f"{each.hospital} was sent work that {able} could do"
            assert each.hospital in able[each.said.signature]
        elif isinstance(each.said, TrainAhead):
            assert each.hospital in able[each.said.signature]


def a_servers_death_repeats_one_round_at_the_most(found: Evidence) -> None:
    """Every life of it begins where the one before was, or after: never at a round that was shown to be proved."""
    lives = defaultdict[int, list[int]](list)
    for each in found.published:
        lives[each.life].append(each.round)
    ended = 0
    for _, rounds in sorted(lives.items()):
        assert rounds == sorted(rounds)
        assert rounds[0] >= ended
        ended = rounds[-1]


def no_update_stands_in_two_different_sums(found: Evidence) -> None:
    """Else whoever saw both would know the difference, which is somebody's update alone."""
    rosters = defaultdict[tuple[str, str], set[tuple[str, ...]]](set)
    for each in found.published:
        for name, (digest, _) in each.updates.items():
            rosters[name, digest].add(each.names)
    assert all(len(shown) == 1 for shown in rosters.values())
