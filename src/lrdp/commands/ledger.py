"""Commands of the ledger: ``lrdp init``, ``lrdp ledger …`` and ``lrdp statement``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lrdp import files
from lrdp.accounting import Budget, Training
from lrdp.commands.fleet import print_fleet, reports_in
from lrdp.commands.output import AsJson, print_json, print_page, print_record, say
from lrdp.commands.peers import pinned
from lrdp.errors import InvalidInput
from lrdp.figures import AtLeast, AtMost
from lrdp.ledger import (
    LONGEST_HEAD,
    FleetBooks,
    Head,
    Holder,
    Home,
    Ledger,
    SigningKey,
    Store,
    Summary,
    VerifiedBooks,
    adopt_head,
    check_heads,
    check_key_known,
    fleet_view,
    open_budget,
    peers_lines,
    read_policy,
    replace_key,
    report_of,
    summarize,
    verify_export,
    void,
    write_export,
    write_policy,
)
from lrdp.report import statement_pages
from lrdp.report.statement import Statement, record

ledger_app = typer.Typer(
    name="ledger", help="One client's books: look, verify, hand out, mend.", no_args_is_help=True, add_completion=False
)

Folder = Annotated[Path, typer.Option(help="Where policy.toml, ledger.db and keys/ are.")]
LedgerPath = Annotated[Path | None, typer.Argument(help="A ledger or an export (default: the folder's ledger.db).")]


def init(
    folder: Folder = Path(),
    client: Annotated[str, typer.Option(help="The client's name.")] = "client",
    unit: Annotated[str, typer.Option(help="Whom the guarantee protects.")] = "person",
    rows_per_unit: Annotated[int, typer.Option(help="The most rows that one of them has.")] = 1,
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")] = 8.0,
    delta: Annotated[float, typer.Option(help="Probability that the guarantee may fail.")] = 1e-6,
    dataset_size: Annotated[
        int, typer.Option("--dataset-size", "-n", help="A public lower bound of the records, at least one below.")
    ] = 5000,
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Records per step.")] = 128,
    rounds: Annotated[int, typer.Option(help="Rounds that the budget is to last for.")] = 50,
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
    """
    home = Home(folder=folder)
    name = read_policy(home.policy).identity.client if home.policy.exists() else client
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
        say(f"Opened the budget in {home.ledger}. Move {home.administrator} off this machine: it voids and adopts.")
    print_record(made, as_json)


@ledger_app.command()
def show(path: LedgerPath = None, folder: Folder = Path(), as_json: AsJson = False) -> None:
    """What was spent, what is left, and where every charge stands."""
    summary = summarize(verify_export(path or Home(folder=folder).ledger).books)
    print_record(_figures(summary) if as_json else _in_short(summary), as_json)


