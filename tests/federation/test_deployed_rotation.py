"""Consortium's days behind guards: as threads of this process, and as a deployment of SuperNodes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from local_deployment.deployment import Deployment, Run
from local_deployment.parties import Hospital, Parties, verified
from local_deployment.processes import Processes, free_ports

from lrdp.federation import Node, guarded_client_app
from lrdp.integrity import keys, new_identity

from .guards import guarding
from .rotations import newcomer, replace_key, rotate
from .test_deployment import charged, joining, peopled, stays_behind
from .test_rotation import at_round, participants
from .worlds import World, world

ROUNDS = 6


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lrdp-") as made:
        yield Path(made).resolve()


def put_behind_guard(place: World, number: int, folder: Path, stack: ExitStack) -> None:
    """The app that the server ships is all that it reaches of this hospital."""
    path = folder / f"{number}.sock"
    stack.enter_context(guarding(place.consortium.client(f"hospital-{number}"), path, number))
    place.grid.nodes[1 + number] = Node(guarded_client_app(), {"guard": str(path)})  # type: ignore[index]


def test_members_come_and_go_and_change_keys_behind_guards(folder: Path) -> None:
    place = world(folder, 5, min_roster=3)
    fresh = new_identity("hospital-5")
    with ExitStack() as stack:
        for number in range(5):
            put_behind_guard(place, number, folder, stack)

        def joins_and_leaves() -> None:
            following = rotate(place, without=["hospital-0"], having={"hospital-5": fresh})
            newcomer(place, 5, fresh, following)
            put_behind_guard(place, 5, folder, stack)

        acts: dict[int, Callable[[], object]] = {
            0: joins_and_leaves,
            1: lambda: rotate(place, having={"hospital-2": replace_key(place, "hospital-2")}),
            2: lambda: rotate(place, without=["hospital-3"]),  # its guard goes on, and is asked for nothing
        }
        place.run(4, choose=at_round(acts), min_roster=3)
    zero, one, two, three, four, five = place.names
    assert participants(place) == [
        (zero, one, two, three, four),
        (one, three, four, five),  # hospital-2 has its new key, and waits for the registry
        (one, two, three, four, five),
        (one, two, four, five),
    ]
    assert all(report.verified for report in place.reports)
    assert place.audit().failure is None
    paid = [len(place.books(name).charges.states) for name in place.names]
    assert paid == [1, 4, 3, 3, 4, 3], "each pays for the rounds that it was part of, and for no other"


# --------------------------------------------------------------------------------------------------------- SuperNodes
class Office:
    """Types the commands of the runbook, each registry after the one before."""

    def __init__(self, parties: Parties, processes: Processes) -> None:
        self._parties, self._processes, self._newest = parties, processes, parties.registry

    def rotate(self, *changes: tuple[str, ...]) -> Path:
        key, before = str(self._parties.folder / "consortium.pem"), self._newest
        self._newest = self._parties.folder / f"next-{before.stem}.json"
        path = str(self._newest)
        self._lrdp("registry", "new", path, "--key", key, "--after", str(before))
        for word, *names in changes:
            self._lrdp("registry", word, path, *names)
        self._lrdp("registry", "sign", path, "--key", key)
        self._lrdp("registry", "rotate", path, "--server", str(self._parties.server))
        return self._newest

    def card(self, hospital: Hospital) -> str:
        path = self._parties.folder / f"{hospital.name}-{time.time_ns()}.json"
        path.write_text(self._lrdp("keys", "show", str(hospital.identity), "--json"), encoding="utf-8")
        return str(path)

    def _lrdp(self, *words: str) -> str:
        return self._processes.run("office", ["lrdp", *words])


def until_rounds(deployment: Deployment, processes: Processes, count: int) -> None:
    processes.until(lambda: len(deployment.reports()) >= count, 1500, f"no {count} rounds", but="flwr-run")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_members_come_and_go_and_change_keys_behind_supernodes(folder: Path) -> None:
    parties = peopled(folder, 5)
    zero, one, two, *_ = parties.hospitals
    pin = json.loads(parties.registry.read_text(encoding="utf-8"))["digest"]
    with Processes(folder / "logs") as processes:
        deployment = Deployment(parties, processes, port=free_ports(1)[0], secure=False)
        deployment.start()
        deployment.begin(Run(rounds=ROUNDS, local_steps=2, timeout=600.0))
        office = Office(parties, processes)
        until_rounds(deployment, processes, 1)
        five = joining(parties, 5)
        office.rotate(("remove", zero.name), ("add", office.card(five)))
        deployment.restart(five)
        until_rounds(deployment, processes, 2)
        one.identity.unlink()
        keys.save_identity(new_identity(one.name), one.identity)
        office.rotate(("replace-key", office.card(one)), ("remove", two.name))
        reports = deployment.finish(3000)
        audit = verified(deployment.receipts(), pin, processes)
    assert all(report["verified"] for report in reports)
    assert audit["rounds"] == ROUNDS
    last = reports[-1]["participants"]
    assert {one.name, five.name} <= set(last)
    assert not {zero.name, two.name} & set(last)
    for hospital in (*parties.hospitals, five):
        took_part = [number for number, report in enumerate(reports) if hospital.name in report["participants"]]
        assert [number for number, state in charged(hospital) if state == "SENT"] == took_part
    assert stays_behind(folder) == []
