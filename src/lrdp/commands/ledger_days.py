"""A ledger's special days: ``lrdp ledger raise``, ``close``, ``backup``, ``restore`` and ``upgrade``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import Folder
from lrdp.errors import InvalidInput, LedgerUnwritable
from lrdp.figures import AtLeast
from lrdp.ledger import (
    Home,
    SigningKey,
    Store,
    check_key_known,
    end_participation,
    raise_budget,
    summarize,
    verify_export,
)

AdministratorKey = Annotated[Path | None, typer.Option(help="The administrator's key.")]


def raise_command(
    reason: Annotated[str, typer.Option(help="Why more may be spent: it stands in every statement.")],
    administrator_key: AdministratorKey = None,
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Sign that the budget is what policy.toml now states, which is more; the statement shows both.

    The policy alone raises nothing: change epsilon (and per_run_epsilon) there first, then sign.

    Example: lrdp ledger raise --reason "second study approved" --folder hospital-0
    """
    home = Home(folder=folder)
    administrator = SigningKey.read(administrator_key or home.administrator)
    with home.open() as ledger:
        before = ledger.books.budget.epsilon
        raised = raise_budget(ledger, reason, administrator)
        summary = summarize(ledger.books)
    say(f"The budget was ε = {before} and is ε = {raised.epsilon}; ε left is {AtLeast(summary.left):.4f}.")
    print_record(
        {"before": before, "epsilon": raised.epsilon, "left": summary.left, "rounds_left": summary.rounds_left}, as_json
    )


def close_command(
    reason: Annotated[str, typer.Option(help="Why the participation ends: it stands in every statement.")],
    administrator_key: AdministratorKey = None,
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """End the participation: every request is refused from here on, for good. What was spent stays in the books.

    Example: lrdp ledger close --reason "the study has ended" --folder hospital-0
    """
    home = Home(folder=folder)
    administrator = SigningKey.read(administrator_key or home.administrator)
    with home.open() as ledger:
        end_participation(ledger, reason, administrator)
        entries = ledger.books.seq
    say("Closed: keep the ledger and its last statement as long as the records exist, for their ε stays spent.")
    print_record({"closed": True, "entries": entries}, as_json)


def backup(
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a consistent copy of the ledger, even while a client is charging it; keys and policy are not in it.

    Example: lrdp ledger backup ledger-monday.db --folder hospital-0
    """
    source = Home(folder=folder).ledger
    verify_export(source)
    try:
        _copy(source, path)
    except LedgerUnwritable as problem:
        raise InvalidInput(f"no backup was written: {problem}") from None
    books = verify_export(path).books
    say(f"Wrote {path}: {books.seq} entries, all as they were written. Charges from now on are not in it.")
    print_record({"path": str(path), "entries": books.seq, "digest": books.digest.hex()}, as_json)


def restore(
    path: Annotated[Path, typer.Argument(help="What `lrdp ledger backup` wrote.")],
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of a lost ledger; what was charged since is missing, and must be adopted.

    Example: lrdp ledger restore ledger-monday.db --folder hospital-0
    """
    home = Home(folder=folder)
    if home.ledger.exists():
        raise InvalidInput(
            f"there is a ledger at {home.ledger}: it is not overwritten, because it may know of charges that the "
            f"backup does not; move it away first if it is damaged."
        )
    verified = verify_export(path)
    if verified.head is not None:
        raise InvalidInput(f"{path} is an export, which holds no replies: restore what `lrdp ledger backup` wrote.")
    check_key_known(verified, SigningKey.read(home.key).public)
    _copy(path, home.ledger)
    books = verified.books
    say(
        f"Restored {books.seq} entries. Whatever was charged after the backup is missing from them: the first newer "
        f"head that it is shown, by its own session/head, a server or a peer, stops this ledger; then `lrdp ledger "
        f"adopt-head` charges what is missing."
    )
    print_record({"path": str(home.ledger), "entries": books.seq, "digest": books.digest.hex()}, as_json)


def upgrade(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Bring a ledger of an earlier release to this one's format; there is one format so far.

    Example: lrdp ledger upgrade --folder hospital-0
    """
    books = verify_export(Home(folder=folder).ledger).books
    say(f"Nothing to do: the ledger is of format {books.opened.format}, which this release reads and writes.")
    print_record({"format": books.opened.format, "changed": False, "entries": books.seq}, as_json)


def _copy(source: Path, target: Path) -> None:
    with closing(Store(source, read_only=True)) as store:
        store.copy_to(target)
