"""`lrdp registry`: who may take part. The office signs each version, and a running server is handed the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from lrdp.commands.integrity import Pin, read_pin
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import card_in, reading, registry_in, require_signed, rewrite
from lrdp.errors import InvalidInput
from lrdp.integrity import (
    FEWEST,
    LONGEST_LINE,
    NO_PREVIOUS,
    SIGNATURE_SIZE,
    Member,
    Registry,
    RegistryShelf,
    load_identity,
    majority,
    next_registry,
    read_session,
    read_title,
    registry_record,
    sign_registry,
    verify_registry,
    verify_successor,
)

registry_app = typer.Typer(
    help="The consortium's list of participants, signed and pinned by hash.", no_args_is_help=True
)

RegistryFile = Annotated[Path, typer.Argument(help="The registry, a JSON file.")]
Cards = Annotated[list[Path], typer.Argument(help="Files with what `lrdp keys show --json` printed.")]
ConsortiumKey = Annotated[Path, typer.Option("--key", help="The consortium's own key file.")]


@registry_app.command("new")
def registry_new(
    path: RegistryFile,
    key: ConsortiumKey,
    after: Annotated[Path | None, typer.Option(help="The signed registry that this one replaces.")] = None,
    first_round: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="A running session takes it up at this round, or later.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Begin a registry: an empty one, or the next version of a signed one.

    Example: lrdp registry new next.json --key consortium.pem --after registry.json
    """
    if path.exists():
        raise InvalidInput(f"{path} exists: a registry is extended with `lrdp registry add`, never overwritten.")
    consortium = load_identity(key).member.signing_key
    begun = Registry(version=1, first_round=first_round, previous=NO_PREVIOUS, consortium=consortium, members=())
    if after is not None:
        old = registry_in(after)
        require_signed(after, old)
        verify_registry(old, old.digest)
        if consortium != old.consortium:
            raise InvalidInput(
                f"{after} was signed with a key other than --key: participants follow only the consortium that they "
                f"pinned, so nothing was written."
            )
        begun = next_registry(old, old.members, first_round)
    _write(path, begun, as_json)


@registry_app.command("add")
def registry_add(path: RegistryFile, cards: Cards, as_json: AsJson = False) -> None:
    """Add participants; the registry must then be signed again.

    Example: lrdp registry add registry.json hospital-0.json hospital-1.json
    """
    current = registry_in(path)
    members = dict(current.by_name)
    held = _held(cards)
    for member in held:
        if member.name in members and members[member.name] != member:
            raise InvalidInput(
                f"{path} has other keys of {member.name}: nothing was written; if they are lost, `lrdp registry "
                f"replace-key` puts these in their place."
            )
        members[member.name] = member
    _write_unsigned(path, current, members, as_json)
    say(f"Added {', '.join(member.name for member in held)}.")


@registry_app.command("replace-key")
def registry_replace_key(path: RegistryFile, cards: Cards, as_json: AsJson = False) -> None:
    """Put new keys in the place of a participant's old ones, which then no longer count; sign the registry again.

    Ask the participant by another way than the card came by: whoever has its keys is the participant.

    Example: lrdp registry replace-key next.json hospital-1.json
    """
    current = registry_in(path)
    members = dict(current.by_name)
    held = _held(cards)
    for member in held:
        _require_member(path, current, member.name)
        if members[member.name] == member:
            raise InvalidInput(
                f"{path} has these very keys of {member.name}: nothing was written; ask {member.name} for the card of "
                f"its new ones."
            )
        members[member.name] = member
    _write_unsigned(path, current, members, as_json)
    say(f"Replaced the keys of {', '.join(member.name for member in held)}.")


@registry_app.command("remove")
def registry_remove(
    path: RegistryFile,
    names: Annotated[list[str], typer.Argument(help="Who leaves, or is excluded.")],
    as_json: AsJson = False,
) -> None:
    """Leave participants out; the registry must then be signed again.

    Example: lrdp registry remove next.json hospital-2
    """
    current = registry_in(path)
    for name in names:
        _require_member(path, current, name)
    left = {name: member for name, member in current.by_name.items() if name not in names}
    _write_unsigned(path, current, left, as_json)
    say(f"Removed {', '.join(dict.fromkeys(names))}.")


@registry_app.command("sign")
def registry_sign(path: RegistryFile, key: ConsortiumKey, as_json: AsJson = False) -> None:
    """Sign the registry, and print the hash that every participant pins.

    Example: lrdp registry sign registry.json --key consortium.pem
    """
    current, consortium = registry_in(path), load_identity(key)
    if current.consortium != consortium.member.signing_key:
        raise InvalidInput(f"{path} belongs to another consortium than the key {key}: nothing was signed.")
    if len(current.members) < FEWEST:
        raise InvalidInput(
            f"{path} has {len(current.members)} of at least {FEWEST} members: of two each could subtract itself from "
            f"the sum, so no round would be made; nothing was signed, add members with `lrdp registry add`."
        )
    signed = sign_registry(current, consortium)
    verify_registry(signed, signed.digest)
    _write(path, signed, as_json)


