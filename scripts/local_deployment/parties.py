"""The parties of a consortium, set up with the commands that each of them would type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from local_deployment.processes import DeploymentFailed, Processes
from lrdp.experiments.digits import records, share

APP: Final = Path(__file__).parents[2] / "apps" / "digits"
CODE: Final = APP / "hospital"
_LOG: Final = "setting-up"
TASK: Final = "digits_task:task"
"""Each hospital's own code, for its guard."""


@dataclass(frozen=True, kw_only=True)
class Budgeting:
    """What each hospital writes into its policy."""

    rounds: int
    local_steps: int
    epsilon: float
    delta: float = 1e-4
    batch_size: int = 32


@dataclass(frozen=True, kw_only=True)
class Hospital:
    """One party with data: its folder is its own, and so is all that is in it."""

    folder: Path
    number: int
    count: int

    @property
    def name(self) -> str:
        return f"hospital-{self.number}"

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def data(self) -> Path:
        return self.folder / "records.npz"

    @property
    def identity(self) -> Path:
        return self.folder / "keys" / "identity.pem"

    @property
    def node_key(self) -> Path:
        return self.folder / "keys" / "supernode"


@dataclass(frozen=True, kw_only=True)
class Parties:
    """Folders of a consortium's office, of the server, and of every hospital."""

    folder: Path
    hospitals: tuple[Hospital, ...]

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def registry(self) -> Path:
        """A copy of it lies with the server; hospitals pin its hash."""
        return self.server / "registry.json"

    @property
    def server_card(self) -> Path:
        """The server's public keys: hospitals pin them, too."""
        return self.server / "server.json"


def parties_in(folder: Path, count: int) -> Parties:
    """Where everybody will be; nothing is made yet."""
    hospitals = [Hospital(folder=folder / f"hospital-{number}", number=number, count=count) for number in range(count)]
    return Parties(folder=folder, hospitals=tuple(hospitals))


def set_up(parties: Parties, budgeting: Budgeting, processes: Processes) -> str:
    """Keys, registry, policies and budgets, in the order in which a consortium would. Returns the registry's hash."""
    for hospital in parties.hospitals:
        hospital.identity.parent.mkdir(mode=0o700, parents=True)
        hospital.folder.chmod(0o700)
        _lrdp(processes, "keys", "new", hospital.name, "--out", hospital.identity)
        write_records(hospital)
    digest = _signed_registry(parties, processes)
    for hospital in parties.hospitals:
        _open_budget(hospital, budgeting, parties, processes)
    return digest


def demand_digits() -> None:
    """Better one sentence now than a traceback once keys are made: the hospitals' records come with scikit-learn."""
    if find_spec("sklearn") is None:
        raise DeploymentFailed(
            "scikit-learn is missing, which has the digits that this demonstration deals to its hospitals: install "
            "what it needs with pip install 'lrdp[flower,experiments]'; nothing was set up."
        )


def write_records(hospital: Hospital) -> None:
    """This hospital's share of the digits, in a file for its guard."""
    dealt = records({"partition-id": hospital.number, "num-partitions": hospital.count})
    images, labels = dealt.columns_at(np.arange(share(hospital.count)))
    np.savez(hospital.data, images=images.numpy(), labels=labels.numpy())


def _signed_registry(parties: Parties, processes: Processes) -> str:
    office, registry = parties.folder / "office", parties.registry
    for folder in (office, parties.server):
        folder.mkdir(mode=0o700)
    made = _lrdp(processes, "keys", "new", "server", "--out", parties.server / "identity.pem")
    parties.server_card.write_text(json.dumps(made), encoding="utf-8")
    _lrdp(processes, "keys", "new", "consortium", "--out", office / "consortium.pem")
    _lrdp(processes, "registry", "new", registry, "--key", office / "consortium.pem")
    cards = [_card(hospital, office, processes) for hospital in parties.hospitals]
    _lrdp(processes, "registry", "add", registry, *cards)
    signed = _lrdp(processes, "registry", "sign", registry, "--key", office / "consortium.pem")
    return str(signed["digest"])


def _card(hospital: Hospital, office: Path, processes: Processes) -> Path:
    """What a hospital sends to the office: its public keys."""
    path = office / f"{hospital.name}.json"
    path.write_text(json.dumps(_lrdp(processes, "keys", "show", hospital.identity)), encoding="utf-8")
    return path


def _open_budget(hospital: Hospital, budgeting: Budgeting, parties: Parties, processes: Processes) -> None:
    """A policy is written, and only once the hospital has read it is its budget opened."""
    planned = ("--rounds", budgeting.rounds, "--local-steps", budgeting.local_steps)
    at_most = share(hospital.count) + 1  # one to spare
    sizes = ("--dataset-size", at_most, "--batch-size", budgeting.batch_size)
    budget = ("--epsilon", budgeting.epsilon, "--delta", budgeting.delta)
    named = ("--folder", hospital.folder, "--client", hospital.name, "--unit", "image")
    pins = ("--registry", parties.registry, "--server-key", parties.server_card, "--task", TASK)
    _lrdp(processes, "init", "--policy-only", *named, *budget, *sizes, *planned, *pins)
    _lrdp(processes, "init", "--folder", hospital.folder, *pins)


def ledger_of(hospital: Hospital, processes: Processes) -> dict[str, Any]:
    """What `lrdp ledger show` says of a hospital's books."""
    return _lrdp(processes, "ledger", "show", "--folder", hospital.folder)


def verified(receipts: Path, digest: str, processes: Processes) -> dict[str, Any]:
    """What `lrdp verify` says, for somebody who pinned the registry; raises if a round does not hold."""
    return _lrdp(processes, "verify", receipts, "--pin", digest)


def _lrdp(processes: Processes, *words: object) -> dict[str, Any]:
    command: Sequence[str] = ["lrdp", *map(str, words), "--json"]
    answer: dict[str, Any] = json.loads(processes.run(_LOG, command))
    return answer
