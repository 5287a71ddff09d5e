"""A client's folder: policy, keys and ledger as `lrdp init` made them, and the identity it has among its peers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lrdp.errors import InvalidInput, LedgerDamaged
from lrdp.integrity import Identity, load_identity
from lrdp.ledger import Home, Ledger, Policy, read_policy

LOCK_FILE: Final = "lock"
"""In the folder where a client stands: there from its first message on, whether or not it entered a session."""


@dataclass(frozen=True, kw_only=True)
class ClientHome:
    """The files of one client in federations."""

    folder: Path

    @property
    def identity_file(self) -> Path:
        """The keys that sign updates and agree on masks."""
        return self.folder / "keys" / "identity.pem"

    @property
    def standing(self) -> Path:
        """Where the client stands in the session it is in."""
        return self.folder / "session"

    def policy(self) -> Policy:
        """Read again each time: an administrator's change counts from the next message on."""
        return read_policy(Home(folder=self.folder).policy)

    def ledger(self) -> Ledger:
        """Open for charging; raises LedgerDamaged where its key is here and the ledger is gone."""
        home = Home(folder=self.folder)
        if home.key.exists() and not home.ledger.exists():
            raise LedgerDamaged(
                f"the ledger {home.ledger} is gone, and what it charged is not known without it: restore its backup "
                f"with `lrdp ledger restore`."
            )
        return home.open()

    def require_budget(self) -> None:
        """Refuse where no budget was ever opened: a place in a session says that there is one, to `lrdp init` too."""
        home = Home(folder=self.folder)
        if not (home.key.exists() or home.ledger.exists()):
            raise InvalidInput(
                f"no budget is open in {self.folder}: `lrdp init --folder {self.folder}` opens it as the policy there "
                f"says; no session was entered and nothing was spent."
            )

    def identity(self) -> Identity:
        """The client's keys; that they are those of the policy's client is for whoever uses them to check."""
        if not self.identity_file.exists():
            raise InvalidInput(
                f"there is no identity at {self.identity_file}: make one with `lrdp keys new`, and have the consortium "
                f"add it to the registry."
            )
        return load_identity(self.identity_file)
