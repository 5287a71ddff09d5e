"""What the ledger's tests stand on: a policy, keys, requests and a ledger in a folder."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from lrdp.accounting import FixedSizeGaussian, Mechanism
from lrdp.ledger import Ledger, Policy, Receipt, ReceivedModel, Reply, Request, SigningKey, parse_policy
from lrdp.ledger.store import Store

POLICY = """\
[identity]
client = "hospital-a"
unit = "patient"
max_rows_per_unit = 1

[budget]
epsilon = 8.0
delta = 1e-6
adjacency = "add-remove"
per_run_epsilon = 4.0

[mechanism]
sampling = "fixed-size"
batch_size = 128
clip_norm = 1.0
min_clip_norm = 0.25
min_noise_multiplier = 1.2
max_steps_per_round = 400
min_dataset_size = 5000

[model]
max_bytes = 200_000_000
max_abs_weight = 1e4

[peers]
registry_sha256 = ""
server_keys = []
min_roster = 3
retries = "same-roster"

[release]
metrics = []
"""
STEP = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=3.7)


def policy(**changes: str) -> Policy:
    """The policy above with some lines changed, as in ``policy(epsilon="2.0")``."""
    text = POLICY
    for key, value in changes.items():
        old = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
        text = text.replace(old, f"{key} = {value}")
    return parse_policy(text, source="policy.toml")


def digest(word: str) -> str:
    return sha256(word.encode()).hexdigest()


def request(
    number: int = 1,
    *,
    run: str = "run-1",
    model: str = "model",
    mechanism: Mechanism = STEP,
    steps: int = 39,
    clip_norm: float = 1.0,
) -> Request:
    return Request(
        run=run,
        round=number,
        model=ReceivedModel(digest=digest(model), size=1000, largest_weight=0.5),
        config_digest=digest("config"),
        mechanism=mechanism,
        steps=steps,
        clip_norm=clip_norm,
    )


@dataclass(frozen=True, kw_only=True)
class World:
    """A folder with one client's ledger and its keys."""

    folder: Path
    rules: Policy = field(default_factory=policy)
    key: SigningKey = field(default_factory=SigningKey.generate)
    administrator: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def path(self) -> Path:
        return self.folder / "ledger.db"

    def create(self, **options: Any) -> Ledger:
        return Ledger.create(
            self.path, policy=self.rules, key=self.key, administrator=self.administrator.public, **options
        )

    def open(self, **options: Any) -> Ledger:
        return Ledger.open(self.path, policy=self.rules, key=self.key, **options)

    def back_up(self, path: Path) -> None:
        """As `lrdp ledger backup` does, while the ledger may be open."""
        with closing(Store(self.path, read_only=True)) as store:
            store.copy_to(path)


def exhaust(ledger: Ledger, **asked: Any) -> None:
    """Charge round after round until one is refused."""
    for number in range(1000, 2000):
        ledger.charge(request(number, **asked))


def trained(ledger: Ledger, receipt: Receipt) -> Reply:
    """Stand in for training: redeem, and store bytes that no other training makes."""
    receipt.redeem()
    return ledger.ready(receipt, b"noised " + receipt.request_key.encode() + str(receipt.entry).encode())


def round_trip(ledger: Ledger, asked: Request) -> Reply:
    """Charge, train, store, send."""
    reply = trained(ledger, ledger.charge(asked))
    ledger.sent(reply)
    return reply
