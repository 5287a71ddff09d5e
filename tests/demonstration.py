"""What ``lrdp run --json`` printed, beside the ledgers and receipts that it left."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrdp.accounting import Adjacency, Mechanism, RenyiAccountant
from lrdp.federation import Consortium
from lrdp.integrity.history import audit_history
from lrdp.ledger import Books


@dataclass(frozen=True)
class Demonstration:
    """The attempts at rounds, the summary, and the consortium on disk."""

    attempts: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def consortium(self) -> Consortium:
        return Consortium(folder=Path(self.summary["folder"]))

    def client(self, name: str) -> dict[str, Any]:
        (found,) = [client for client in self.summary["clients"] if client["client"] == name]
        return found

    def books(self, name: str) -> Books:
        with self.consortium.client(name).ledger() as ledger:
            return ledger.books


def demonstration(options: str, folder: Path) -> Demonstration:
    """Run the command; every line on stdout must be JSON, and stderr empty."""
    words = [sys.executable, "-m", "lrdp", "run", "--json", "--folder", str(folder), *options.split()]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    *attempts, summary = map(json.loads, ended.stdout.splitlines())
    return Demonstration(attempts, summary)


def check_shape(shown: Demonstration) -> None:
    assert {attempt["kind"] for attempt in shown.attempts} == {"round"}
    assert shown.summary["kind"] == "summary"
    assert len(shown.attempts) == shown.summary["rounds_run"]
    for attempt in shown.attempts:
        assert attempt["epsilon_least"] <= attempt["epsilon_most"]
        assert 0 <= attempt["accuracy"] <= 1
    assert shown.attempts[-1]["accuracy"] == shown.summary["accuracy_after"]
    assert (Path(shown.summary["logs"]) / "clients.log").exists()


def check_spending(shown: Demonstration, local_steps: int) -> None:
    """Each ε is the ledger's own, and the accountant's for exactly the steps that were taken."""
    accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    for client in shown.summary["clients"]:
        home = shown.consortium.client(client["client"])
        with home.ledger() as ledger:
            answer, charges = ledger.answer(), len(ledger.books.charges.states)
        assert client["epsilon"] == answer.guaranteed.epsilon <= client["budget"]
        assert client["epsilon_fixed"] == answer.spent.epsilon
        # What was resent in a repeated round was not paid for again.
        assert charges == client["charges"] == client["rounds"] + client["lost"]
        assert client["steps"] == charges * local_steps
        history: dict[Mechanism, int] = {home.policy().mechanism.costliest: charges * local_steps}
        computed = accountant.epsilon(history, client["delta"]).epsilon
        assert client["epsilon_fixed"] == min(computed, client["epsilon"])


def check_receipts(shown: Demonstration) -> None:
    """An auditor who pinned the registry finds every verified round, and who took part in it."""
    summary = shown.summary
    found = audit_history(Path(summary["receipts"]).read_text().split(), bytes.fromhex(summary["registry_sha256"]))
    assert found.failure is None
    assert found.rounds == summary["rounds_verified"] == sum(attempt["verified"] for attempt in shown.attempts)
    assert found.participants == {client["client"]: client["rounds"] for client in summary["clients"]}


def check_caught(shown: Demonstration) -> None:
    """One attempt was refused by all of its participants, and was repeated by the same ones at no cost."""
    places = [place for place, attempt in enumerate(shown.attempts) if not attempt["verified"]]
    assert len(places) == 1
    cheated, repeated = shown.attempts[places[0] : places[0] + 2]
    assert cheated["verdicts"] == dict.fromkeys(cheated["participants"], "sum-mismatch")
    assert (repeated["round"], repeated["attempt"]) == (cheated["round"], 2)
    assert repeated["participants"] == cheated["participants"]
    for figure in ("epsilon_least", "epsilon_most"):
        assert repeated[figure] == cheated[figure]


def check_exhausted(shown: Demonstration, name: str, charges: int) -> None:
    """It refused once, spent nothing then or later, and was not asked again."""
    (refusing,) = [place for place, attempt in enumerate(shown.attempts) if name in attempt["refused"]]
    assert shown.attempts[refusing]["refused"][name] == "budget"
    assert all(name not in attempt["participants"] for attempt in shown.attempts[refusing:])
    assert shown.client(name)["refusals"] == {"budget": 1}
    assert len(shown.books(name).charges.states) == charges
