"""Reading what clients report, and printing the operator's view of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lrdp import files
from lrdp.commands.output import print_json, print_line, say
from lrdp.commands.paths import reading
from lrdp.errors import InvalidInput
from lrdp.figures import AtLeast, AtMost, left
from lrdp.ledger import LONGEST_LINE, REPORT_LABEL, FleetView, Report, read_report, report_of, verify_export


def reports_in(path: Path) -> list[Report]:
    """The reports in a file of reports, or the report that a verified export amounts to: all are signed."""
    with reading(path), files.opened(path) as file:
        is_report = file.read(len(REPORT_LABEL)) == REPORT_LABEL.encode()
        file.seek(0)
        if is_report:
            return [read_report(line.decode("ascii", "replace")) for line in files.lines(file, LONGEST_LINE)]
    verified = verify_export(path)
    if verified.head is None:
        raise InvalidInput(
            f"{path} is a ledger, which is not signed as a whole: import what `lrdp ledger export` writes from it."
        )
    return [report_of(verified.books)]


def print_fleet(seen: FleetView, rows: list[int], as_json: bool) -> None:
    """Some clients of a fleet, in the order given."""
    books = seen.books
    shown: list[dict[str, Any]] = [
        {
            "client": str(books.names[row]),
            "epsilon_budget": float(books.epsilons[row]),
            "epsilon_guaranteed": float(seen.guaranteed[row]),
            "epsilon_spent": float(seen.spent[row]),
            "epsilon_left": left(float(books.epsilons[row]), float(seen.guaranteed[row])),
            "rounds_left": int(seen.rounds[row]),
        }
        for row in rows
    ]
    if as_json:
        print_json({"clients": len(books), "next_to_run_out": shown})
        return
    print_line(f"{'client':<24} {'budget':>8} {'used':>8} {'left':>8} {'rounds left':>12}")
    for row in shown:
        used, rest = row["epsilon_guaranteed"], row["epsilon_left"]
        figures = f"{row['epsilon_budget']:>8} {AtMost(used):>8.3f} {AtLeast(rest):>8.3f} {row['rounds_left']:>12}"
        print_line(f"{row['client']:<24} {figures}")
    say(f"{len(books)} {'client' if len(books) == 1 else 'clients'}; those that run out next come first.")
