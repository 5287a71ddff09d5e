"""What ``lrdp init`` pins: a registry by its hash, servers by their keys, a round's least size, and what is seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from lrdp.commands.output import say
from lrdp.commands.paths import read_text
from lrdp.errors import InvalidInput
from lrdp.integrity import Registry, majority, read_card, read_registry, verify_registry
from lrdp.ledger import PeersRule, Scheme

_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")


def pinned(
    client: str, registry: Path | None, servers: list[str], min_roster: int | None, scheme: Scheme = Scheme.SKETCH
) -> PeersRule:
    """The peers of a client, from the registry's file and from each server's key or card."""
    keys = tuple(dict.fromkeys(_server_key(server) for server in servers))
    if registry is None:
        if keys or min_roster is not None:
            raise InvalidInput(
                "--server-key and --min-roster go with --registry: a server belongs to a consortium, and nothing was "
                "written."
            )
        return PeersRule(scheme=scheme)
    known = _registry(registry, client)
    least = majority(known) if min_roster is None else min_roster
    if least > len(known.members):
        raise InvalidInput(
            f"--min-roster must be at most the {len(known.members)} members of {registry}, got {least}: no round could "
            f"be made."
        )
    if not keys:
        say("No server is pinned: no session is joined until server_keys names one, or --server-key does.")
    return PeersRule(registry_sha256=known.digest.hex(), server_keys=keys, min_roster=least, scheme=scheme)


def _registry(path: Path, client: str) -> Registry:
    known = read_registry(read_text(path))
    verify_registry(known, known.digest)
    if client not in known.by_name:
        raise InvalidInput(f"{path} has no member {client}: send your card to the office, or name --client as there.")
    say(f"Compare {known.digest.hex()} with the office's: whoever can replace {path} can invent participants.")
    return known


def _server_key(given: str) -> str:
    """64 digits, or a file with what `lrdp keys show --json` printed."""
    if _HEX.fullmatch(given):
        return given.lower()
    member = read_card(read_text(Path(given)))
    if not member.holds():
        raise InvalidInput(f"{given}: the keys of {member.name} are not signed by their owner.")
    return member.signing_key.hex()