@ledger_app.command("verify")
def verify_command(
    path: LedgerPath = None,
    folder: Folder = Path(),
    head: Annotated[list[Path] | None, typer.Option(help="A head that a server or peer holds, in a file.")] = None,
    key: Annotated[str | None, typer.Option(help="The client's public key, as you know it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every entry of a ledger or an export; needs no keys, no policy and no network."""
    where = path or Home(folder=folder).ledger
    verified = verify_export(where)
    check_key_known(verified, key)
    check_heads(where, verified, [_read_head(each) for each in head or []])
    books = verified.books
    signed = verified.head is not None
    say(f"{books.seq} entries, {len(books.charges.states)} charges: all as they were written.")
    if books.clock_fell_at:
        say(f"Note: the clock went back at entry {books.clock_fell_at[0]}; nothing depends on it.")
    record = {
        "ok": True,
        "entries": books.seq,
        "charges": len(books.charges.states),
        "steps": books.charges.steps,
        "signed": signed,
    }
    print_record({**record, "digest": books.digest.hex(), "clock_went_back": len(books.clock_fell_at)}, as_json)


@ledger_app.command("export")
def export_command(
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    folder: Folder = Path(),
    report: Annotated[bool, typer.Option("--report", help="One signed line of sums, without the entries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write all entries and the signed head to a file that anyone can verify."""
    home = Home(folder=folder)
    with home.open() as ledger:
        if report:
            _write_new(path, report_of(ledger.books).signed(SigningKey.read(home.key)) + "\n")
            head = ledger.head()
        else:
            head = write_export(ledger, path)
    print_record({"path": str(path), "entries": head.seq, "head": head.encode()}, as_json)


@ledger_app.command("import")
def import_command(
    files: Annotated[list[Path] | None, typer.Argument(help="Exports, or files of reports, one per line.")] = None,
    fleet: Annotated[Path | None, typer.Option(help="The operator's file: read if there, then written.")] = None,
    count: Annotated[int, typer.Option(help="How many of the next to run out are shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The operator's view: verify what clients report, and show who will run out next."""
    reports = [report for path in files or [] for report in reports_in(path)]
    if reports:
        known = fleet is not None and fleet.exists()
        books = FleetBooks.load(fleet).updated(reports) if fleet is not None and known else FleetBooks.of(reports)
        if fleet is not None:
            books.save(fleet)
    elif fleet is not None:
        books = FleetBooks.load(fleet)
    else:
        raise InvalidInput("there is nothing to show: name exports or reports to import, or a --fleet file.")
    seen = fleet_view(books)
    print_fleet(seen, seen.next_to_run_out(count).tolist(), as_json)


@ledger_app.command("adopt-head")
def adopt_head_command(
    head: Annotated[Path, typer.Argument(help="The head that a server or peer holds, in a file.")],
    administrator_key: Annotated[Path | None, typer.Option(help="The administrator's key.")] = None,
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """After a restored backup or a clone: charge what is missing at the policy's worst case, and go on."""
    home = Home(folder=folder)
    administrator = SigningKey.read(administrator_key or home.administrator)
    with home.open() as ledger:
        adopted = adopt_head(ledger, _read_head(head), administrator)
        summary = summarize(ledger.books)
    say(f"Charged {adopted.steps} steps of the costliest kind; ε left is {AtLeast(summary.left):.4f}.")
    print_record({"steps": adopted.steps, **(_figures(summary) if as_json else _in_short(summary))}, as_json)


@ledger_app.command("void")
def void_command(
    entry: Annotated[int, typer.Argument(help="The entry of the charge.")],
    reason: Annotated[str, typer.Option(help="Why nothing of it left the machine.")],
    administrator_key: Annotated[Path | None, typer.Option(help="The administrator's key.")] = None,
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Sign that nothing of a charge without a reply left the machine; the history stays."""
    home = Home(folder=folder)
    with home.open() as ledger:
        void(ledger, entry, reason, SigningKey.read(administrator_key or home.administrator))
        summary = summarize(ledger.books)
    print_record(_figures(summary) if as_json else _in_short(summary), as_json)


@ledger_app.command("rotate-key")
def rotate_key_command(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Sign with a new key from here on; the old one hands over, in the chain and in every head."""
    home = Home(folder=folder)
    new = replace_key(home)
    say(f"{home.key} is new; the old key is beside it: keep it with the backups from before, off this machine.")
    print_record({"key": new.public, "path": str(home.key)}, as_json)


def statement(
    path: LedgerPath = None,
    folder: Folder = Path(),
    html: Annotated[Path | None, typer.Option(help="Also write one HTML page to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """The privacy statement, filled from the books: text, JSON or HTML."""
    home = Home(folder=folder)
    verified = verify_export(path or home.ledger)
    made = Statement(summary=summarize(verified.books), head=verified.head or _own_head(home, path, verified))
    if html is not None:
        html.write_text(statement_pages.html(made), encoding="utf-8")
        say(f"Wrote {html}.")
    if as_json:
        print_json(record(made))
    else:
        print_page(statement_pages.text(made))


def _own_head(home: Home, path: Path | None, verified: VerifiedBooks) -> Head | None:
    """The head of the folder's own ledger, signed if its key is here; nothing is written."""
    if path is not None or not home.key.exists():
        return None
    policy = summarize(verified.books).policy
    with Ledger(store=Store(home.ledger, read_only=True), policy=policy, key=SigningKey.read(home.key)) as ledger:
        return ledger.head()


def _figures(summary: Summary) -> dict[str, Any]:
    figures = record(Statement(summary=summary))
    figures.pop("points")
    return figures


def _in_short(summary: Summary) -> dict[str, Any]:
    """What a person looks for first."""
    return {
        "client": summary.client,
        "budget": f"ε = {summary.budget.epsilon} at δ = {summary.budget.delta}, {summary.adjacency.value}",
        "guaranteed": f"ε = {AtMost(summary.guaranteed.epsilon):.4f} under any adaptivity",
        "spent": f"ε = {AtMost(summary.spent.epsilon):.4f} had it been fixed in advance",
        "left": f"ε = {AtLeast(summary.left):.4f}, {summary.rounds_left} more rounds like the last",
        "charges": ", ".join(f"{count} {state.value}" for state, count in summary.states.items()) or "none",
        "refused": ", ".join(f"{count} {refusal.value}" for refusal, count in summary.refusals.items()) or "none",
        "adopted": summary.adopted,
        "suspended": "yes: run `lrdp ledger adopt-head`" if summary.suspended else "no",
        "entries": summary.entries,
        "head": summary.digest,
    }


def _read_head(path: Path) -> Head:
    try:
        return Head.decode(files.read(path, LONGEST_HEAD).decode("ascii", "replace"))
    except OSError as problem:
        raise InvalidInput(f"the head {path} cannot be read: {problem.strerror}.") from None


def _write_new(path: Path, text: str) -> None:
    try:
        files.write_new(path, text.encode(), files.PUBLIC)
    except FileExistsError:
        raise InvalidInput(f"there is a file at {path} already: it is not overwritten.") from None
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None
