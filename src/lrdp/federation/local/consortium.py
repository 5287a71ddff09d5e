"""A whole consortium in one folder, for simulations, demonstrations and pilots.

In the field each client makes its own keys with `lrdp keys new` and `lrdp init`, and nobody holds them all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.accounting import Training
from lrdp.federation.client.home import ClientHome
from lrdp.integrity import (
    MOST_CARD_CHARACTERS,
    NO_PREVIOUS,
    Identity,
    Registry,
    load_identity,
    majority,
    new_identity,
    read_registry,
    registry_record,
    save_identity,
    sign_registry,
)
from lrdp.ledger import FIXED_SIZE, Home, PeersRule, PolicyDraft, PolicyRecipe, Scheme, draft, open_budget, write_draft
from lrdp.ledger import Holder as PolicyIdentity


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """The folders of a server and its clients.

    >>> Consortium(folder=Path("pilot")).server_folder.as_posix()
    'pilot/server'
    """

    folder: Path

    @property
    def server_folder(self) -> Path:
        """Where receipts and heads go."""
        return self.folder / "server"

    @property
    def registry_file(self) -> Path:
        """As `lrdp registry` writes it."""
        return self.folder / "registry.json"

    @property
    def office_key(self) -> Path:
        """What signs the registry: in the field, off line and nowhere near the server."""
        return self.folder / "consortium.pem"

    def client(self, name: str) -> ClientHome:
        return ClientHome(folder=self.folder / "clients" / name)

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "clients").iterdir())

    def server_identity(self) -> Identity:
        return load_identity(self.server_folder / "identity.pem")

    def registry(self) -> Registry:
        return read_registry(files.read(self.registry_file, MOST_CARD_CHARACTERS).decode("ascii", "replace"))


@dataclass(frozen=True, kw_only=True)
class CommonRules:
    """What all policies of a consortium have in common: whom they protect, what a server may see, and their step.

    Unlike with `lrdp found`, batches are of fixed size unless ``recipe`` says otherwise: a simulation may then order
    any step that the policies allow.

    >>> CommonRules(unit="patient", scheme=Scheme.EXACT).recipe.kind.__name__
    'FixedSizeGaussian'
    """

    unit: str = "record"
    scheme: Scheme = Scheme.SKETCH
    recipe: PolicyRecipe = FIXED_SIZE


USUAL_RULES: Final = CommonRules()


def found(
    folder: Path,
    trainings: Mapping[str, Training],
    *,
    min_roster: int | None = None,
    task: str = "",
    rules: CommonRules = USUAL_RULES,
) -> Consortium:
    """Keys for everybody, a signed registry, and for each client a policy and an open budget of its own.

    Every policy pins registry, server and a least roster, which is a majority of the registry unless given. ``task``
    is what a guard trains, as in ``"package.module:name"``.

    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.accounting import Budget
    >>> budget = Budget(epsilon=8.0, delta=1e-4)
    >>> training = Training(dataset_size=40, batch_size=8, rounds=2, local_steps=1, budget=budget)
    >>> with TemporaryDirectory() as folder:
    ...     ours = found(Path(folder) / "consortium", dict.fromkeys(["a", "b", "c"], training))
    ...     ours.names(), ours.client("a").policy().peers.min_roster, len(ours.registry().members)
    (['a', 'b', 'c'], 3, 3)
    """
    consortium = Consortium(folder=folder)
    identities = {name: new_identity(name) for name in trainings}
    office, server = new_identity("consortium"), new_identity("server")
    registry = _signed_registry(list(identities.values()), office)
    consortium.server_folder.mkdir(parents=True)
    save_identity(office, consortium.office_key)
    save_identity(server, consortium.server_folder / "identity.pem")
    record = json.dumps(registry_record(registry), indent=1) + "\n"
    files.replace(consortium.registry_file, record.encode(), files.PUBLIC)
    peers = pinned(consortium, registry, min_roster, rules.scheme)
    holders = {name: PolicyIdentity(client=name, unit=rules.unit, max_rows_per_unit=1) for name in trainings}
    # Those with the same training are calibrated once.
    alike = {training: name for name, training in trainings.items()}
    drafts = {training: draft(holders[name], training, peers, rules.recipe) for training, name in alike.items()}
    for name, training in trainings.items():
        enrol(consortium.client(name), replace(drafts[training], holder=holders[name], task=task))
        save_identity(identities[name], consortium.client(name).identity_file)
    return consortium


def pinned(
    consortium: Consortium, registry: Registry, min_roster: int | None = None, scheme: Scheme = Scheme.SKETCH
) -> PeersRule:
    """What a client's policy pins: this registry, the consortium's server, and a majority unless told otherwise."""
    return PeersRule(
        registry_sha256=registry.digest.hex(),
        server_keys=(consortium.server_identity().member.signing_key.hex(),),
        min_roster=majority(registry) if min_roster is None else min_roster,
        scheme=scheme,
    )


def enrol(client: ClientHome, drafted: PolicyDraft) -> None:
    """A client's folder: a policy, and an open budget."""
    home = Home(folder=client.folder)
    write_draft(home, drafted)
    open_budget(home, drafted.training.rounds).close()


def _signed_registry(identities: Sequence[Identity], office: Identity) -> Registry:
    unsigned = Registry(
        version=1,
        first_round=0,
        previous=NO_PREVIOUS,
        consortium=office.member.signing_key,
        members=tuple(identity.member for identity in identities),
    )
    return sign_registry(unsigned, office)
