"""docs/runbook.md, run: every command of a section in the order of the page, with a federation that goes on in between.

A section is a heading of the second level, its days are headings of the third. To add one, write it, and say below what
must be true after each of its days.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, Message

from federation.masked import question_in
from federation.server.test_blaming import lied
from federation.server.test_resuming import Killed
from lrdp.accounting import Budget, Training
from lrdp.federation import (
    CommonRules,
    Consortium,
    InProcessGrid,
    Node,
    RoundReport,
    Terms,
    VerifiedAverage,
    found,
)
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import LocalTask, Workbench
from lrdp.federation.client.participant import Participant
from lrdp.federation.local.in_process import Alter
from lrdp.federation.server.terms import Choose, everybody
from lrdp.federation.wire.flower import answering
from lrdp.federation.wire.questions import Contributed, OwnTag
from lrdp.integrity import Registry, load_identity, read_registry
from lrdp.ledger import RECOMMENDED, verify_export
from lrdp.training import CrossEntropy, TensorRecords

PAGE = Path(__file__).parents[1] / "docs" / "runbook.md"
_BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)


def sections() -> dict[str, dict[str, str]]:
    """The commands of each day, by section."""
    found: dict[str, dict[str, str]] = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, *days = part.split("\n### ")
        found[title.split("\n")[0]] = {day.split("\n")[0]: "".join(_BLOCK.findall(day)) for day in days}
    return found


def typed(commands: str, folder: Path) -> str:
    """All that a shell prints; `lrdp` is this one."""
    shell = (
        f'set -eu -o pipefail; lrdp() {{ "{sys.executable}" -m lrdp "$@"; }}; python() {{ "{sys.executable}" "$@"; }}\n'
    )
    done = subprocess.run(
        ["bash", "-c", shell + commands], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (commands, done.stderr)
    return done.stdout + done.stderr


def honest(message: Message) -> Message | None:
    """Nothing happens on the way."""
    return message


@dataclass
class Pilot:
    """A consortium on disk, with made-up records and a server that runs one round at a time.

    ``happens`` is what becomes of each answer on its way to the server.
    """

    folder: Path
    happens: Alter = honest
    reports: list[RoundReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench = Workbench(TASK, {})  # one for all: the check of a model takes longer than all else
        self.nodes: dict[int, Node] = {}
        self.grid = InProcessGrid(self.nodes, after=self._on_its_way)
        for number, name in enumerate(self.consortium.names()):
            self.start_client(1 + number, self.consortium.client(name).folder)

    def _on_its_way(self, message: Message) -> Message | None:
        return self.happens(message)

    def start_client(self, node: int, folder: Path) -> None:
        """A node, and behind it the client whose folder this is."""
        participant = Participant(ClientHome(folder=folder), self.bench)
        self.nodes[node] = Node(answering(lambda given, _context: participant.handle(given)))

    @property
    def consortium(self) -> Consortium:
        return Consortium(folder=self.folder / "pilot")

    def rounds(self, days: dict[int, Callable[[], object]], count: int) -> None:
        """A session; before each of these rounds, something happens."""

        def choose(number: int, names: Sequence[str]) -> Sequence[str]:
            if number in days:
                days.pop(number)()
            return names

        first = _model().state_dict()
        self._session(self.consortium.server_folder, self.consortium.registry(), first, count, choose)

    def go_on(self, count: int) -> list[RoundReport]:
        """The server is started again: the attempts that it made since, of ``count`` in all."""
        before = len(self.reports)
        resumed = VerifiedAverage.resume(self.consortium.server_folder, self.reports.append)
        resumed.start(self.grid, num_rounds=count, timeout=60)
        return self.reports[before:]

    def round_again(self, server: str, registry: str, first: str) -> RoundReport:
        """One round of a session that begins in another folder, from a model that was exported."""
        signed = read_registry((self.folder / registry).read_text(encoding="ascii"))
        last = torch.load(self.folder / first, weights_only=True)
        self._session(self.consortium.folder / server, signed, last, 1, everybody)
        return self.reports[-1]

    def _session(
        self, folder: Path, registry: Registry, first: Mapping[str, torch.Tensor], count: int, choose: Choose
    ) -> None:
        identity = load_identity(folder / "identity.pem")
        terms = Terms(identity=identity, registry=registry, folder=folder, choose=choose)
        strategy = VerifiedAverage(terms, self.reports.append)
        strategy.start(self.grid, ArrayRecord(dict(first)), num_rounds=count, timeout=60)


def _model() -> torch.nn.Module:
    return torch.nn.Linear(4, 2)


def _records(settings: object) -> TensorRecords:
    source = torch.Generator().manual_seed(5)
    return TensorRecords(torch.randn(120, 4, generator=source), torch.randint(0, 2, (120,), generator=source))


TASK = LocalTask(model=_model, dataset=_records, loss=CrossEntropy(classes=2))


def dies_once_its_sum_was_shown(message: Message) -> Message:
    """The server, before it has anybody's tag."""
    if isinstance(question_in(message), OwnTag):
        raise Killed
    return message


def test_every_section_of_the_runbook_has_its_test() -> None:
    assert set(sections()) == {"The consortium's days", "The hospital's days"}  # all of these: test_ledger_days
    assert all(commands for days in sections().values() for commands in days.values()), "a day without a command"


