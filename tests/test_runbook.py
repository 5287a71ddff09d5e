"""docs/runbook.md, run: every command of a section in the order of the page, with a federation that goes on in between.

A section is a heading of the second level, its days are headings of the third. To add one, write it, and say below what
must be true after each of its days.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord

from lrdp.federation import Consortium, InProcessGrid, Node, RoundReport, Terms, VerifiedAverage, private_client_app
from lrdp.integrity import Registry, load_identity, read_registry
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
    """What a shell prints; `lrdp` is this one."""
    shell = (
        f'set -eu -o pipefail; lrdp() {{ "{sys.executable}" -m lrdp "$@"; }}; python() {{ "{sys.executable}" "$@"; }}\n'
    )
    done = subprocess.run(
        ["bash", "-c", shell + commands], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (commands, done.stderr)
    return done.stdout


@dataclass
class Pilot:
    """What `lrdp found` made, with made-up records and a server that runs one round at a time."""

    folder: Path
    reports: list[RoundReport] = field(default_factory=list)

    @property
    def consortium(self) -> Consortium:
        return Consortium(folder=self.folder / "pilot")

    def rounds(self, days: dict[int, Callable[[], object]], count: int) -> None:
        """A session; before each of these rounds, something happens."""
        self._session(self.consortium.server_folder, self.consortium.registry(), _model().state_dict(), days, count)

    def round_again(self, server: str, registry: str, first: str) -> RoundReport:
        """One round of a session that begins in another folder, from a model that was exported."""
        signed = read_registry((self.folder / registry).read_text(encoding="ascii"))
        last = torch.load(self.folder / first, weights_only=True)
        self._session(self.consortium.folder / server, signed, last, {}, 1)
        return self.reports[-1]

    def _session(
        self,
        folder: Path,
        registry: Registry,
        first: Mapping[str, torch.Tensor],
        days: dict[int, Callable[[], object]],
        count: int,
    ) -> None:
        template = str(self.consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml")
        app = private_client_app(policy=template, model=_model, dataset=_records, loss=CrossEntropy(classes=2))
        grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number in range(5)})

        def choose(number: int, names: list[str]) -> list[str]:
            if number in days:
                days.pop(number)()
            return names

        terms = Terms(
            identity=load_identity(folder / "identity.pem"),
            registry=registry,
            folder=folder,
            choose=choose,  # type: ignore[arg-type]
        )
        strategy = VerifiedAverage(terms, self.reports.append)
        strategy.start(grid, ArrayRecord(dict(first)), num_rounds=count, timeout=60)


def _model() -> torch.nn.Module:
    return torch.nn.Linear(4, 2)


def _records(settings: object) -> TensorRecords:
    source = torch.Generator().manual_seed(5)
    return TensorRecords(torch.randn(120, 4, generator=source), torch.randint(0, 2, (120,), generator=source))


def test_every_section_of_the_runbook_has_its_test() -> None:
    elsewhere = {"The hospital's days"}  # tests/commands/test_ledger_days.py
    assert set(sections()) == {"The consortium's days", *elsewhere}
    assert all(commands for days in sections().values() for commands in days.values()), "a day without a command"


@pytest.mark.timeout(1200)
def test_the_consortiums_days(tmp_path: Path) -> None:
    days = sections()["The consortium's days"]
    founded, joins, leaves, replaced, audited, no_server_key, no_office_key = days.values()
    typed(founded, tmp_path)
    pilot = Pilot(tmp_path)
    happening = {
        number: lambda commands=commands: typed(commands, tmp_path)
        for number, commands in enumerate((joins, leaves, replaced))
    }
    pilot.rounds(happening, 4)  # type: ignore[arg-type]
    zero, one, two, three, four = (f"hospital-{number}" for number in range(5))
    assert [report.participants for report in pilot.reports] == [
        (zero, one, two, three),
        (zero, one, two, three, four),
        (zero, three, four),  # hospital-2 has its new key, and waits for the registry
        (zero, two, three, four),
    ]
    assert all(report.verified for report in pilot.reports)
    assert "hospital-4" in typed(audited, tmp_path)
    assert [len(_charges(pilot, name)) for name in (zero, one, two, three, four)] == [4, 2, 3, 4, 3]
    typed(no_server_key, tmp_path)
    again = pilot.round_again("server-2", "pilot/registry.json", "first-2.pt")
    assert (again.participants, again.verified) == ((zero, two, three, four), True)
    typed(no_office_key, tmp_path)
    anew = pilot.round_again("server-3", "founded-again.json", "first-3.pt")
    assert (anew.participants, anew.verified) == ((zero, two, three, four), True)
    assert [len(_charges(pilot, name)) for name in (zero, one, two, three, four)] == [6, 2, 5, 6, 5]


def _charges(pilot: Pilot, name: str) -> Mapping[int, object]:
    with pilot.consortium.client(name).ledger() as ledger:
        return ledger.books.charges.states
