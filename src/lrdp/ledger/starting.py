"""Starting: a policy with every line explained, keys, and an opened budget, in one folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lrdp.accounting import Adjacency, Budget, FixedSizeGaussian, Mechanism, RenyiAccountant, Training, least_noise
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost
from lrdp.ledger.administration import rotate_key
from lrdp.ledger.choice import OrdersChoice
from lrdp.ledger.export import verify
from lrdp.ledger.keys import SigningKey
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.policy import Identity
from lrdp.ledger.policy_file import read_policy

_TEMPLATE: Final = """\
# What this client allows. A server's request may be stricter, never looser. Without this file every request is refused.

[identity]
client = "{client}"
# Whom the guarantee protects, and how many rows one of them has at most: with more than 1, ε per unit is larger.
unit = "{unit}"
max_rows_per_unit = {rows}

[budget]
# The most that may ever be spent on these records, by all servers, runs and models together.
epsilon = {epsilon!r}
# The probability that the guarantee fails: well below one over the number of records. Fixed once the ledger is opened.
delta = {delta!r}
# Neighbours differ by adding or removing one record ("add-remove") or by replacing one ("replace-one"). Fixed too.
adjacency = "add-remove"
# The most that one run may spend. Leave the line out to let a run spend all.
per_run_epsilon = {epsilon!r}

[mechanism]
# Batches of constant size: memory is constant. "truncated-poisson" also needs cap, and max_dataset_size below.
sampling = "fixed-size"
# The largest batch. Smaller ones cost less.
batch_size = {batch_size}
# The longest gradient that one record may contribute.
clip_norm = 1.0
# The least noise, over the clip norm: enough for {rounds} rounds of {local_steps} steps within epsilon.
min_noise_multiplier = {noise}
# The most local steps in one round. Every step is charged.
max_steps_per_round = {local_steps}
# A public lower bound of the number of records: what is charged depends on it, never on the true number.
min_dataset_size = {dataset_size}

[model]
# Larger messages are refused before they are decoded, and so are weights that are not finite or beyond this.
max_bytes = 200_000_000
max_abs_weight = 1e4

[peers]
# SHA-256 of the consortium's registry of keys; empty while there is none.
registry_sha256 = ""

[release]
# What may leave besides the noised update: nothing.
metrics = []

# For `lrdp guard`: what is trained is this client's own code, wherever the app comes from that asks for it.
# [task]
# module = "package.module:name"
"""


@dataclass(frozen=True, kw_only=True)
class Home:
    """The files of one client."""

    folder: Path

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def key(self) -> Path:
        return self.folder / "keys" / "client.pem"

    @property
    def next_key(self) -> Path:
        """Where a new key lies until the ledger knows it."""
        return self.folder / "keys" / "client.next.pem"

    @property
    def administrator(self) -> Path:
        return self.folder / "keys" / "administrator.pem"

    def open(self) -> Ledger:
        """The ledger, open for charging."""
        return Ledger.open(self.ledger, policy=read_policy(self.policy), key=SigningKey.read(self.key))


def write_policy(home: Home, identity: Identity, training: Training) -> None:
    """A policy that keeps the training's budget exactly, with every line explained."""
    mechanism = FixedSizeGaussian(
        dataset_size=training.dataset_size, batch_size=training.batch_size, noise_multiplier=1.0
    )
    accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    found = least_noise(mechanism, training.steps, training.budget, accountant).mechanism
    text = _TEMPLATE.format(
        client=identity.client,
        unit=identity.unit,
        rows=identity.max_rows_per_unit,
        epsilon=training.budget.epsilon,
        delta=training.budget.delta,
        batch_size=training.batch_size,
        rounds=training.rounds,
        local_steps=training.local_steps,
        noise=f"{AtMost(found.noise_multiplier):.3f}",
        dataset_size=training.dataset_size,
    )
    home.folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(home.policy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        raise InvalidInput(f"there is a policy at {home.policy} already: it is not overwritten.") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def open_budget(home: Home, plan_rounds: int) -> Ledger:
    """Make the keys and the ledger of the policy in this folder, once.

    The filter commits to the order that is best for so many rounds of the policy's costliest kind.
    """
    policy = read_policy(home.policy)
    if home.key.exists():
        raise InvalidInput(
            f"there is a key at {home.key} already, so its ledger was opened before: restore the ledger's backup, "
            f"or move the keys away if the records are new."
        )
    rule = policy.mechanism
    budget: Budget = policy.budget.total
    plan: dict[Mechanism, int] = {rule.costliest: rule.max_steps_per_round * plan_rounds}
    choice = OrdersChoice.committed(budget, policy.budget.adjacency, plan)
    key, administrator = SigningKey.generate(), SigningKey.generate()
    home.key.parent.mkdir(mode=0o700, exist_ok=True)
    ledger = Ledger.create(home.ledger, policy=policy, key=key, administrator=administrator.public, choice=choice)
    administrator.write(home.administrator)
    key.write(home.key)
    return ledger


def replace_key(home: Home) -> SigningKey:
    """Make a new key, let the old one hand over to it, and put it in the old one's place.

    The old key is kept beside it: a backup from before the rotation needs it. After a crash, calling this again ends
    what was begun.
    """
    if not home.next_key.exists():
        SigningKey.generate().write(home.next_key)
    new = SigningKey.read(home.next_key)
    if home.key.exists():
        old = SigningKey.read(home.key)
        if verify(home.ledger).books.client_key != new.public:
            with home.open() as ledger:
                rotate_key(ledger, old, new)
        home.key.replace(home.key.with_name(f"client-{old.public[:16]}.pem"))
    home.next_key.replace(home.key)
    return new
