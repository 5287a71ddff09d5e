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
from lrdp.federation.server.saved_state import Progress, read_state
from lrdp.federation.wire.masked import AbleToMask, Pledging
from lrdp.federation.wire.questions import Able, CanYou, Contribute, Decline, TrainAhead
from lrdp.integrity.history import walk_history

from .cast import score_of
from .evidence import Evidence
from .losses import (
    every_roster_that_was_given_up_lost_a_member,
    every_sum_that_failed_lost_somebody,
    every_update_that_nobody_saw_has_a_reason,
)
from .schedule import ACTS

FRACTION_BITS = 20
"""Of the fixed point that sessions have by default: an independent reader of sums must know it."""
LEAST = 3


def check(found: Evidence) -> None:
    """All of it."""
    no_round_that_was_reported_is_forgotten(found)
    the_run_came_to_its_end(found)
    every_day_of_the_schedule_came(found)
    budgets_end_where_they_end(found)
    every_kept_model_equals_its_receipt(found)
    models_are_the_first_one_and_the_sums_of_what_was_handed_in(found)
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
    """With every round that was wanted, and one in peace."""
    assert found.notes[-1].get("ended") == 0, (found.folder / "logs" / "server-0").read_text()[-3000:]
    reason = json.loads((found.folder / "ended").read_text())["reason"]
    assert reason == "", f"the run ended early: {reason}"
    assert len(found.receipts) > found.schedule.rounds, f"{len(found.receipts)} rounds were verified"
    verified = [report["model"] for report in found.reports if report["verified"]]
    history = walk_history(found.lines, found.consortium.registry().digest)
    rounds = [step.position.round for step in history if step.participants]
    assert rounds == list(range(1, 1 + len(rounds)))
    # A server may die between a proof and its report; no round is proved twice.
    assert verified == sorted(set(verified))
    assert set(verified) <= set(range(len(rounds)))


def every_day_of_the_schedule_came(found: Evidence) -> None:
    """Each is a registry of the receipts, in their order; who joined or has a new key then takes part, who left not."""
    wanted = [(ACTS[change.act], f"hospital-{change.hospital}") for change in found.schedule.days]
    came = [(what, name) for _, what, name in found.days]
    assert came == wanted, f"{came} came, and {wanted} were to come"
    for rounds, what, name in found.days:
        later = [number for number, (_, receipt) in enumerate(found.receipts) if name in receipt.header.names]
        took_part = any(number >= rounds for number in later)
        assert took_part is (what != "left"), f"{what} after {rounds} rounds: {name} was in {later}"


def budgets_end_where_they_end(found: Evidence) -> None:
    """A founder with budget for less than half of the rounds runs out and says so; nobody says so before, or pays more.

    Whoever joins late may be in too few rounds to run out.
    """
    spent = {each.hospital for each in found.passed if isinstance(each.said, Decline) and each.said.code == "budget"}
    budgets = {f"hospital-{number}": rounds for number, rounds in enumerate(found.schedule.budgets)}
    founders = list(budgets.items())[: found.schedule.founders]
    scarce = {name for name, rounds in founders if 2 * rounds < found.schedule.rounds}
    assert scarce <= spent, f"{scarce - spent} have not run out"
    for name in found.names:
        count = len(found.charges(name))
        assert count <= budgets[name], f"{name} has {count} charges, and budget for {budgets[name]}"
        assert count == budgets[name] or name not in spent, f"{name} has {count} charges, and said that it is spent"


def every_kept_model_equals_its_receipt(found: Evidence) -> None:
    """They are the last and the best."""
    pin, last = found.consortium.registry().digest.hex(), len(found.receipts)
    assert set(found.models) == {last, _progress(found).best}, f"models of rounds {sorted(found.models)} are kept"
    for number, path in found.models.items():
        answer = CliRunner().invoke(app, ["model", "verify", str(path), "--pin", pin, "--json"])
        assert answer.exit_code == 0, f"{path} is not what its receipt says: {answer.output}"
        said = json.loads(answer.stdout)
        assert said["round"] == number, f"{path} is not what its receipt says: it is of another round"
        assert said["model"] == found.receipts[number - 1][1].header.next_model.hex()


def models_are_the_first_one_and_the_sums_of_what_was_handed_in(found: Evidence) -> None:
    """By numpy alone: no code of the library adds anything up here."""
    models = [np.concatenate([array.numpy().ravel() for array in initial().values()])]
    shown = {each.signature: each for each in found.published}
    for _, receipt in found.receipts:
        published = shown[receipt.signature]
        total = np.sum([values for _, values in published.updates.values()], axis=0)
        assert published.total.tolist() == total.astype(np.int32).tolist()  # masks cancel where whole numbers wrap
        moved = models[-1].astype(np.float64) + published.total / (len(published.names) << FRACTION_BITS)
        models.append(moved.astype(np.float32))
    for number, path in found.models.items():
        kept = load_file(path)
        assert np.array_equal(np.concatenate([kept[name].ravel() for name in initial()]), models[number])
    _the_best_is_the_best(found, models)


def _the_best_is_the_best(found: Evidence, models: list[np.ndarray]) -> None:
    """Of those that a server lived to judge."""
    progress = _progress(found)
    assert progress.best is not None
    judged = [report["metrics"]["accuracy"] for report in found.reports if report["verified"]]
    assert len(judged) > 1
    assert progress.score == score_of(models[progress.best])
    # A server may die once it has judged, and before it reports.
    assert max(judged) <= progress.score, "a better one was judged"


def _progress(found: Evidence) -> Progress:
    state = read_state(found.consortium.server_folder)
    assert state is not None
    return state.progress


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
    """It is in a sum that was proved, or it is lost, and there is a reason; the hospital's own books count them all."""
    proved = {receipt.signature for _, receipt in found.receipts}
    every_sum_that_failed_lost_somebody(found)
    every_roster_that_was_given_up_lost_a_member(found)
    for name in found.names:
        charges = found.charges(name)
        counted = {each.updates[name][0] for each in found.published if name in each.names and each.signature in proved}
        assert counted <= {charge.digest for charge in charges}, f"{name} took part without having paid"
        every_update_that_nobody_saw_has_a_reason(found, name)
        _named(found.consortium.client(name), Counter(charge.state.lower() for charge in charges))


def _named(home: ClientHome, states: Counter[str]) -> None:
    """The hospital's own books say of each state how many there are."""
    answer = CliRunner().invoke(app, ["ledger", "show", "--folder", str(home.folder), "--json"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)["charges"]
    assert {state: count for state, count in said.items() if count} == dict(states)


def nobody_was_charged_for_a_round_that_could_not_be(found: Evidence) -> None:
    """Whoever was sent work had said yes to that very order, and with it enough others to make a round."""
    asked: dict[str, bytes] = {}
    able = defaultdict[bytes, set[str]](set)
    for each in found.passed:
        if isinstance(each.said, CanYou):
            asked[each.number] = each.said.signature
        elif isinstance(each.said, Able | AbleToMask):
            able[asked[each.number]].add(each.hospital)
        elif isinstance(each.said, Contribute | Pledging):
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
