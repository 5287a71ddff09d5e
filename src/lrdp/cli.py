"""The command line: which commands there are, and how each of them ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final

import typer

from lrdp.commands import (
    accounting,
    blame,
    experiments,
    founding,
    guard,
    init,
    integrity,
    ledger,
    model,
    planning,
    registry,
    run,
    training,
)
from lrdp.commands.output import print_line, say
from lrdp.commands.streams import streams
from lrdp.errors import InvalidInput, LrdpError
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
    planning.plan,
    training.check,
    guard.guard,
    init.init,
    founding.found,
    ledger.statement,
    integrity.verify,
    blame.blame,
    run.run,
):
    app.command()(command)
app.add_typer(ledger.ledger_app, name="ledger")
app.add_typer(integrity.keys_app, name="keys")
app.add_typer(registry.registry_app, name="registry")
app.add_typer(experiments.experiments_app, name="experiments")
app.add_typer(model.model_app, name="model")


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
    sys.exit(_ended(_spoken))


def _spoken() -> int:
    with streams():
        return _ended(_commanded)


def _commanded() -> int:
    code = int(_commands()(standalone_mode=False) or 0)
    if code == _INTERRUPTED:  # typer's own answer to Ctrl-C, which says nothing
        raise KeyboardInterrupt
    return code


@cache
def _commands() -> Any:
    """Built once in a process: reading what all commands take takes longer than most of them."""
    return typer.main.get_command(app)


def _ended(act: Callable[[], int]) -> int:
    """The exit code of ``act``; a problem, if there is one, is said in a sentence."""
    try:
        return act()
    except _NotUnderstood as problem:
        code, sentence = int(problem.exit_code), problem.format_message()  # none where the help was shown instead
    except LrdpError as problem:
        code, sentence = problem.exit_code, str(problem)
    except OSError as problem:
        code, sentence = InvalidInput.exit_code, _of_files(problem)
    except (typer.Abort, KeyboardInterrupt):
        say("Stopped.")
        return _INTERRUPTED
    if sentence:
        say(f"Error: {sentence}")
    return code


def _of_files(problem: OSError) -> str:
    """The sentence for an error that no command foresaw: it ends like any other."""
    place = problem.filename or problem.filename2 or "a file or a connection"
    return (
        f"{place} cannot be used: {problem.strerror or problem}; nothing more was done, and what was charged or "
        f"written before stands."
    )
