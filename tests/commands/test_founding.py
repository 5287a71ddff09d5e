"""`lrdp found` says what holds for the budgets that it opens; what it makes is used in tests/test_runbook.py."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lrdp.cli import app
from lrdp.federation import Consortium

SMALL = ("-n", "300", "-b", "16", "--rounds", "2", "--local-steps", "1")


@pytest.mark.parametrize(("accountant", "words"), [("pld", "can never be raised"), ("rdp", "`lrdp ledger raise`")])
def test_it_is_said_whether_the_budgets_can_be_raised(tmp_path: Path, accountant: str, words: str) -> None:
    folder = tmp_path / "pilot"
    line = ("a", "b", "c", "--folder", str(folder), *SMALL, "--accountant", accountant)
    ended = CliRunner().invoke(app, ["found", *line])
    assert ended.exit_code == 0, ended.output
    assert words in ended.stderr
    for name in "abc":
        with Consortium(folder=folder).client(name).ledger() as ledger:
            assert ledger.books.rule.may_grow == (accountant == "rdp")
