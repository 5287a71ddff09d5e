"""What a policy pins: a registry by its hash, servers by their keys, a round's least size, and what is seen."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from lrdp.commands.output import say
from lrdp.commands.paths import card_in, registry_in, require_signed
from lrdp.errors import InvalidInput
from lrdp.integrity import Registry, majority, verify_registry
from lrdp.ledger import PeersRule, Scheme

_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")

RegistryToPin = Annotated[Path | None, typer.Option(help="The consortium's registry, to pin.")]
ServerKeys = Annotated[
    list[str] | None, typer.Option(help="A server to pin: its card's file, or its key's 64 digits; repeatable.")
]
MinRoster = Annotated[
    int | None, typer.Option(help="The fewest participants of a round (default: a majority of the registry).")
]
SchemeOption = Annotated[
    Scheme | None,
    typer.Option(help="What a server may see: each noised update (sketch, the default), or their sum alone (exact)."),
]


class Pins(NamedTuple):
    """As they were typed: what was not says nothing."""

    registry: Path | None
    servers: list[str] | None
    min_roster: int | None
    scheme: Scheme | None


def pinned(client: str, pins: Pins, before: PeersRule) -> PeersRule:
    """The peers of a client, from the registry's file and from each server's key or card; the rest is as before."""
    keys = tuple(dict.fromkeys(_server_key(server) for server in pins.servers or []))
    seen = replace(before, scheme=pins.scheme or before.scheme)
    if pins.registry is None:
        if keys or pins.min_roster is not None:
            raise InvalidInput(
                "--server-key and --min-roster go with --registry: a server belongs to a consortium, and nothing was "
                "written."
            )
        return seen
    known = _registry(pins.registry, client)
    if not keys and not before.server_keys:
        say("No server is pinned: no session is joined until server_keys names one, or --server-key does.")
    same_servers = not keys or set(keys) == set(before.server_keys)
    return replace(
        seen,
        registry_sha256=known.digest.hex(),
        server_keys=before.server_keys if same_servers else keys,
        min_roster=_least_roster(known, pins, before),
    )


def _least_roster(known: Registry, pins: Pins, before: PeersRule) -> int:
    """A majority, where nobody chose another number for this registry."""
    if pins.min_roster is None:
        return before.min_roster if before.registry_sha256 == known.digest.hex() else majority(known)
    if pins.min_roster > len(known.members):
        raise InvalidInput(
            f"--min-roster must be at most the {len(known.members)} members of {pins.registry}, got "
            f"{pins.min_roster}: no round could be made."
        )
    return pins.min_roster


def _registry(path: Path, client: str) -> Registry:
    known = registry_in(path)
    require_signed(path, known)
    verify_registry(known, known.digest)
    if client not in known.by_name:
        raise InvalidInput(f"{path} has no member {client}: send your card to the office, or name --client as there.")
    say(f"Compare {known.digest.hex()} with the office's: whoever can replace {path} can invent participants.")
    return known


def _server_key(given: str) -> str:
    """64 digits, or a file with what `lrdp keys show --json` printed."""
    if _HEX.fullmatch(given):
        return given.lower()
    return card_in(Path(given)).signing_key.hex()
