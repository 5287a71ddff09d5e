"""A run of a federation for people: a line for each attempt at a round, and the table at its end.

Both are made from the records that ``lrdp run --json`` prints, so that they cannot differ from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from lrdp.figures import AtLeast, AtMost
from lrdp.screen import visible

Record = Mapping[str, Any]


def line(attempt: Record) -> Text:
    """One attempt at a round."""
    again = f", attempt {attempt['attempt']}" if attempt["attempt"] > 1 else ""
    parts = [f"round {attempt['round']:>2}{again}", f"{len(attempt['participants'])} took part"]
    if attempt["away"]:
        parts.append(f"away: {_short(attempt['away'])}")
    killed = attempt["killed"]
    parts += [f"{name} was killed in training: its charge stands" for name in killed]
    parts += [f"{name} refused: {code}" for name, code in attempt["refused"].items() if name not in killed]
    parts.append(f"ε {AtMost(attempt['epsilon_least']):.2f}–{AtMost(attempt['epsilon_most']):.2f}")
    parts.append(f"accuracy {AtLeast(attempt['accuracy']):.0%}")
    verdict, style = ("verified", "green") if attempt["verified"] else (_rejected(attempt), "bold red")
    return Text(visible(" · ".join(parts) + " · ")).append(visible(verdict), style=style)


def _short(names: list[str]) -> str:
    """hospital-a and hospital-b as a, b."""
    return ", ".join(name.rsplit("-", 1)[-1] for name in names)


def _rejected(attempt: Record) -> str:
    """Who refused the sum, and why; or what else went wrong."""
    verdicts = attempt["verdicts"]
    if not verdicts:
        return f"NOT VERIFIED: {attempt['problem']}"
    found = ", ".join(sorted(set(verdicts.values())))
    return f"CAUGHT: {len(verdicts)} of {len(attempt['participants'])} clients find {found}; repeated at no cost"


def table(summary: Record) -> Table:
    """What each client did and spent."""
    result = Table(title="What each client spent, by its own ledger", title_justify="left")
    result.add_column("client", no_wrap=True)
    for heading in ("rounds", "steps", "lost", "ε spent", "of budget"):
        result.add_column(heading, justify="right")
    result.add_column("refused")
    for client in summary["clients"]:
        refused = ", ".join(f"{count} × {reason}" for reason, count in client["refusals"].items())
        cells = (Text(visible(cell)) for cell in (*_cells(client), refused or "–"))
        result.add_row(*cells, style="yellow" if refused else None)
    return result


def _cells(client: Record) -> tuple[str, ...]:
    return (
        client["client"],
        f"{client['rounds']}",
        f"{client['steps']}",
        f"{client['lost']}",
        f"{AtMost(client['epsilon']):.3f}",
        f"{client['budget']}",
    )


def sentences(summary: Record) -> list[str]:
    """What the table does not say."""
    delta = summary["clients"][0]["delta"]
    return [
        f"ε is guaranteed at δ = {delta} under any adaptivity. A lost update was paid for and never sent.",
        f"{summary['rounds_verified']} rounds verified of {summary['rounds_run']} run, in "
        f"{AtMost(summary['seconds']):.0f} s.",
        f"Accuracy on public data: {AtLeast(summary['accuracy_before']):.0%} before, "
        f"{AtLeast(summary['accuracy_after']):.0%} after.",
    ]
