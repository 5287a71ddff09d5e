"""The hospital's days of docs/runbook.md, typed in their order, with rounds in between."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lrdp.errors import BudgetExceeded, LedgerRolledBack, PolicyRefused
from lrdp.ledger import Head, Refusal, verify_export

from .clients import Client

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## The hospital's days\n")[1].split("\n## ")[0]
DAYS = {
    day.split("\n")[0]: "".join(re.findall(r"```bash\n(.*?)```", day, re.DOTALL)) for day in SECTION.split("\n### ")
}


def typed(day: str, folder: Path) -> str:
    """What a shell prints of a day's commands; `lrdp` is this one."""
    shell = f'set -eu -o pipefail; lrdp() {{ "{sys.executable}" -m lrdp "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", shell + DAYS.pop(day)], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (day, done.stdout, done.stderr)
    return done.stdout + done.stderr


def charged(client: Client) -> int:
    return verify_export(client.home.ledger).books.charges.steps


@pytest.mark.timeout(900)
def test_the_hospitals_days(tmp_path: Path) -> None:
    DAYS.pop("", None)
    client, moved = Client(tmp_path / "hospital-a"), Client(tmp_path / "machine-2")
    opened = typed("From a plan to an open budget", tmp_path)
    assert "4 more rounds like the last" in opened
    client.train(1)
    typed("A backup is made", tmp_path)
    client.train(2)
    head = Head.decode(client.head(tmp_path / "head.txt").read_text())  # which the server has
    assert charged(client) == 10
    assert "Restored 5 entries" in typed("The disk is lost", tmp_path)
    with client.home.open() as ledger, pytest.raises(LedgerRolledBack):
        ledger.witness(head)
    with pytest.raises(PolicyRefused):
        client.train(3)
    assert "Charged 5 steps" in typed("What was lost is charged", tmp_path)
    assert charged(client) == 10, "the lost round and the one of the backup"
    for number in (4, 5):
        client.train(number)
    with pytest.raises(BudgetExceeded):
        client.train(6)
    told = typed("The budget is raised", tmp_path)
    assert "counts once `lrdp ledger raise` has signed it" in told
    assert re.search(r"opened with 2\.0 on \d{4}-\d\d-\d\d;\s+raised to 3\.0\s+on", told)
    client.train(6)
    typed("The client moves to another machine", tmp_path)
    assert not client.home.ledger.exists()
    moved.train(7)
    assert "Nothing to do" in typed("A new release is installed", tmp_path)
    typed("A key is replaced", tmp_path)
    typed("A key is lost", tmp_path)
    moved.train(8)
    assert "Closed on" in typed("A participation ends", tmp_path)
    with pytest.raises(PolicyRefused) as caught:
        moved.train(9)
    assert caught.value.refusal is Refusal.CLOSED
    assert verify_export(tmp_path / "final.txt").books.closed is not None
    assert [day for day, commands in DAYS.items() if commands] == [], "a day that nobody tried"
