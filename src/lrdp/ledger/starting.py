"""Starting: a policy with every line explained, keys, and an opened budget, in one folder."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lrdp import files
from lrdp.accounting import (
    Adjacency,
    Budget,
    FixedSizeGaussian,
    Mechanism,
    RenyiAccountant,
    RenyiOrders,
    Training,
    least_noise,
)
from lrdp.errors import InvalidInput, LedgerUnwritable
from lrdp.figures import AtMost
from lrdp.ledger.administration import rotate_key
from lrdp.ledger.export import verify_export
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.policy import Holder, PeersRule
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
# The most that one server may spend, over all its sessions. Leave the line out to let a server spend all.
per_run_epsilon = {epsilon!r}

[mechanism]
# Batches of constant size: memory is constant. "truncated-poisson" also needs cap, and max_dataset_size below.
sampling = "fixed-size"
# The largest batch. Smaller ones cost less.
batch_size = {batch_size}
# The longest gradient that one record may contribute.
clip_norm = 1.0
# The shortest that a server may ask to cut it to: a smaller one would spend the budget on updates that say nothing.
min_clip_norm = 0.1
# The least noise, over the clip norm: enough for {rounds} rounds of {local_steps} steps within epsilon.
min_noise_multiplier = {noise}
# The most local steps in one round. Every step is charged.
max_steps_per_round = {local_steps}
# A public lower bound of the number of records: what is charged depends on it, never on the true number. State one
# that leaves a record to spare: whether training starts must not hang on a single record.
min_dataset_size = {dataset_size}

[model]
# Larger messages are refused before they are decoded, and so are weights that are not finite or beyond this.
max_bytes = 200_000_000
max_abs_weight = 1e4

{peers}
[release]
# What may leave besides the noised update: nothing.
metrics = []

# For `lrdp guard`: what is trained is this client's own code, wherever the app comes from that asks for it.
# [task]
# module = "package.module:name"
"""

_PEERS: Final = """\
[peers]
# SHA-256 of the consortium's registry of keys; empty while there is none, and then no session is joined.
registry_sha256 = "{peers.registry_sha256}"
# Whose sessions are joined: the servers' Ed25519 keys, as `lrdp keys show` prints them. Empty: nobody's.
server_keys = [{server_keys}]
# The fewest participants of a round. So many must collude to forge a round for a client that was absent, so a majority
# of the registry is a good choice; 3 is the least, because of two each could subtract itself from the sum.
min_roster = {peers.min_roster}
# A round that somebody left is tried again with the same participants or given up ("same-roster"), or also without them
# ("smaller-roster"): then the others can see the difference of two sums, which is one noised update.
retries = "{peers.retries}"
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


def write_policy(home: Home, identity: Holder, training: Training, peers: PeersRule | None = None) -> None:
    """A policy that keeps the training's budget exactly, with every line explained; without peers it joins nobody."""
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
        peers=peers_lines(peers or PeersRule()),
    )
    _make_folder(home.folder)
    try:
        files.write_new(home.policy, text.encode(), files.PUBLIC)
    except FileExistsError:
        raise InvalidInput(f"there is a policy at {home.policy} already: it is not overwritten.") from None
    except OSError as problem:
        raise InvalidInput(f"the policy {home.policy} cannot be written: {problem.strerror}.") from None


def peers_lines(peers: PeersRule) -> str:
    """The policy's table of peers, every line explained."""
    return _PEERS.format(peers=peers, server_keys=", ".join(f'"{key}"' for key in peers.server_keys))


def open_budget(home: Home, plan_rounds: int) -> Ledger:
    """Make the keys and the ledger of the policy in this folder, once: all of them, or none where the disk is full.

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
    orders = RenyiOrders.committed(budget, policy.budget.adjacency, plan)
    key, administrator = SigningKey.generate(), SigningKey.generate()
    with ExitStack() as undo:
        _make_folder(home.key.parent, mode=0o700)
        try:
            ledger = Ledger.create(home.ledger, policy=policy, key=key, administrator=administrator.public, rule=orders)
        except LedgerUnwritable:  # and not where somebody else's is there, which is another error
            _unmake(home.ledger)
            raise
        undo.callback(_unmake, home.ledger)
        undo.callback(ledger.close)
        administrator.write(home.administrator)
        undo.callback(_unmake, home.administrator)
        key.write(home.key)
        undo.pop_all()
    return ledger


def _make_folder(folder: Path, mode: int = 0o777) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"the folder {folder} cannot be made: {problem.strerror}; nothing was opened.") from None


def _unmake(path: Path) -> None:
    """Away with what was begun and could not be ended, so that it can be begun again: no key was ever there to charge.

    SQLite's journal goes too: it would be played back into the ledger that is made next.
    """
    for begun in (path, path.with_name(f"{path.name}-journal")):
        begun.unlink(missing_ok=True)


def replace_key(home: Home) -> SigningKey:
    """Make a new key, let the old one hand over to it, and put it in the old one's place.

    The old key is kept beside it: a backup from before the rotation needs it. After a crash, calling this again ends
    what was begun. Without the key in force nothing is written: no other key can hand over, and none would open the
    ledger.
    """
    in_force = verify_export(home.ledger).books.client_key
    new = SigningKey.read(home.next_key) if home.next_key.exists() else None
    if new is None or new.public != in_force:
        new = _handed_over(home, new)
    if home.key.exists():
        files.rename(home.key, home.key.with_name(f"client-{SigningKey.read(home.key).public[:16]}.pem"))
    files.rename(home.next_key, home.key)
    return new


def _handed_over(home: Home, begun: SigningKey | None) -> SigningKey:
    """The new key, on disk before the ledger knows it; ``begun`` if a call before this one made it."""
    if not home.key.exists():
        raise InvalidInput(
            f"there is no key at {home.key}, and only the key in force can hand over to a new one: nothing was "
            f"changed; restore it from the backup."
        )
    old = SigningKey.read(home.key)
    with home.open() as ledger:
        new = begun or SigningKey.generate()
        if begun is None:
            new.write(home.next_key)
        rotate_key(ledger, old, new)
    return new
