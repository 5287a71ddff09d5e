"""Commands of the ledger: ``lrdp ledger …`` and ``lrdp statement``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from lrdp.commands.fleet import print_fleet, reports_in
from lrdp.commands.integrity import read_hash
from lrdp.commands.ledger_days import backup, close_command, raise_command, restore, upgrade
from lrdp.commands.output import AsJson, print_json, print_page, print_record, say
from lrdp.commands.paths import Folder, read_text, replace, write_new
from lrdp.errors import InvalidInput, LrdpError
from lrdp.figures import AtLeast, AtMost
from lrdp.ledger import (
    LONGEST_HEAD,
    FleetBooks,
    Head,
    Home,
    Ledger,
    Policy,
    SigningKey,
    Store,
    Summary,
    VerifiedBooks,
    adopt_head,
    check_heads,
    check_key_known,
    fleet_view,
    read_policy,
    replace_key,
    report_of,
    summarize,
    verify_export,
    void,
    write_export,
)
from lrdp.report import registry_entry, statement_pages
from lrdp.report.statement import Statement, record
from lrdp.report.statement_points import day

ledger_app = typer.Typer(
    name="ledger",
    help="One client's books: show, verify, raise, back up, repair, close.",
    no_args_is_help=True,
    add_completion=False,
)

LedgerPath = Annotated[Path | None, typer.Argument(help="A ledger or an export (default: the folder's ledger.db).")]


@ledger_app.command()
def show(path: LedgerPath = None, folder: Folder = Path(), as_json: AsJson = False) -> None:
    """What was spent, what is left, and where every charge stands.

    Example: lrdp ledger show --folder hospital-0
    """
    home = Home(folder=folder)
    summary = _summary(home, path, verify_export(path or home.ledger))
    print_record(_figures(summary) if as_json else _in_short(summary), as_json)


@ledger_app.command("verify")
def verify_command(
    path: LedgerPath = None,
    folder: Folder = Path(),
    head: Annotated[list[Path] | None, typer.Option(help="A head that a server or peer holds, in a file.")] = None,
    key: Annotated[str | None, typer.Option(help="The client's public key, as you know it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every entry of a ledger or an export; needs no keys, no policy and no network.

    Example: lrdp ledger verify export.txt --head head.txt
    """
    known = None if key is None else read_hash("--key", key, "it is the client's public key").hex()
    where = path or Home(folder=folder).ledger
    verified = verify_export(where)
    check_key_known(verified, known)
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
    """Write all entries and the signed head to a file that anyone can verify.

    Example: lrdp ledger export export.txt --folder hospital-0
    """
    home = Home(folder=folder)
    with home.open() as ledger:
        if report:
            write_new(path, f"{report_of(ledger.books).signed(SigningKey.read(home.key))}\n".encode())
            head = ledger.head()
        else:
            head = write_export(ledger, path)
    print_record({"path": str(path), "entries": head.seq, "head": head.encode()}, as_json)


@ledger_app.command("import")
def import_command(
    files: Annotated[list[Path] | None, typer.Argument(help="Exports, or files of reports, one per line.")] = None,
    fleet: Annotated[Path | None, typer.Option(help="The operator's file: read if there, then written.")] = None,
    count: Annotated[int, typer.Option(min=1, max=2**31, help="How many of the next to run out are shown.")] = 20,
    as_json: AsJson = False,
) -> None:
    """The operator's view: verify what clients report, and show who will run out next.

    Example: lrdp ledger import export.txt reports.txt --fleet fleet.npz
    """
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
    head: Annotated[
        Path | None,
        typer.Argument(help="A file with a head that a server or peer holds (default: the one that suspended it)."),
    ] = None,
    administrator_key: Annotated[Path | None, typer.Option(help="The administrator's key.")] = None,
    folder: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """After a restored backup or a clone: charge what is missing at the worst case of every policy known, and go on.

    Known are policy.toml, the policies in the books, and what the head says of those up to it.

    A suspended ledger holds the head that stopped it, so that no file is needed.

    Example: lrdp ledger adopt-head --folder hospital-0 --administrator-key administrator.pem
    """
    home = Home(folder=folder)
    administrator = SigningKey.read(administrator_key or home.administrator)
    with home.open() as ledger:
        adopted = adopt_head(ledger, _suspending(ledger) if head is None else _read_head(head), administrator)
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
    """Sign that nothing of a charge without a reply left the machine; the history stays.

    Example: lrdp ledger void 17 --reason "power cut before training" --folder hospital-0
    """
    home = Home(folder=folder)
    with home.open() as ledger:
        void(ledger, entry, reason, SigningKey.read(administrator_key or home.administrator))
        summary = summarize(ledger.books)
    print_record(_figures(summary) if as_json else _in_short(summary), as_json)


