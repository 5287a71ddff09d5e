"""`lrdp keys`, `lrdp registry` and `lrdp verify`: who may take part, and whether a session's history holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lrdp import files
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import read_text, reading
from lrdp.commands.paths import replace as replace_file
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import (
    FEWEST,
    HASH_SIZE,
    MEANINGS,
    NO_PREVIOUS,
    SIGNATURE_SIZE,
    Registry,
    Verdict,
    card,
    history,
    keys,
    read_card,
    read_registry,
    registry,
    registry_record,
)

keys_app = typer.Typer(help="A participant's keys: one file, readable by its owner only.", no_args_is_help=True)
registry_app = typer.Typer(
    help="The consortium's list of participants, signed and pinned by hash.", no_args_is_help=True
)

KeyFile = Annotated[Path, typer.Argument(help="A file made by `lrdp keys new`.")]
RegistryFile = Annotated[Path, typer.Argument(help="The registry, a JSON file.")]
Consortium = Annotated[Path, typer.Option("--key", help="The consortium's own key file.")]
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
    identity = keys.new_identity(name)
    path = out or Path(f"{name}.pem")
    keys.save(identity, path)
    say(f"Wrote {path}: keep it secret. Send the consortium what `lrdp keys show {path} --json` prints.")
    print_record(card(identity.member), as_json)


@keys_app.command("show")
def keys_show(path: KeyFile, as_json: AsJson = False) -> None:
    """Print the public half of a key file, self-signed: what the consortium needs.

    Example: lrdp keys show hospital-0/keys/identity.pem --json
    """
    print_record(card(keys.load(path).member), as_json)


@registry_app.command("new")
def registry_new(
    path: RegistryFile,
    key: Consortium,
    after: Annotated[Path | None, typer.Option(help="The signed registry that this one replaces.")] = None,
    first_round: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The first round in which it counts.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Begin a registry: an empty one, or the next version of a signed one.

    Example: lrdp registry new next.json --key consortium.pem --after registry.json --first-round 40
    """
    if path.exists():
        raise InvalidInput(f"{path} exists: a registry is extended with `lrdp registry add`, never overwritten.")
    consortium = keys.load(key).member.signing_key
    begun = Registry(version=1, first_round=first_round, previous=NO_PREVIOUS, consortium=consortium, members=())
    if after is not None:
        old = _read_registry(after)
        registry.verify(old, old.digest)
        _require_successor(old, begun, after)
        begun = replace(begun, version=old.version + 1, previous=old.digest, members=old.members)
    _write(path, begun, as_json)


@registry_app.command("add")
def registry_add(
    path: RegistryFile,
    cards: Annotated[list[Path], typer.Argument(help="Files with what `lrdp keys show --json` printed.")],
    as_json: AsJson = False,
) -> None:
    """Add participants, or replace those of the same name; the registry must then be signed again.

    Example: lrdp registry add registry.json hospital-0.json hospital-1.json
    """
    current = _read_registry(path)
    members = {member.name: member for member in current.members}
    for file in cards:
        member = read_card(read_text(file))
        if not member.holds():
            raise NotVerified(
                f"{file}: the keys of {member.name} are not signed by their owner.", Verdict.REGISTRY_REFUSED
            )
        say(f"{'Replaced' if member.name in members else 'Added'} {member.name}.")
        members[member.name] = member
    ordered = tuple(members[name] for name in sorted(members))
    _write(path, replace(current, members=ordered, signature=bytes(SIGNATURE_SIZE)), as_json)


@registry_app.command("sign")
def registry_sign(path: RegistryFile, key: Consortium, as_json: AsJson = False) -> None:
    """Sign the registry, and print the hash that every participant pins.

    Example: lrdp registry sign registry.json --key consortium.pem
    """
    current, consortium = _read_registry(path), keys.load(key)
    if current.consortium != consortium.member.signing_key:
        raise InvalidInput(f"{path} belongs to another consortium than the key {key}: nothing was signed.")
    if len(current.members) < FEWEST:
        raise InvalidInput(
            f"{path} has {len(current.members)} of at least {FEWEST} members: of two each could subtract itself from "
            f"the sum, so no round would be made; nothing was signed, add members with `lrdp registry add`."
        )
    signed = registry.sign(current, consortium)
    registry.verify(signed, signed.digest)
    _write(path, signed, as_json)


