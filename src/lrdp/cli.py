"""The command line: which commands there are, and how each of them ends."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from lrdp.commands import accounting, experiments, guard, integrity, ledger, run, training
from lrdp.commands.output import print_line, say
from lrdp.errors import LrdpError
from lrdp.version import __version__

_INTERRUPTED: Final = 130
# Every error of usage is one. Its name is not public everywhere: newer typers carry a click of their own.
_NotUnderstood: Final[Any] = typer.BadParameter.mro()[2]

app = typer.Typer(
    name="lrdp",
    help="Private federated learning that a hospital or a bank can trust.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    accounting.epsilon,
    accounting.calibrate,
    accounting.plan,
    training.check,
    guard.guard,
    ledger.init,
    ledger.statement,
    integrity.verify,
    run.run,
):
    app.command()(command)
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(integrity.keys_app, name="keys")
app.add_typer(integrity.registry_app, name="registry")
app.add_typer(experiments.experiments_app, name="experiments")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print_line(__version__)
        context.exit()


def main() -> None:
    """Run the command line; every error ends in one sentence on stderr and its exit code."""
    try:
        code = app(standalone_mode=False)
        if code == _INTERRUPTED:  # typer's own answer to Ctrl-C, without a word
            say("Stopped.")
    except _NotUnderstood as problem:
        if message := problem.format_message():  # none where the help was shown instead
            say(f"Error: {message}")
        code = problem.exit_code
    except LrdpError as problem:
        say(f"Error: {problem}")
        code = problem.exit_code
    except (typer.Abort, KeyboardInterrupt):
        say("Stopped.")
        code = _INTERRUPTED
    sys.exit(code or 0)