@pytest.mark.timeout(1200)
def test_the_consortiums_days(tmp_path: Path) -> None:
    days = sections()["The consortium's days"]
    founded, joins, leaves, replaced, died, lied_to, audited, no_server_key, no_office_key = days.values()
    typed(founded, tmp_path)
    pilot = Pilot(tmp_path)
    zero, one, two, three, four = names = [f"hospital-{number}" for number in range(5)]

    def joined() -> None:
        typed(joins, tmp_path)
        pilot.start_client(5, pilot.consortium.client(four).folder)

    pilot.rounds({0: joined, 1: partial(typed, leaves, tmp_path), 2: partial(typed, replaced, tmp_path)}, 4)
    assert [report.participants for report in pilot.reports] == [
        (zero, one, two, three),
        (zero, one, two, three, four),
        (zero, three, four),  # hospital-2 has its new key, and waits for the registry
        (zero, two, three, four),
    ]
    assert all(report.verified for report in pilot.reports)

    pilot.happens = dies_once_its_sum_was_shown
    with pytest.raises(Killed):
        pilot.go_on(5)
    assert re.search(r"^rounds +4$", typed(died, tmp_path), re.MULTILINE)
    assert charges(pilot, names) == [5, 2, 4, 5, 4]
    pilot.happens = honest
    assert [(report.participants, report.verified) for report in pilot.go_on(5)] == [((zero, two, three, four), True)]
    assert charges(pilot, names) == [5, 2, 4, 5, 4], "nobody paid again for the round in which the server died"

    pilot.happens = partial(signs_a_wrong_tag, pilot)
    attempts = pilot.go_on(9)
    assert [report.problem.rpartition(": ")[2] for report in attempts] == ["hospital-4 lied"] * 3 + [""]
    assert attempts[-1].participants == (zero, two, three)
    pilot.happens = honest
    assert "hospital-4 lied" in typed(lied_to, tmp_path)
    (after,) = pilot.go_on(10)
    assert (after.participants, after.verified, after.declined) == ((zero, two, three), True, {})
    assert charges(pilot, names) == [8, 2, 7, 8, 5], "one for what was shown in vain, and one for each round"

    assert "hospital-4" in typed(audited, tmp_path)
    typed(no_server_key, tmp_path)
    again = pilot.round_again("server-2", "pilot/registry.json", "first-2.pt")
    assert (again.participants, again.verified) == ((zero, two, three), True)
    typed(no_office_key, tmp_path)
    anew = pilot.round_again("server-3", "founded-again.json", "first-3.pt")
    assert (anew.participants, anew.verified) == ((zero, two, three), True)
    assert charges(pilot, names) == [10, 2, 9, 10, 5]


def signs_a_wrong_tag(pilot: Pilot, message: Message) -> Message:
    """hospital-4 does, whenever it is asked for one."""
    answer = question_in(message)
    if isinstance(answer, OwnTag) and message.metadata.src_node_id == 5:
        message.content = lied(pilot.consortium.client("hospital-4"), answer)
    return message


def charges(pilot: Pilot, names: Sequence[str]) -> list[int]:
    return [charged(pilot.consortium.client(name).folder) for name in names]


def charged(folder: Path) -> int:
    return len(verify_export(folder / "ledger.db").books.charges.states)


@pytest.mark.timeout(600)
def test_a_hospital_in_a_session_is_restored_and_moves_with_the_ledger_that_it_has_by_default(tmp_path: Path) -> None:
    days, here, safe = sections()["The hospital's days"], tmp_path / "hospital-a", tmp_path / "safe"
    training = Training(
        dataset_size=150, batch_size=8, rounds=12, local_steps=2, budget=Budget(epsilon=8.0, delta=1e-5)
    )
    names = [f"hospital-{number}" for number in range(3)]
    made = found(tmp_path / "pilot", dict.fromkeys(names, training), rules=CommonRules(recipe=RECOMMENDED))
    made.client("hospital-2").folder.rename(here)
    pilot = Pilot(tmp_path)
    pilot.start_client(3, here)
    safe.mkdir(mode=0o700)
    (here / "keys" / "administrator.pem").rename(safe / "administrator.pem")

    pilot.rounds({}, 1)
    typed(days["A backup is made"], tmp_path)
    assert [report.verified for report in pilot.go_on(2)] == [True]
    typed(days["The disk is lost"], tmp_path)
    (refused,) = pilot.go_on(3)
    assert (refused.verified, refused.declined) == (False, {"hospital-2": "ledger"})
    assert charges(pilot, names[:2]) == [2, 2], "a round that cannot be is not paid for"
    assert "Charged 2 steps" in typed(days["What was lost is charged"], tmp_path)
    assert [report.verified for report in pilot.go_on(4)] == [True]
    assert charged(here) == 2, "and the adopted steps, which are no charge of their own"

    pilot.happens = partial(loses_the_update_of, 3)
    (lost,) = pilot.go_on(5)
    assert (lost.verified, charged(here)) == (False, 3)
    pilot.happens = honest
    typed(days["The client moves to another machine"], tmp_path)
    pilot.nodes[3].present = False
    pilot.start_client(4, tmp_path / "machine-2")
    (after,) = pilot.go_on(6)
    assert (after.participants, after.verified, after.declined) == (tuple(names), True, {})
    assert charged(tmp_path / "machine-2") == 3, "what was trained on the old machine was sent from the new one"
    assert [report.verified for report in pilot.go_on(7)] == [True]
    assert charged(tmp_path / "machine-2") == 4
    steps = verify_export(tmp_path / "machine-2" / "ledger.db").books.charges.steps
    assert steps == 2 * (4 + 1), "four rounds, and the one that the backup did not hold"


def loses_the_update_of(node: int, message: Message) -> Message | None:
    """It was trained and paid for, and never arrives."""
    lost = message.metadata.src_node_id == node and isinstance(question_in(message), Contributed)
    return None if lost else message
