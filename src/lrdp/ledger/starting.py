"""Starting: a policy with every line explained, keys, and an opened budget, in one folder."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lrdp import files
from lrdp.accounting import Training
from lrdp.errors import InvalidInput, LedgerUnwritable
from lrdp.ledger.administration import rotate_key
from lrdp.ledger.drafting import FIXED_SIZE, PolicyDraft, draft
from lrdp.ledger.export import verify_export
from lrdp.ledger.key_files import SigningKey
from lrdp.ledger.ledger import Ledger
from lrdp.ledger.opening import promised
from lrdp.ledger.policy import Holder, PeersRule
from lrdp.ledger.policy_file import parse_policy, read_policy
from lrdp.ledger.store import unmake


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
    """A policy of fixed-size batches that keeps the training's budget exactly; without peers it joins nobody."""
    write_draft(home, draft(identity, training, peers or PeersRule(), FIXED_SIZE))


def write_draft(home: Home, drafted: PolicyDraft) -> None:
    """The policy of a new client, in a folder for its owner alone; an existing one is never overwritten."""
    parse_policy(drafted.text(), source=str(home.policy))  # what could not be read is not written
    _make_folder(home.folder)
    try:
        files.write_new(home.policy, drafted.text().encode(), files.PUBLIC)
    except FileExistsError:
        raise InvalidInput(f"there is a policy at {home.policy} already: it is not overwritten.") from None
    except OSError as problem:
        raise InvalidInput(f"the policy {home.policy} cannot be written: {problem.strerror}.") from None


def open_budget(home: Home, plan_rounds: int | None = None) -> Ledger:
    """Make the keys and the ledger of the policy in this folder, once: all of them, or none where the disk is full.

    The filter is the one that affords the most rounds of the policy's costliest kind; ``plan_rounds`` commits a Rényi
    order to that many instead.

    Raises:
        InvalidInput: if the policy does not afford a single round, or the budget was opened before.
    """
    policy = read_policy(home.policy)
    require_unopened(home)
    if home.key.exists():
        raise InvalidInput(
            f"there is a key at {home.key} already, so its ledger was opened before: restore the ledger's backup, "
            f"or move the keys away if the records are new."
        )
    if os.path.lexists(home.ledger):
        raise InvalidInput(
            f"there is a ledger at {home.ledger} and no key at {home.key}, so nothing was opened. If the key is lost, "
            f"restore it from the backup: no other opens this ledger. If `lrdp init` was cut short here, so that "
            f"nothing was ever spent, move the ledger and {home.key.parent} away and run it again."
        )
    rule = promised(policy, plan_rounds).kept().rule
    key, administrator = SigningKey.generate(), SigningKey.generate()
    with ExitStack() as undo:
        _make_folder(home.key.parent)
        try:
            ledger = Ledger.create(home.ledger, policy=policy, key=key, administrator=administrator.public, rule=rule)
        except LedgerUnwritable:  # not where somebody else's file is there, which is another error
            unmake(home.ledger)
            raise
        undo.callback(unmake, home.ledger)
        undo.callback(ledger.close)
        administrator.write(home.administrator)
        undo.callback(unmake, home.administrator)
        key.write(home.key)
        undo.pop_all()
    return ledger


def require_unopened(home: Home) -> None:
    """Raise InvalidInput where the budget is open.

    >>> require_unopened(Home(folder=Path("a-hospital-that-is-new")))
    """
    if home.key.exists() and home.ledger.exists():
        raise InvalidInput(
            f"the budget is open already: {home.ledger} is here, and so is its key; nothing was changed. "
            f"`lrdp ledger show` says what is left of it."
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"the folder {folder} cannot be made: {problem.strerror}; nothing was opened.") from None


def replace_key(home: Home) -> SigningKey:
    """Make a new key, let the old one hand over to it, and put it in the old one's place.

    The old key is kept beside it: a backup from before the rotation needs it. After a crash, calling this again
    finishes what was begun. Without the key in force nothing is written: no other key can hand over, and none would
    open the ledger.
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
        try:
            rotate_key(ledger, old, new)
        except LedgerUnwritable as problem:  # the new key stays: a disk that failed may have the entry all the same
            raise LedgerUnwritable(
                f"{problem} The new key is kept at {home.next_key}: rotate again, and it is taken up."
            ) from None
    return new
