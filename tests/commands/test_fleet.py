"""What an operator is shown of clients, and what is taken for a report."""

import json
from pathlib import Path

import pytest

from lrdp.commands.fleet import print_fleet, reports_in
from lrdp.errors import InvalidInput
from lrdp.ledger import FleetBooks, fleet_view

from .clients import Client, folder


@pytest.fixture
def reports(client: Client, tmp_path: Path) -> Path:
    client.train(1)
    client.run("ledger", "export", str(tmp_path / "reports.txt"), "--report", *folder(client))
    return tmp_path / "reports.txt"


def test_words_and_json_show_the_same_client(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = fleet_view(FleetBooks.of(reports_in(reports)))
    print_fleet(seen, [0], as_json=True)
    (row,) = json.loads(capsys.readouterr().out)["next_to_run_out"]
    print_fleet(seen, [0], as_json=False)
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split()[:2] == [row["client"], str(row["epsilon_budget"])] == ["hospital-a", "8.0"]
    assert shown.out.split()[-1] == str(row["rounds_left"])
    assert "1 clients" not in shown.err


@pytest.mark.parametrize("spoil", [b"\xff", b"\t0", b"\n\n"])
def test_a_file_with_a_line_that_is_no_report_counts_for_nothing(reports: Path, spoil: bytes) -> None:
    reports.write_bytes(reports.read_bytes().rstrip() + spoil + b"\n")
    with pytest.raises(InvalidInput):
        reports_in(reports)


def test_a_ledger_itself_is_no_report(client: Client) -> None:
    with pytest.raises(InvalidInput, match="which is not signed as a whole"):
        reports_in(client.home.ledger)
