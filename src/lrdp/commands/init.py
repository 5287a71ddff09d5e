"""``lrdp init``: a client's policy, keys and open budget, in one folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lrdp.accounting import MECHANISMS, Budget, SizedGaussian, Training
from lrdp.commands.kept_policy import keep, require_rounds
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.own_rules import ClientName, ClippedOption, RowsPerUnit, TaskName, UnitName, given, of_raising
from lrdp.commands.paths import Folder
from lrdp.commands.peers import MinRoster, Pins, RegistryToPin, SchemeOption, ServerKeys, pinned
from lrdp.commands.steps import choices
from lrdp.errors import InvalidInput
from lrdp.federation.client.home import LOCK_FILE, ClientHome
from lrdp.integrity import require_name
from lrdp.ledger import (
    FIXED_SIZE,
    RECOMMENDED,
    BudgetCounting,
    Clipped,
    Holder,
    Home,
    PeersRule,
    PolicyRecipe,
    draft,
    open_budget,
    require_unopened,
    summarize,
    write_draft,
)

_USUAL_ROUNDS: Final = 50

_KINDS: Final = {name: kind for name, kind in MECHANISMS.items() if kind.bounds and issubclass(kind, SizedGaussian)}
Sampling: Final = choices("Sampling", _KINDS)
"""``--mechanism``: what a policy can state."""
RECOMMENDED_SAMPLING: Final = Sampling(RECOMMENDED.kind.name)
MechanismOption = Annotated[Sampling, typer.Option("--mechanism", help="How batches are drawn.")]  # type: ignore[valid-type]
BudgetDelta = Annotated[float, typer.Option(help="Probability that the guarantee may fail.")]
BatchRows = Annotated[int, typer.Option("--batch-size", "-b", help="Rows that a step holds in memory.")]
StepsPerRound = Annotated[int, typer.Option(help="The most private steps per round.")]
CountingOption = Annotated[
    BudgetCounting | None,
    typer.Option(
        "--accountant",
        help="pld reserves rounds of exactly one step; rdp counts any, and can be raised (default: rdp for "
        "fixed-size, else pld).",
    ),
]


def recipe(mechanism: str, accountant: BudgetCounting | None) -> PolicyRecipe:
    """The kind of step, and how it is counted: as a plan would recommend unless something else was asked for."""
    kind = _KINDS[mechanism]
    usual = FIXED_SIZE if kind is FIXED_SIZE.kind else RECOMMENDED
    return PolicyRecipe(kind, accountant or usual.counting)


def init(
    context: typer.Context,
    folder: Folder = Path(),
    client: ClientName = "client",
    unit: UnitName = "person",
    rows_per_unit: RowsPerUnit = 1,
    clipped: ClippedOption = Clipped.ROWS,
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")] = 8.0,
    delta: BudgetDelta = 1e-6,
    dataset_size: Annotated[
        int,
        typer.Option(
            "--dataset-size",
            "-n",
            help="A public bound on the number of records, with all rows of one unit to spare: the most, or the fewest "
            "with --mechanism fixed-size.",
        ),
    ] = 5000,
    batch_size: BatchRows = 128,
    rounds: Annotated[
        int | None,
        typer.Option(help="Rounds that the budget has to last for (default: 50, or what the policy affords)."),
    ] = None,
    local_steps: StepsPerRound = 39,
    mechanism: MechanismOption = RECOMMENDED_SAMPLING,
    accountant: CountingOption = None,
    registry: RegistryToPin = None,
    server_key: ServerKeys = None,
    min_roster: MinRoster = None,
    scheme: SchemeOption = None,
    task: TaskName = "",
    policy_only: Annotated[bool, typer.Option("--policy-only", help="Write the policy and stop, to edit it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a policy with every line explained, make keys, and open the budget.

    An existing policy is kept, and its budget is opened as it stands; not, if it contradicts an option that is given.

    Example: lrdp init --client hospital-a --unit patient --dataset-size 30000
    """
    home, pins = Home(folder=folder), Pins(registry, server_key, min_roster, scheme)
    kept = home.policy.exists()
    if not policy_only:
        require_unopened(home)
        _require_no_session(home)
    if kept:
        keep(home.policy, given(context), pins)
    else:
        require_name(client)
        training = Training(
            dataset_size=dataset_size,
            batch_size=batch_size,
            rounds=_USUAL_ROUNDS if rounds is None else rounds,
            local_steps=local_steps,
            budget=Budget(epsilon=epsilon, delta=delta),
        )
        holder = Holder(client=client, unit=unit, max_rows_per_unit=rows_per_unit, clipped=clipped)
        peers = pinned(client, pins, PeersRule())
        write_draft(home, replace(draft(holder, training, peers, recipe(mechanism, accountant)), task=task))
        say(f"Wrote {home.policy}: read it, every line is explained.")
    opened = {} if policy_only else _opened(home, rounds if kept else None)
    print_record({"policy": str(home.policy), **opened}, as_json)


def _require_no_session(home: Home) -> None:
    """Whoever was in a federation has a ledger, and one that is lost is restored: a second one would start at zero."""
    session = ClientHome(folder=home.folder).standing
    if _was_entered(session):
        raise InvalidInput(
            f"{session} is here, so this client had a ledger, and what it spent counts: restore the backup with "
            f"`lrdp ledger restore` and adopt the last head. No budget was opened. If these are other records than "
            f"before, of nobody who was in those, open their budget in a folder of their own."
        )


def _was_entered(session: Path) -> bool:
    """Whether anything was kept there: a client that was started before its policy was written leaves a lock alone."""
    try:
        return {path.name for path in session.iterdir()} != {LOCK_FILE}
    except FileNotFoundError:
        return False
    except OSError:
        return True  # what cannot be read may hold a place


def _opened(home: Home, rounds: int | None) -> dict[str, Any]:
    """Open the budget, for at least that many rounds; returns for how many, and what was made."""
    if rounds is not None:
        require_rounds(home.policy, rounds)
    with open_budget(home, rounds) as ledger:
        lasts = summarize(ledger.books).rounds_left
        rule = ledger.books.rule
    say(f"Opened the budget in {home.ledger}: it lasts for {lasts} rounds of the costliest kind.")
    say(of_raising(rule))
    say(f"Move {home.administrator} off this machine: it can void charges, adopt heads and close the ledger.")
    return {
        "rounds": lasts,
        "ledger": str(home.ledger),
        "key": str(home.key),
        "administrator_key": str(home.administrator),
    }