@registry_app.command("verify")
def registry_verify(path: RegistryFile, pin: Pin = None, as_json: AsJson = False) -> None:
    """Check signature, keys and pin; exit code 5 if anything does not hold.

    Example: lrdp registry verify registry.json --pin HASH
    """
    current, pinned = registry_in(path), None if pin is None else read_pin(pin)
    require_signed(path, current)
    verify_registry(current, pinned or current.digest)
    if pin is None:
        say(f"Note: without --pin anybody may have made it; compare {current.digest.hex()} with the hash you hold.")
    print_record({**_summary(current), "pinned": pin is not None}, as_json)


@registry_app.command("show")
def registry_show(path: RegistryFile, as_json: AsJson = False) -> None:
    """Print a registry, signed or not: its members, and the hash of the one that it replaces.

    Example: lrdp registry show next.json
    """
    current = registry_in(path)
    signed = read_title(current.encode()).signed()
    previous = None if current.previous == NO_PREVIOUS else current.previous.hex()
    print_record({**_summary(current), "previous": previous, "signed": signed}, as_json)


@registry_app.command("rotate")
def registry_rotate(
    path: RegistryFile,
    server: Annotated[Path, typer.Option(help="The server's folder, where its receipts are.")],
    as_json: AsJson = False,
) -> None:
    """Hand a signed registry to a server, running or not: between two rounds it takes the place of the one before.

    Example: lrdp registry rotate next.json --server server
    """
    following, shelf = registry_in(path), RegistryShelf(server)
    current = shelf.last()
    if following != current:
        require_signed(path, following)
        verify_successor(current, following)
        _require_rounds(following, server)
        shelf.put(following)
    not_yet = f", but not before round {following.first_round + 1}" if following.first_round > 1 else ""
    say(f"Handed over: a running session takes it up before its next round{not_yet}.")
    print_record({**_summary(following), "path": str(shelf.path(following.version))}, as_json)


def _require_rounds(following: Registry, server: Path) -> None:
    """Refuse a registry with which the running session could make no round; warn if rounds lose their majority."""
    least = _least_roster(server)
    if len(following.members) < least:
        raise InvalidInput(
            f"the registry has {len(following.members)} members, and a round of the session in {server} needs {least}: "
            f"nothing was handed over; end that session first, and begin another with a smaller least roster."
        )
    if 0 < least < majority(following):
        say(
            f"Note: a round of the running session needs {least}, which is no longer a majority of "
            f"{len(following.members)} members; a new session has a larger least roster."
        )


def _least_roster(server: Path) -> int:
    """That of the newest session in a server's folder; 0 where there is none."""
    with reading(server):
        sessions = sorted(server.glob("receipts-*.txt"), key=lambda each: each.stat().st_mtime_ns)
        if not sessions:
            return 0
        with sessions[-1].open("rb") as file:
            first = file.readline(LONGEST_LINE).decode("ascii", errors="replace").strip()
    return read_session(first, None).parameters.min_roster


def _held(cards: list[Path]) -> list[Member]:
    """The members on these cards, whose keys are their own; each once."""
    members = list(dict.fromkeys(map(card_in, cards)))
    names = [member.name for member in members]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"two of these cards have other keys of {name}, and one counts: nothing was written.")
    return members


def _require_member(path: Path, current: Registry, name: str) -> None:
    if name not in current.by_name:
        known = ", ".join(sorted(current.by_name)) or "none"
        raise InvalidInput(f"{path} has no member {name!r}, its members are {known}: nothing was written.")


def _summary(current: Registry) -> dict[str, Any]:
    names = [member.name for member in current.members]
    return {
        "digest": current.digest.hex(),
        "version": current.version,
        "first_round": current.first_round,
        "members": names,
    }


def _write_unsigned(path: Path, current: Registry, members: Mapping[str, Member], as_json: bool) -> None:
    ordered = tuple(members[name] for name in sorted(members))
    signed = read_title(current.encode()).signed()
    _write(path, replace(current, members=ordered, signature=bytes(SIGNATURE_SIZE)), as_json)
    say("It is not signed: `lrdp registry sign` does that, and until then nobody accepts it.")
    if signed:
        say(
            "It was signed before this change: if anybody pinned it or a server has it, leave it as it was, and begin "
            "the next version with `lrdp registry new NEXT --after` it, for of two of one version only one is followed."
        )


def _write(path: Path, current: Registry, as_json: bool) -> None:
    rewrite(path, (json.dumps(registry_record(current), indent=1) + "\n").encode())
    print_record(_summary(current), as_json)
