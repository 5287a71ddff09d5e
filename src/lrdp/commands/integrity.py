"""`lrdp keys` and `lrdp verify`: a participant's keys, and whether a session's history holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from lrdp import files
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import reading
from lrdp.errors import InvalidInput, LrdpError, NotVerified
from lrdp.integrity import (
    HASH_SIZE,
    LONGEST_LINE,
    MEANINGS,
    Position,
    Verdict,
    audit_history,
    card,
    load_identity,
    new_identity,
    save_identity,
)

keys_app = typer.Typer(help="A participant's keys: one file, readable by its owner only.", no_args_is_help=True)

KeyFile = Annotated[Path, typer.Argument(help="A file made by `lrdp keys new`.")]
Pin = Annotated[str | None, typer.Option(help="The registry's hash that you pinned, 64 hexadecimal digits.")]


@keys_app.command("new")
def keys_new(
    name: Annotated[str, typer.Argument(help="The participant's name: a-z, 0-9, '.', '_' and '-'.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the keys (default: NAME.pem).")] = None,
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 and an X25519 key, in a new file of mode 600.

    Example: lrdp keys new hospital-0 --out hospital-0/keys/identity.pem
    """
    identity = new_identity(name)
    path = out or Path(f"{name}.pem")
    save_identity(identity, path)
    say(f"Wrote {path}: keep it secret. Send the consortium what `lrdp keys show {path} --json` prints.")
    print_record(card(identity.member), as_json)


@keys_app.command("show")
def keys_show(path: KeyFile, as_json: AsJson = False) -> None:
    """Print the public half of a key file, self-signed: what the consortium needs.

    Example: lrdp keys show hospital-0/keys/identity.pem --json
    """
    print_record(card(load_identity(path).member), as_json)


def verify(
    receipts: Annotated[
        Path, typer.Argument(help="A file of receipts, a server's folder, or a folder of receipts alone.")
    ],
    pin: Pin = None,
    unpinned: Annotated[
        bool, typer.Option("--unpinned", help="Check only that the receipts agree with each other, whoever made them.")
    ] = False,
    tip: Annotated[
        str | None, typer.Option(help="The tip at which the history must end, as a client knows it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a session's receipts, without model or data; exit code 5, the round and the reason where they fail.

    Example: lrdp verify server --pin HASH
    """
    if (pin is None) != unpinned:
        raise InvalidInput(
            "verify needs the registry's hash that you pinned: --pin HASH. Without it anybody could have made the "
            "participants up, and with them every receipt; --unpinned only checks that the file is consistent."
        )
    end = None if tip is None else read_hash("--tip", tip, "it is the hash that a client's history ends with").hex()
    found = audit_history(read_lines(receipts), None if pin is None else read_pin(pin))
    failure = found.failure
    if failure is None:
        _say_what_waits(receipts, found.position)
    reached = found.position.tip.hex() if found.position else None
    if failure is None and found.position is None:
        failure = NotVerified(f"{receipts} holds no receipt, so it proves nothing.", Verdict.MALFORMED)
    if failure is None and end not in (None, reached):
        failure = NotVerified(f"the history ends at {reached}, not at {end}: rounds are missing.", Verdict.CHAIN_BREAK)
    record: dict[str, Any] = {
        "verified": failure is None and pin is not None,
        "consistent": failure is None,
        "rounds": found.rounds,
        "tip": reached,
        "pinned": pin is not None,
    }
    if found.position is not None:
        session = found.position.session
        record |= {"session": found.session, "registry": session.registry.digest.hex()}
        record |= {"scheme": session.parameters.method.value, "model": found.position.model.hex()}
        record |= {"participants": found.participants, "registries": found.registries}
    if failure is not None:
        _fail(failure, found.rounds, record, as_json)
    if pin is None:
        say(
            "Not verified, only consistent: nothing shows that these participants exist. The hash that they would have "
            "pinned is the first registry's; ask one of them for it, and give it with --pin."
        )
    print_record(record, as_json)


def _say_what_waits(folder: Path, reached: Position | None) -> None:
    """Of a server's own folder. Whether the receipts hold does not depend on it, so what cannot be read is left out."""
    from lrdp.federation.server.confirming import outstanding

    with suppress(LrdpError):
        if sentence := outstanding(folder, reached):
            say(sentence)


def _fail(failure: NotVerified, rounds: int, record: dict[str, Any], as_json: bool) -> None:
    verdict = Verdict(failure.verdict.value)
    if as_json:
        print_record({**record, "round": rounds, "verdict": verdict.name, "reason": MEANINGS[verdict]}, as_json)
    raise NotVerified(f"Round {rounds} is not verified. {failure}", verdict)


def read_lines(path: Path) -> Iterator[str]:
    """One after the other: a long history does not fit in memory."""
    for each in _places(path):
        with reading(each), files.opened(each) as file:
            for line in files.lines(file, LONGEST_LINE):
                yield line.decode("ascii", errors="replace").strip()


def _places(path: Path) -> list[Path]:
    """A file, the receipts in a server's own folder, or a folder of nothing but receipts."""
    with reading(path):
        if not path.is_dir():
            return [path]
        sessions = sorted(path.glob("receipts-*.txt"))
        if len(sessions) > 1:
            names = ", ".join(each.name for each in sessions)
            raise InvalidInput(f"{path} holds the receipts of {len(sessions)} sessions: name one of {names}.")
        if not sessions and (path / "identity.pem").exists():
            raise InvalidInput(f"{path} is a server's folder without receipts: no session was opened in it so far.")
        return sessions or sorted(path.iterdir())


def read_pin(text: str) -> bytes:
    """A registry's hash that somebody pinned."""
    return read_hash("--pin", text, "it is the registry's SHA-256")


def read_hash(option: str, text: str, what: str) -> bytes:
    """32 bytes that were typed as hexadecimal digits."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != HASH_SIZE:
        raise InvalidInput(f"{option} must be 64 hexadecimal digits, got {text[:80]!r}: {what}.")
    return found