@ledger_app.command("rotate-key")
def rotate_key_command(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Sign with a new key from here on; the old one hands over, in the chain and in every head.

    Example: lrdp ledger rotate-key --folder hospital-0
    """
    home = Home(folder=folder)
    new = replace_key(home)
    say(f"{home.key} is new; the old key is beside it: keep it with the backups from before, off this machine.")
    print_record({"key": new.public, "path": str(home.key)}, as_json)


ledger_app.command("raise")(raise_command)
ledger_app.command("close")(close_command)
ledger_app.command("backup")(backup)
ledger_app.command("restore")(restore)
ledger_app.command("upgrade")(upgrade)


def statement(
    path: LedgerPath = None,
    folder: Folder = Path(),
    html: Annotated[Path | None, typer.Option(help="Also write one HTML page to this file.")] = None,
    registry: Annotated[
        bool, typer.Option("--registry", help="The entry for OpenDP's registry of deployments, as JSON.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The privacy statement, filled from the books: text, JSON or HTML.

    Example: lrdp statement --folder hospital-0 --html statement.html
    """
    home = Home(folder=folder)
    verified = verify_export(path or home.ledger)
    head = verified.head or _own_head(home, path, verified)
    made = Statement(summary=_summary(home, path, verified), head=head)
    if html is not None:
        replace(html, statement_pages.html(made).encode())
        say(f"Wrote {html}.")
    if registry:
        print_json(registry_entry.entry(made))
    elif as_json:
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


def _summary(home: Home, path: Path | None, verified: VerifiedBooks) -> Summary:
    """The figures; those of the folder's own ledger follow its policy's file, which counts from the next message on."""
    now: Policy | None = None
    if path is None:
        with suppress(LrdpError):  # a policy that cannot be read is for another command to report
            now = read_policy(home.policy)
    return summarize(verified.books, now)


def _in_short(summary: Summary) -> dict[str, Any]:
    """What a person looks for first."""
    return {
        "client": summary.client,
        "budget": f"ε = {summary.budget.epsilon} at δ = {summary.budget.delta}, {summary.adjacency.value}"
        f"{summary.policy_note}",
        "raised": ", ".join(f"to {each.epsilon} on {day(each.at)}" for each in summary.raises) or "no",
        "guaranteed": f"ε = {AtMost(summary.guaranteed.epsilon):.4f} under any adaptivity",
        "spent": f"ε = {AtMost(summary.spent.epsilon):.4f} had every step been fixed in advance",
        "left": f"ε = {AtLeast(summary.left):.4f}, {summary.rounds_left} more rounds like the last",
        "charges": ", ".join(f"{count} {state.value}" for state, count in summary.states.items()) or "none",
        "refused": ", ".join(f"{count} {refusal.value}" for refusal, count in summary.refusals.items()) or "none",
        "adopted": summary.adopted,
        "closed": "no" if summary.closed is None else f"on {day(summary.closed.at)}: {summary.closed.reason}",
        "suspended": "yes: run `lrdp ledger adopt-head`" if summary.suspended else "no",
        "entries": summary.entries,
        "head": summary.digest,
    }


def _suspending(ledger: Ledger) -> Head:
    """The head that the ledger was shown and stopped at: it is in the books."""
    if ledger.books.suspended is None:
        raise InvalidInput(
            "the ledger is not suspended, so it holds no head to adopt: nothing was charged; name the file of one that "
            "a server or peer holds."
        )
    return ledger.books.suspended


def _read_head(path: Path) -> Head:
    return Head.decode(read_text(path, LONGEST_HEAD))