@registry_app.command("verify")
def registry_verify(path: RegistryFile, pin: Pin = None, as_json: AsJson = False) -> None:
    """Check signature, keys and pin; exit code 5 if anything does not hold.

    Example: lrdp registry verify registry.json --pin HASH
    """
    current = _read_registry(path)
    registry.verify(current, current.digest if pin is None else _pin(pin))
    if pin is None:
        say(f"Note: without --pin anybody may have made it; compare {current.digest.hex()} with the hash you hold.")
    print_record({**_summary(current), "pinned": pin is not None}, as_json)


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

    Example: lrdp verify server/receipts.txt --pin HASH
    """
    if (pin is None) != unpinned:
        raise InvalidInput(
            "verify needs the registry's hash that you pinned: --pin HASH. Without it anybody could have made the "
            "participants up, and with them every receipt; --unpinned checks no more than that the file is consistent."
        )
    found = history.audit(_lines(receipts), None if pin is None else _pin(pin))
    failure = found.failure
    reached = found.position.tip.hex() if found.position else None
    if failure is None and found.position is None:
        failure = NotVerified(f"{receipts} holds no receipt, so it proves nothing.", Verdict.MALFORMED)
    if failure is None and tip is not None and tip.lower() != reached:
        failure = NotVerified(f"the history ends at {reached}, not at {tip}: rounds are missing.", Verdict.CHAIN_BREAK)
    record: dict[str, Any] = {
        "verified": failure is None and pin is not None,
        "consistent": failure is None,
        "rounds": found.rounds,
        "tip": reached,
        "pinned": pin is not None,
    }
    if found.position is not None:
        session = found.position.session
        record |= {"session": session.digest.hex(), "registry": session.registry.digest.hex()}
        record |= {"model": found.position.model.hex(), "participants": found.participants}
    if failure is not None:
        _fail(failure, found.rounds, record, as_json)
    if pin is None:
        say(
            "Not verified, only consistent: nothing shows that these participants exist. The hash that they would have "
            "pinned is the first registry's; ask one of them for it, and give it with --pin."
        )
    print_record(record, as_json)


def _require_successor(old: Registry, begun: Registry, path: Path) -> None:
    """Refuse at once what no participant would follow."""
    if begun.consortium != old.consortium:
        raise InvalidInput(
            f"{path} was signed with another key than --key: participants follow only the consortium that they "
            f"pinned, so nothing was written."
        )
    if begun.first_round <= old.first_round:
        raise InvalidInput(
            f"--first-round must be above {old.first_round}, from which on {path} counts, got {begun.first_round}: "
            f"nothing was written."
        )


def _fail(failure: NotVerified, rounds: int, record: dict[str, Any], as_json: bool) -> None:
    verdict = Verdict(failure.verdict.value)
    if as_json:
        print_record({**record, "round": rounds, "verdict": verdict.name, "reason": MEANINGS[verdict]}, as_json)
    raise NotVerified(f"Round {rounds} is not verified. {failure}", verdict)


def _lines(path: Path) -> Iterator[str]:
    """One after the other: a long history does not fit in memory."""
    for each in _places(path):
        with reading(each), files.opened(each) as file:
            for line in files.lines(file, history.LONGEST_LINE):
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
        return sessions or sorted(path.iterdir())


def _read_registry(path: Path) -> Registry:
    return read_registry(read_text(path))


def _pin(text: str) -> bytes:
    try:
        pin = bytes.fromhex(text)
    except ValueError:
        pin = b""
    if len(pin) != HASH_SIZE:
        raise InvalidInput(f"--pin must be 64 hexadecimal digits, got {text[:80]!r}: it is the registry's SHA-256.")
    return pin


def _summary(current: Registry) -> dict[str, Any]:
    names = [member.name for member in current.members]
    return {
        "digest": current.digest.hex(),
        "version": current.version,
        "first_round": current.first_round,
        "members": names,
    }


def _write(path: Path, current: Registry, as_json: bool) -> None:
    replace_file(path, (json.dumps(registry_record(current), indent=1) + "\n").encode())
    print_record(_summary(current), as_json)
