"""``lrdp init``: a client's policy, keys and open budget, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lrdp.accounting import Budget, Training
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import Folder
from lrdp.commands.peers import pinned
from lrdp.integrity import keys
from lrdp.ledger import Holder, Home, open_budget, peers_lines, read_policy, write_policy


def init(
    folder: Folder = Path(),
    client: Annotated[
        str, typer.Option(help="The client's name, as in the registry: a-z, 0-9, '.', '_' and '-'.")
    ] = "client",
    unit: Annotated[str, typer.Option(help="Whom the guarantee protects.")] = "person",
    rows_per_unit: Annotated[int, typer.Option(help="The most rows that one of them has.")] = 1,
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")] = 8.0,
    delta: Annotated[float, typer.Option(help="Probability that the guarantee may fail.")] = 1e-6,
    dataset_size: Annotated[
        int,
        typer.Option(
            "--dataset-size", "-n", help="A public lower bound on the number of records, at least one below it."
        ),
    ] = 5000,
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Records per step.")] = 128,
    rounds: Annotated[int, typer.Option(help="Rounds that the budget has to last for.")] = 50,
    local_steps: Annotated[int, typer.Option(help="The most private steps per round.")] = 39,
    registry: Annotated[Path | None, typer.Option(help="The consortium's registry, to pin.")] = None,
    server_key: Annotated[
        list[str] | None, typer.Option(help="A server to pin: its card's file, or its key's 64 digits; repeatable.")
    ] = None,
    min_roster: Annotated[
        int | None, typer.Option(help="The fewest participants of a round (default: a majority of the registry).")
    ] = None,
    policy_only: Annotated[bool, typer.Option("--policy-only", help="Write the policy and stop, to edit it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a policy with every line explained, make keys, and open the budget.

    An existing policy is kept, and its budget is opened as it stands.

    Example: lrdp init --folder hospital-0 --client hospital-0 --registry registry.json --server-key server.json
    """
    home = Home(folder=folder)
    name = read_policy(home.policy).identity.client if home.policy.exists() else client
    keys.require_name(name)
    peers = pinned(name, registry, server_key or [], min_roster)
    if home.policy.exists():
        say(f"{home.policy} is kept as it is.")
        if registry is not None:
            say("These lines would pin what you named:")
            for line in peers_lines(peers).splitlines():
                say(line)
    else:
        training = Training(
            dataset_size=dataset_size,
            batch_size=batch_size,
            rounds=rounds,
            local_steps=local_steps,
            budget=Budget(epsilon=epsilon, delta=delta),
        )
        write_policy(home, Holder(client=client, unit=unit, max_rows_per_unit=rows_per_unit), training, peers)
        say(f"Wrote {home.policy}: read it, every line is explained.")
    made = {"policy": str(home.policy)}
    if not policy_only:
        open_budget(home, rounds).close()
        made |= {"ledger": str(home.ledger), "key": str(home.key), "administrator_key": str(home.administrator)}
        say(f"Opened the budget in {home.ledger}.")
        say(f"Move {home.administrator} off this machine: it can void charges and adopt heads.")
    print_record(made, as_json)
