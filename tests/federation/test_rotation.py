"""Consortium's days: members join, leave, are excluded and get new keys while the federation runs.

Who takes part is the consortium's to say. The server brings its word, and every client checks it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lrdp.errors import NoVerifiedRound
from lrdp.federation import VerifiedAverage
from lrdp.federation.server.saved_state import read_state
from lrdp.integrity import Registry, new_identity
from lrdp.integrity.history import walk_history

from .rotations import newcomer, replace_key, rotate, shelf
from .server.test_resuming import Killed, Power
from .worlds import World, initial, world

Act = Callable[[], object]


def at_round(acts: dict[int, Act]) -> Callable[[int, Sequence[str]], Sequence[str]]:
    """Everybody takes part; before round ``number`` + 1 is chosen for, something happens, once."""

    def choose(number: int, names: Sequence[str]) -> Sequence[str]:
        if number in acts:
            acts.pop(number)()
        return names

    return choose


def participants(given: World) -> list[tuple[str, ...]]:
    return [report.participants for report in given.reports]


def lines(given: World) -> list[str]:
    (path,) = given.consortium.server_folder.glob("receipts-*.txt")
    return path.read_text().split()


def test_a_hospital_joins_and_another_leaves_while_the_federation_runs(tmp_path: Path) -> None:
    made = world(tmp_path, 4)
    old, fresh = made.consortium.registry(), new_identity("hospital-4")

    def change() -> None:
        following = rotate(made, without=["hospital-0"], having={"hospital-4": fresh})
        newcomer(made, 4, fresh, following)

    made.run(4, choose=at_round({1: change}))
    four = tuple(made.names[:4])
    assert participants(made)[:2] == [four, four], "what came in the second round counts from the third on"
    assert participants(made)[2:] == [("hospital-1", "hospital-2", "hospital-3", "hospital-4")] * 2
    assert all(report.verified for report in made.reports)
    found = made.audit()
    assert found.failure is None
    assert found.rounds == 4
    assert found.participants["hospital-0"] == found.participants["hospital-4"] == 2
    steps = list(walk_history(lines(made), old.digest))
    versions = [step.position.session.registry.version for step in steps if step.position is not None]
    assert versions == [1, 1, 2, 2, 2], "the change is a line of its own between the rounds"
    assert len(made.books("hospital-0").charges.states) == 2, "whoever left pays nothing more"


@pytest.mark.parametrize("absent", [False, True], ids=["present", "away meanwhile"])
def test_two_changes_at_one_border_are_followed_by_whoever_was_there_and_whoever_was_away(
    tmp_path: Path, absent: bool
) -> None:
    made = world(tmp_path, 4)
    victim = made.node("hospital-3")

    def change() -> None:
        victim.present = not absent
        rotate(made)
        rotate(made)

    def back() -> None:
        victim.present = True

    made.run(5, choose=at_round({0: change, 3: back}))
    assert [report.verified for report in made.reports] == [True] * 5
    assert participants(made)[-1] == tuple(made.names)
    assert (participants(made)[2] == tuple(made.names)) is not absent
    assert made.audit().position is not None
    assert made.audit().position.session.registry.version == 3  # type: ignore[union-attr]


def test_a_hospital_that_lost_its_key_gets_another_and_its_ledger_goes_on(tmp_path: Path) -> None:
    made = world(tmp_path, 4)

    def change() -> None:
        rotate(made, having={"hospital-2": replace_key(made, "hospital-2")})

    made.run(4, choose=at_round({1: change}))
    assert [report.verified for report in made.reports] == [True] * 4
    assert "hospital-2" in made.reports[1].declined or "hospital-2" not in participants(made)[1]
    assert participants(made)[2] == participants(made)[3] == tuple(made.names)
    books = made.books("hospital-2")
    assert len(books.charges.states) == 3, "rounds 1, 3 and 4, in one ledger"
    assert made.audit().participants["hospital-2"] == 3


def test_whoever_keeps_the_old_key_is_no_member_any_more(tmp_path: Path) -> None:
    made = world(tmp_path, 4)
    made.run(3, choose=at_round({1: lambda: rotate(made, having={"hospital-2": new_identity("hospital-2")})}))
    assert [report.verified for report in made.reports] == [True] * 3
    assert participants(made)[2] == ("hospital-0", "hospital-1", "hospital-3")
    assert len(made.books("hospital-2").charges.states) == 2


def test_flowers_log_says_when_a_registry_is_in_force_and_who_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The runbook tells people to wait for this line before they stop a node."""
    made = world(tmp_path, 4)
    with caplog.at_level(logging.INFO, "flwr"):
        made.run(3, choose=at_round({1: lambda: rotate(made, without=["hospital-3"])}))
    (said,) = [each.getMessage() for each in caplog.records if each.name == "flwr" and "in force" in each.getMessage()]
    assert said == "registry 2 is in force from round 3 on · left: hospital-3"


