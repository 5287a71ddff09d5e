"""``lrdp guard``: a client's own process, to which an app that the server ships can only pass messages on."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lrdp.commands.output import say
from lrdp.commands.settings import Settings, read_settings
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost
from lrdp.screen import visible

if TYPE_CHECKING:
    from lrdp.federation.client.guard import Budgeted, Guard

_LOG: Final = logging.getLogger("lrdp.guard")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FIELDS: Final = ("asked", "answered", "seconds", "client", "spent", "total", "socket", "unsent")


def guard(
    policy: Annotated[Path, typer.Option(help="The client's policy.toml, next to its ledger and keys.")],
    data: Annotated[Path, typer.Option(help="The client's data: handed to the task's data set as `data`.")],
    socket: Annotated[Path, typer.Option(help="Where to listen, as in /run/lrdp/guard.sock.")],
    code: Annotated[Path | None, typer.Option(help="Folder of the policy's [task] (default: the policy's).")] = None,
    settings: Settings = None,
    group: Annotated[str | None, typer.Option(help="Group whose members may connect (default: nobody else).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log one JSON object per line on stdout.")] = False,
) -> None:
    """Hold the data, the keys and the budget, and answer what the server's app passes on, until stopped.

    Example: lrdp guard --policy hospital-0/policy.toml --data records.npz --socket /run/lrdp/guard.sock --group flower
    """
    from lrdp.federation.wire.requirements import require_torch
    from lrdp.federation.wire.sockets import listening, told_to_stop

    require_torch()
    if not data.exists():
        raise InvalidInput(f"there is no data at {data}: name the file or folder that the task reads.")
    if policy.name != "policy.toml":
        raise InvalidInput(f"the policy must be a file policy.toml next to its ledger and keys, got {policy}.")
    given = {**read_settings(settings or []), "data": str(data.resolve())}
    _log_to(as_json)
    # The socket first: whoever connects meanwhile waits, and a path that is taken is found before torch is loaded.
    with told_to_stop() as told, listening(socket, group) as listener:
        made, budget = _opened(policy.resolve().parent, code, given)
        _LOG.info(
            f"guarding {budget.client}: ε {AtMost(budget.spent):.2f} of {budget.total} spent, socket {socket}",
            extra={"client": budget.client, "spent": budget.spent, "total": budget.total, "socket": str(socket)},
        )
        if budget.unsent:
            _LOG.info(
                f"{budget.unsent} paid replies were not fetched before: whoever asks again gets them, at no cost",
                extra={"unsent": budget.unsent},
            )
        made.serve(listener, told)
    say("Stopped: nothing is open.")


def _opened(folder: Path, code: Path | None, settings: dict[str, Any]) -> tuple[Guard, Budgeted]:
    from lrdp.federation.client.guard import Guard, Ward, inspected
    from lrdp.federation.client.home import ClientHome
    from lrdp.federation.client.local_task import prepare_process
    from lrdp.federation.client.participant import Participant
    from lrdp.federation.client.trusted import trusted_task

    home = ClientHome(folder=folder)
    task = trusted_task(home.policy(), code or folder)
    prepare_process(task)
    bench, budget = inspected(Ward(home=home, task=task, settings=settings))
    _warn_of_open_folder(folder)
    return Guard(home, Participant(home, bench)), budget


def _warn_of_open_folder(folder: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & _OTHERS:
        _LOG.warning(
            "%s can be entered by other users (mode %o): close it with chmod 700; run the SuperNode as another user.",
            *(folder, mode),
        )


def _log_to(as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _Lines("%(message)s"))
    logger = logging.getLogger("lrdp")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)


class _Lines(logging.Formatter):
    """For people: what a peer sent is made visible, and a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 — logging's name
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


class _JsonLines(logging.Formatter):
    """What happened, as one object: its sentence, and its figures where it has some."""

    def format(self, record: logging.LogRecord) -> str:
        figures = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        line = {"time": record.created, "level": record.levelname.lower(), "message": record.getMessage(), **figures}
        return json.dumps({**line, "process": os.getpid()})
