"""``lrdp guard``: a client's own process, to which an app that the server ships can only pass messages on."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lrdp import files
from lrdp.commands.guard_log import GUARD_LOG, ShowLine, log_to, shown
from lrdp.commands.output import say
from lrdp.commands.settings import SettingsOption, read_settings
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost

if TYPE_CHECKING:
    from lrdp.federation.client.guard import Guard
    from lrdp.federation.client.watching import Budgeted

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def guard(
    policy: Annotated[Path, typer.Option(help="The client's policy.toml, next to its ledger and keys.")],
    data: Annotated[Path, typer.Option(help="The client's data: handed to the task's data set as `data`.")],
    socket: Annotated[Path, typer.Option(help="Where to listen, as in /run/lrdp/guard.sock.")],
    code: Annotated[Path | None, typer.Option(help="Folder of the task's module (default: the policy's).")] = None,
    settings: SettingsOption = None,
    group: Annotated[str | None, typer.Option(help="Group whose members may connect (default: nobody else).")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Loopback address for Prometheus, as in 127.0.0.1:9464; local users can read it.")
    ] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(help="The same as a file, for node_exporter's textfile collector: no network needed.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Also append a line for each message to this file.")] = None,
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
    given = {**read_settings(settings or []), "data": str(files.followed(data))}
    log_to(as_json, log)
    # The socket first: whoever connects meanwhile waits, and a path that is taken is found before torch is loaded.
    with told_to_stop() as told, listening(socket, group) as listener, shown(metrics, metrics_file) as show:
        made, budget = _opened(files.followed(policy).parent, code, given, show)
        GUARD_LOG.info(
            f"guarding {budget.client}: ε {AtMost(budget.spent):.2f} of {budget.total} guaranteed, "
            f"{budget.rounds_left} rounds left, socket {socket}",
            extra={"client": budget.client, "spent": budget.spent, "total": budget.total, "socket": str(socket)},
        )
        if budget.unsent:
            GUARD_LOG.info(
                f"{budget.unsent} paid replies were not fetched before: whoever asks again gets them, at no cost",
                extra={"unsent": budget.unsent},
            )
        made.serve(listener, told)
    say("Stopped: nothing is open.")


def _opened(folder: Path, code: Path | None, settings: dict[str, Any], show: ShowLine) -> tuple[Guard, Budgeted]:
    from lrdp.federation.client.guard import Guard, Ward, inspected
    from lrdp.federation.client.home import ClientHome
    from lrdp.federation.client.local_task import prepare_process
    from lrdp.federation.client.participant import Participant
    from lrdp.federation.client.trusted import trusted_task
    from lrdp.federation.client.watching import GuardWatch

    home = ClientHome(folder=folder)
    task = trusted_task(home.policy(), code or folder)
    prepare_process(task)
    bench, budget = inspected(Ward(home=home, task=task, settings=settings))
    _warn_of_open_folder(folder)
    participant = Participant(home, bench)
    return Guard(home, participant, GuardWatch(home, participant, show)), budget


def _warn_of_open_folder(folder: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & _OTHERS:
        GUARD_LOG.warning(
            "%s can be entered by other users (mode %o): close it with chmod 700; run the SuperNode as another user.",
            *(folder, mode),
        )
