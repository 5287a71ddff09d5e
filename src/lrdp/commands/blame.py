"""``lrdp blame``: who lied in a round whose tags did not add up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lrdp.commands.integrity import read_lines, read_pin
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import reading
from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation.wire.requirements import require_model_files
from lrdp.integrity import Session, Verdict, judged, rejection, walk_history

if TYPE_CHECKING:
    from lrdp.integrity import FailedRound


def blame(
    case: Annotated[Path, typer.Argument(help="A case-….safetensors of a server's folder, or a folder with one.")],
    pin: Annotated[str, typer.Option(help="The registry's hash that you pinned, 64 hexadecimal digits.")],
    as_json: AsJson = False,
) -> None:
    """Say who lied in a round whose tags did not add up, from what everybody signed; exit code 5 if that does not hold.

    A server writes the case by itself. It holds signatures, the sum, and at most one noised update, of an accused.

    Example: lrdp blame server/case-1f00c3d2a4b5e697-00004-001.safetensors --pin HASH
    """
    pinned, path = read_pin(pin), _one(case)
    failed = _read(path)
    header, session = failed.case.header, failed.case.position.session
    _require_pinned(session, pinned, path.parent)
    found = judged(failed)
    opened = None if failed.opened is None else failed.opened.pledge.name
    record = {
        "session": session.digest.hex(),
        "registry": session.registry.digest.hex(),
        "round": header.round + 1,
        "attempt": header.attempt + 1,
        "participants": list(header.names),
        "liars": found.clients,
        "one_of_two": [list(pair) for pair in found.pairs],
        "did_not_depose": list(found.silent),
        "server": found.server or None,
        "opened": opened,
    }
    say(f"Round {header.round + 1}, attempt {header.attempt + 1}: {found.line}.")
    print_record(record, as_json)


def _one(path: Path) -> Path:
    with reading(path):
        if not path.is_dir():
            return path
        cases = sorted(each for each in path.iterdir() if each.match("case-*.safetensors"))
    if len(cases) != 1:
        names = ", ".join(each.name for each in cases) or "none"
        raise InvalidInput(f"{path} holds {len(cases)} cases of failed rounds ({names}): name one.")
    return cases[0]


def _read(path: Path) -> FailedRound:
    require_model_files()
    from lrdp.federation.wire.case_files import read_case

    return read_case(path)


def _require_pinned(session: Session, pin: bytes, folder: Path) -> None:
    """Refuse a case whose registry is not the pinned one, unless the receipts beside it lead from that one to it."""
    if session.registry.digest == pin:
        return
    for receipts in sorted(folder.glob("receipts-*.txt")):
        try:
            if any(step.position.session == session for step in walk_history(read_lines(receipts), pin)):
                return
        except NotVerified:
            continue
    raise rejection(
        Verdict.REGISTRY_REFUSED, f"its hash is {session.registry.digest.hex()}, and no receipts beside it lead there"
    )