def test_a_registry_waits_for_its_first_round(tmp_path: Path) -> None:
    made = world(tmp_path, 4)
    rotate_at_three = at_round({0: lambda: rotate(made, without=["hospital-3"], first_round=3)})
    made.run(4, choose=rotate_at_three)
    assert [len(names) for names in participants(made)] == [4, 4, 4, 3]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made, coup: coup(by=new_identity("consortium")),
        lambda made, coup: coup(without=["hospital-0", "hospital-1"]),
        lambda made, coup: shelf(made).path(2).write_text("{}"),
    ],
    ids=["another consortium's", "too small", "no registry"],
)
def test_a_server_goes_on_without_a_registry_that_clients_would_refuse(
    tmp_path: Path, spoil: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    made = world(tmp_path, 4)

    def coup(**changes: object) -> Registry:
        return rotate(made, **changes)

    made.run(3, choose=at_round({0: lambda: spoil(made, coup)}))
    assert [report.verified for report in made.reports] == [True] * 3
    assert participants(made)[2] == tuple(made.names)
    named = [record for record in caplog.records if "the next registry is not taken up" in record.getMessage()]
    assert len(named) == 1, "it is named once, and not in every round"


def test_the_next_session_begins_under_the_newest_registry_and_no_client_goes_back(tmp_path: Path) -> None:
    made = world(tmp_path, 5)
    made.run(2, choose=at_round({0: lambda: rotate(made, without=["hospital-4"])}))
    second, third = (made.consortium.folder / name for name in ("server-2", "server-3"))
    for folder in (second, third):
        folder.mkdir()
        for path in made.consortium.server_folder.glob("registry-*.json"):
            shutil.copy(path, folder)
    made.run(1, folder=second)
    assert made.reports[-1].participants == tuple(made.names[:4])
    assert made.reports[-1].verified
    (third / shelf(made).path(2).name).unlink()  # a server that forgot, or pretends to
    before = [len(made.books(name).charges.states) for name in made.names]
    with pytest.raises(NoVerifiedRound, match="0 connected clients"):
        made.strategy(arrival=0.1, folder=third).start(made.grid, initial(), num_rounds=1, timeout=0.1)
    assert [len(made.books(name).charges.states) for name in made.names] == before


def test_a_server_killed_while_it_takes_up_a_registry_goes_on_and_takes_it_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(tmp_path, 4)
    folder = made.consortium.server_folder
    made.run(1)
    rotate(made, without=["hospital-3"])
    power = Power(folder, monkeypatch)
    for power.after in (False, True):
        for write in range(1, 6):
            power.left = write
            with pytest.raises(Killed):
                VerifiedAverage.resume(folder).start(made.grid, num_rounds=50, timeout=5)
    power.left = 0
    tried = read_state(folder).progress.tried  # type: ignore[union-attr]
    VerifiedAverage.resume(folder).start(made.grid, num_rounds=tried + 1, timeout=5)
    found = made.audit()
    assert found.failure is None
    assert found.position is not None
    assert found.position.session.registry.version == 2
    history = walk_history(lines(made), made.consortium.registry().digest)
    versions = [step.position.session.registry.version for step in history]
    assert versions == [1, *[2] * (1 + found.rounds - 1)], "one line for the first round, one for the registry"
    assert found.participants["hospital-3"] == 1
    assert len(made.books("hospital-0").charges.states) == found.rounds, "nobody paid twice for a round"
