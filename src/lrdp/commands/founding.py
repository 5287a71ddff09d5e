"""``lrdp found``: a whole consortium for a pilot, in one folder and by one command."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lrdp import files
from lrdp.accounting import Budget, Training
from lrdp.commands.init import (
    RECOMMENDED_SAMPLING,
    BatchRows,
    BudgetDelta,
    CountingOption,
    MechanismOption,
    StepsPerRound,
    recipe,
)
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.own_rules import of_raising
from lrdp.commands.pilot_app import TASK, app_files, task_file
from lrdp.commands.pilot_compose import compose_files
from lrdp.errors import InvalidInput
from lrdp.integrity import FEWEST, require_name
from lrdp.ledger import Scheme

if TYPE_CHECKING:
    from lrdp.federation import CommonRules

_A_FIRST_RUN: Final = 5


def found(
    names: Annotated[list[str], typer.Argument(help="The hospitals, at least three: a-z, 0-9, '.', '_' and '-'.")],
    folder: Annotated[Path, typer.Option(help="A new folder.")] = Path("pilot"),
    unit: Annotated[str, typer.Option(help="Whom the guarantee protects.")] = "person",
    epsilon: Annotated[float, typer.Option(help="The most that each hospital may ever spend.")] = 8.0,
    delta: BudgetDelta = 1e-6,
    dataset_size: Annotated[
        int,
        typer.Option(
            "--dataset-size",
            "-n",
            help="A public bound on each one's records, with one record to spare: the most, or the fewest with "
            "--mechanism fixed-size.",
        ),
    ] = 5000,
    batch_size: BatchRows = 128,
    rounds: Annotated[int, typer.Option(help="Rounds that the budgets have to last for.")] = 50,
    local_steps: StepsPerRound = 39,
    min_roster: Annotated[
        int | None, typer.Option(help="The fewest participants of a round (default: a majority).")
    ] = None,
    mechanism: MechanismOption = RECOMMENDED_SAMPLING,
    accountant: CountingOption = None,
    scheme: Annotated[
        Scheme, typer.Option(help="What the server sees: each noised update (sketch), or their sum alone (exact).")
    ] = Scheme.SKETCH,
    as_json: AsJson = False,
) -> None:
    """Found a consortium for a pilot: keys, a registry, policies with open budgets, a task, an app, compose files.

    Here one person holds all keys. In production nobody does: each hospital, the server and the office make their own.

    Example: lrdp found hospital-0 hospital-1 hospital-2 --folder pilot --dataset-size 5000
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    training = Training(
        dataset_size=dataset_size, batch_size=batch_size, rounds=rounds, local_steps=local_steps, budget=budget
    )
    _require_names(names, min_roster)
    from lrdp.federation import CommonRules, Consortium

    rules = CommonRules(unit=unit, scheme=scheme, recipe=recipe(mechanism, accountant))
    made = _founded(folder, dict.fromkeys(names, training), min_roster, rules)
    with Consortium(folder=folder).client(names[0]).ledger() as ledger:  # all are counted alike
        say(of_raising(ledger.books.rule))
    say("For a pilot: one person holds all keys. In production each hospital, server and office make their own.")
    say(f"Fill in {folder / 'code' / f'{TASK}.py'}: what is trained, and how the records are read.")
    say("Then, for each hospital:")
    for name in names:
        home = folder / "clients" / name
        places = {"--code": folder / "code", "--socket": home / "guard.sock"}
        more = " ".join(f"{option} {quote(str(path))}" for option, path in places.items())
        say(f"  lrdp guard --policy {quote(str(home / 'policy.toml'))} --data DATA {more}")
    say("While these guards run, all the rest is simulated here by (--stream shows it):")
    say(f"  flwr run {quote(str(folder / 'app'))} local --stream --federation-config 'num-supernodes={len(names)}'")
    say(f"In the field each guard has a SuperNode beside it: docs/deployment.md, with the keys in {folder / 'server'}")
    say(f"and {folder / 'registry.json'}.")
    say(
        f"Or all of it in containers: {folder / 'compose' / 'pilot.yaml'} says what has to be beside it, and how the "
        f"two images are built from the release's source archive."
    )
    print_record({**made, "clients": names}, as_json)


def _require_names(names: list[str], min_roster: int | None) -> None:
    for name in names:
        require_name(name)
    if len(set(names)) != len(names) or len(names) < FEWEST:
        raise InvalidInput(
            f"a consortium has at least {FEWEST} hospitals, each with a name of its own, got {', '.join(names)}: of "
            f"two each could subtract itself from the sum; nothing was made."
        )
    if min_roster is not None and not FEWEST <= min_roster <= len(names):
        raise InvalidInput(
            f"--min-roster must lie between {FEWEST} and the {len(names)} hospitals, got {min_roster}: nothing was "
            f"made."
        )


def _founded(
    folder: Path, trainings: dict[str, Training], min_roster: int | None, rules: CommonRules
) -> dict[str, str]:
    """Made beside the folder, and moved there as a whole: if it is cut short, nothing is left that looks founded."""
    from lrdp.federation import found as founded

    if folder.exists():
        raise InvalidInput(f"{folder} exists: a consortium is founded in a new folder, and keys are never overwritten.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as problem:
        raise InvalidInput(f"{folder} cannot be made: {problem.strerror}.") from None
    try:
        made = founded(unfinished, trainings, min_roster=min_roster, task=f"{TASK}:task", rules=rules)
        fewest = min(training.rounds for training in trainings.values())
        _write(unfinished / "code", task_file())
        _write(unfinished / "app", app_files(folder, rules.scheme, min(_A_FIRST_RUN, fewest)))
        _write(unfinished / "compose", compose_files(list(trainings)))
        registry = made.registry().digest.hex()
        unfinished.rename(folder)
    except OSError as problem:
        raise InvalidInput(f"{folder} cannot be made: {problem.strerror}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return {"folder": str(folder), "registry_sha256": registry}


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_new(path, text.encode(), files.PUBLIC)
