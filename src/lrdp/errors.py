"""Every error raised on purpose, as a tree.

::

    LrdpError
    ├── InvalidInput            a value outside its limits: exit code 2
    │   ├── Unsupported         a combination without a sound bound: exit code 2
    │   └── Malformed           bytes that do not encode what is read there: exit code 2
    ├── OutOfReach              no noise and no number of steps meets the target: exit code 2
    ├── Refused                 a request turned down, at no cost: exit code 4
    │   ├── BudgetExceeded      the charge does not fit what is left: exit code 3
    │   └── PolicyRefused       the client's policy forbids it: exit code 4
    ├── AlreadyAnswered         the request has its reply: send those bytes again: exit code 2
    ├── ReceiptRefused          a receipt that pays for nothing (any more): exit code 4
    ├── NotVerified             the round, receipt or registry is not proved honest: exit code 5
    ├── NoVerifiedRound         a run ended without one, so there is no model: exit code 5
    └── LedgerDamaged           the books cannot be trusted: exit code 6
        ├── LedgerRolledBack    they are older than a head they signed, or contradict it: exit code 6
        └── LedgerUnwritable    they cannot be written, so nothing may be released: exit code 6

Each message gives the value, the limit and the reason, in one sentence.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar


class LrdpError(Exception):
    """The root: catch it to catch everything this package raises on purpose.

    >>> from lrdp import Budget, LrdpError
    >>> try:
    ...     Budget(epsilon=-1.0, delta=1e-5)
    ... except LrdpError as problem:
    ...     problem.exit_code, str(problem)
    (2, 'epsilon must be above 0 and finite, got -1.0: a budget of nothing allows no step.')
    """

    exit_code: ClassVar[int] = 1


class InvalidInput(LrdpError, ValueError):
    """A value outside its limits; ``field`` is its name, where it has one."""

    exit_code = 2

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Unsupported(InvalidInput):
    """A combination of mechanism, adjacency and accountant for which no sound bound is known."""


class Malformed(InvalidInput):
    """Bytes or a text that do not encode what is read there, or not in its one encoding."""


class OutOfReach(LrdpError):
    """A target that no admissible value meets."""

    exit_code = 2


class Refused(LrdpError):
    """A request turned down before anything was trained or spent; ``refusal`` is the reason as a constant."""

    exit_code = 4

    def __init__(self, message: str, refusal: Enum) -> None:
        super().__init__(message)
        self.refusal = refusal


class BudgetExceeded(Refused):
    """The charge does not fit what is left of the budget, or of the run's share."""

    exit_code = 3


class PolicyRefused(Refused):
    """The client's policy forbids the request, or there is no policy."""


class AlreadyAnswered(LrdpError):
    """The request was paid for and answered: the stored reply is sent again, and nothing is charged."""

    exit_code = 2


class ReceiptRefused(LrdpError):
    """A receipt that was redeemed before, comes from another process, or was not issued by a ledger."""

    exit_code = 4


class LedgerDamaged(LrdpError):
    """The books cannot be trusted: nothing is released from them until an administrator has looked."""

    exit_code = 6


class LedgerRolledBack(LedgerDamaged):
    """The books are older than a head they signed, or contradict it: a restored backup or a cloned machine."""


class LedgerUnwritable(LedgerDamaged):
    """The books cannot be written (disk full, read-only, locked): what cannot be recorded is not released."""


class NoVerifiedRound(LrdpError):
    """A run that ended, for the reason given, without a single verified round: there is no model to return."""

    exit_code = 5


class NotVerified(LrdpError):
    """A round, receipt or registry that is not proved honest; ``verdict`` is the reason as a constant."""

    exit_code = 5

    def __init__(self, message: str, verdict: Enum) -> None:
        super().__init__(message)
        self.verdict = verdict
