"""A client's folder and the command line, for the tests of the commands that work in one."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from ledger.worlds import round_trip
from lrdp.commands.init import init
from lrdp.commands.ledger import ledger_app, statement
from lrdp.commands.planning import plan
from lrdp.errors import LrdpError
from lrdp.ledger import ReceivedModel, Request, read_policy
from lrdp.ledger.starting import Home

app = typer.Typer()
app.command()(init)
app.command()(plan)
app.command()(statement)
app.add_typer(ledger_app, name="ledger")


class Client:
    """A folder and the command line."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder=folder)

    def run(self, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words])
        problem = result.exception
        if isinstance(problem, LrdpError):
            assert problem.exit_code == code, problem
            return str(problem)
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *words: str) -> dict[str, object]:
        return json.loads(self.run(*words, "--json"))

    def train(self, number: int) -> None:
        rule = read_policy(self.home.policy).mechanism
        asked = Request(
            run="run",
            round=number,
            model=ReceivedModel(digest="0" * 64, size=1, largest_weight=0.0),
            config_digest="1" * 64,
            mechanism=rule.costliest,
            steps=rule.max_steps_per_round,
            clip_norm=rule.clip_norm,
        )
        with self.home.open() as ledger:
            round_trip(ledger, asked)

    def head(self, path: Path) -> Path:
        with self.home.open() as ledger:
            path.write_text(ledger.head().encode())
        return path


def folder(client: Client) -> tuple[str, str]:
    return "--folder", str(client.home.folder)
