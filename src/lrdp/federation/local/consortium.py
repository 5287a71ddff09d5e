"""A whole consortium in one folder, for simulations and demonstrations.

In the field each client makes its own keys with `lrdp keys new` and `lrdp init`, and nobody holds them all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lrdp import files
from lrdp.accounting import Training
from lrdp.federation.client.home import ClientHome
from lrdp.integrity import (
    MOST_CARD_CHARACTERS,
    Identity,
    Registry,
    keys,
    majority,
    new_identity,
    read_registry,
    registry_record,
)
from lrdp.integrity import registry as registries
from lrdp.ledger import Holder as PolicyIdentity
from lrdp.ledger import Home, PeersRule, open_budget, write_policy


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """The folders of a server and its clients."""

    folder: Path

    @property
    def server_folder(self) -> Path:
        """Where receipts and heads go."""
        return self.folder / "server"

    @property
    def registry_file(self) -> Path:
        """As `lrdp registry` writes it."""
        return self.folder / "registry.json"

    def client(self, name: str) -> ClientHome:
        return ClientHome(folder=self.folder / "clients" / name)

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "clients").iterdir())

    def server_identity(self) -> Identity:
        return keys.load(self.server_folder / "identity.pem")

    def registry(self) -> Registry:
        return read_registry(files.read(self.registry_file, MOST_CARD_CHARACTERS).decode("ascii", "replace"))


def found(
    folder: Path, trainings: Mapping[str, Training], *, unit: str = "record", min_roster: int | None = None
) -> Consortium:
    """Keys for everybody, a signed registry, and for each client a policy and an open budget of its own.

    Every policy pins registry and server, and a least roster: a majority of the registry unless it is given.
    """
    consortium = Consortium(folder=folder)
    identities = {name: new_identity(name) for name in trainings}
    registry = _signed_registry(list(identities.values()))
    consortium.server_folder.mkdir(parents=True)
    server = new_identity("server")
    keys.save(server, consortium.server_folder / "identity.pem")
    record = json.dumps(registry_record(registry), indent=1) + "\n"
    files.replace(consortium.registry_file, record.encode(), files.PUBLIC)
    peers = PeersRule(
        registry_sha256=registry.digest.hex(),
        server_keys=(server.member.signing_key.hex(),),
        min_roster=majority(registry) if min_roster is None else min_roster,
    )
    for name, training in trainings.items():
        home = Home(folder=consortium.client(name).folder)
        write_policy(home, PolicyIdentity(client=name, unit=unit, max_rows_per_unit=1), training, peers)
        with closing(open_budget(home, training.rounds)):
            keys.save(identities[name], consortium.client(name).identity_file)
    return consortium


def _signed_registry(identities: Sequence[Identity]) -> Registry:
    consortium = new_identity("consortium")
    unsigned = Registry(
        version=1,
        first_round=0,
        previous=registries.NO_PREVIOUS,
        consortium=consortium.member.signing_key,
        members=tuple(identity.member for identity in identities),
    )
    return registries.sign(unsigned, consortium)
