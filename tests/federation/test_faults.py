"""Faults of one moment that must not cost a session, a receipt or a hospital's budget: each was found by an attack."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from flwr.app import Message
from typer.testing import CliRunner

from federation.client.test_standing import WHO, entered, same, states_of_rounds
from federation.server.test_confirming import Start, buffered, come_back, in_step, left_after_its_tag
from federation.server.test_resuming import killed_once_its_sum_was_shown
from federation.worlds import TRAINING, World, hospitals, initial, world
from integrity.parties import federation
from lrdp import files
from lrdp.cli import app
from lrdp.errors import LedgerRolledBack
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.opened_books import opened_books
from lrdp.federation.client.standing import Standing
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import OwnTag, read_message

LONG = replace(TRAINING, rounds=60)


def long_world(folder: Path, count: int, **options: object) -> World:
    return world(folder, count, trainings=dict.fromkeys(hospitals(count), LONG), **options)  # type: ignore[arg-type]


def commanded(*words: object) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert not done.exit_code, done.output


def test_a_restored_ledger_pays_for_no_round_that_it_then_refuses(tmp_path: Path) -> None:
    """It numbers its updates from the backup on again, below those that the session had seen."""
    place, monday = long_world(tmp_path, 4), tmp_path / "monday.db"
    folder = place.consortium.client("hospital-1").folder

    def more(rounds: int) -> None:
        place.strategy().start(place.grid, None, num_rounds=rounds, timeout=5)

    place.run(2)
    commanded("ledger", "backup", monday, "--folder", folder)
    more(6)
    (folder / "ledger.db").rename(folder / "damaged.db")
    commanded("ledger", "restore", monday, "--folder", folder)
    more(7)
    assert place.reports[-1].declined == {"hospital-1": "ledger"}
    commanded("ledger", "adopt-head", "--folder", folder)
    before = len(place.books("hospital-1").charges.states)
    more(10)
    assert [report.declined for report in place.reports[-3:]] == [{}] * 3
    assert len(place.books("hospital-1").charges.states) - before == 3, "each of them was paid for once"


@pytest.mark.parametrize("adopted", [False, True])
def test_whoever_lost_what_it_showed_holds_up_no_round(tmp_path: Path, adopted: bool) -> None:
    """The sum that it was part of can never be proved: the others make the round, and it takes part in the next."""
    place, monday = long_world(tmp_path, 4), tmp_path / "monday.db"
    folder = place.consortium.client("hospital-1").folder
    commanded("ledger", "backup", monday, "--folder", folder)
    killed_once_its_sum_was_shown(place)
    place.grid.nodes[4].present = True
    (folder / "ledger.db").unlink()
    commanded("ledger", "restore", monday, "--folder", folder)
    if adopted:
        with pytest.raises(LedgerRolledBack), opened_books(ClientHome(folder=folder), Standing(folder / "session")):
            pytest.fail("a ledger that forgot a charge was opened")
        commanded("ledger", "adopt-head", "--folder", folder)
    place.run(4, patience=0.0)
    assert [report.verified for report in place.reports] == [False, True, True, True]
    assert [report.declined.get("hospital-1") for report in place.reports] == (
        ["update-spent", None, None, None] if adopted else ["ledger", None, "ledger", "ledger"]
    )
    assert ("hospital-1" in place.reports[-1].participants) is adopted
    assert place.audit().failure is None


@pytest.mark.parametrize("start", [in_step, buffered])
def test_a_run_whose_last_round_lacks_its_quorum_is_not_over(tmp_path: Path, start: Start) -> None:
    """Started again, as the log advises, it brings the confirmation home; nothing is trained again."""
    place = left_after_its_tag(tmp_path, 3)
    start(place, 1, None)
    folder = place.consortium.server_folder
    charges = {name: len(place.books(name).charges.states) for name in place.names}
    come_back(place)
    start(place, 1, None)
    (receipts,) = folder.glob("receipts-*")
    assert len(receipts.read_text().split()) == 1 + 1, "the session and its round"
    assert {name: len(place.books(name).charges.states) for name in place.names} == charges


def test_a_count_leaves_a_round_its_renewal(tmp_path: Path) -> None:
    """It is charged to the round after it, where a member that leaves once the sum was shown costs the others one."""
    tags = 0

    def leaving(message: Message) -> Message | None:
        nonlocal tags
        if isinstance(read_message(from_message(message)), OwnTag) and message.metadata.src_node_id == 4:
            tags += 1
            if tags == 2:
                place.grid.nodes[4].present = False
                return None
        return message

    place = long_world(tmp_path, 5, after=leaving)
    for name in place.names:
        policy = place.consortium.client(name).folder / "policy.toml"
        policy.write_text(policy.read_text().replace("metrics = []", 'metrics = ["correct"]'))
    strategy = place.strategy(metrics=("correct",), patience=0.2, arrival=2.0)
    result = strategy.start(place.grid, initial(), num_rounds=8, timeout=5)
    assert not result.reason
    assert sum(report.verified for report in place.reports) >= 4


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("writes", range(4))
def test_wherever_a_client_dies_its_word_for_a_round_is_there_with_the_next_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Without it the server could never show that round to those who were absent."""
    _, tagged, ready = states_of_rounds(federation(3), 1)
    here, really, left = entered(tmp_path), files.replace, [writes]
    here.save(tagged)

    def dying(path: Path, data: bytes, mode: int) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        really(path, data, mode)

    monkeypatch.setattr(files, "replace", dying)
    with suppress(Killed):
        here.accept(ready, b"the word")
    found = Standing(tmp_path)
    assert (same(found.load(WHO), ready), found.accepted()) in ((True, b"the word"), (False, b""))
    assert writes < 2 or found.accepted(), "the control: it is done after a few writes"
