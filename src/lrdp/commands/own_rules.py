"""What no plan decides about a client's policy: whose records they are, and what a guard trains on them.

With the pins of :mod:`lrdp.commands.peers` these are options of `lrdp init` and of `lrdp plan --write` alike.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lrdp.accounting import FilterRule
from lrdp.ledger import Clipped

ClientName = Annotated[str, typer.Option(help="The client's name, as in the registry: a-z, 0-9, '.', '_' and '-'.")]
UnitName = Annotated[str, typer.Option(help="Whom the guarantee protects.")]
RowsPerUnit = Annotated[int, typer.Option(help="The most rows that one unit has.")]
ClippedOption = Annotated[
    Clipped, typer.Option(help="Rows each by themselves, or all rows of a unit together: then sizes count units.")
]
TaskName = Annotated[
    str, typer.Option(help="What a guard trains: MODULE:NAME of a LocalTask in the client's own code.")
]


def given(context: typer.Context) -> dict[str, Any]:
    """The options that were typed, by parameter, with their values: a default is not what somebody asked for."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: context.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def of_raising(rule: FilterRule) -> str:
    """Whether a budget that is counted so can be made larger later: it is fixed when the budget is opened."""
    if rule.may_grow:
        return "A larger budget may follow: `lrdp ledger raise` takes it from the policy, with the administrator's key."
    return (
        "A budget of this kind can never be raised, because its rounds are reserved: `lrdp init` and `lrdp found` make "
        "one that can be with `--accountant rdp`."
    )
