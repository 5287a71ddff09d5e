"""The receipt: what lets training run, once.

Guarantees: a receipt exists only after its charge is durable, cannot be copied, pickled or carried into a forked
process, and is redeemed at most once. So all noise was paid for before it was drawn.
"""

from __future__ import annotations

import os
import threading
from dataclasses import InitVar, dataclass, field
from typing import NoReturn

from lrdp.accounting import Mechanism
from lrdp.errors import ReceiptRefused

_SEAL = object()


class _Once:
    """A latch that gives way a single time, whichever thread comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.used = False

    def use(self) -> bool:
        with self._lock:
            first, self.used = not self.used, True
            return first


@dataclass(frozen=True, kw_only=True, eq=False)
class Receipt:
    """A durable charge of ``steps`` steps of ``mechanism``: entry ``entry`` of the ledger, for one request.

    ``by_unit`` says that it was charged for units: what is trained on it has one record for each.

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.2)
    >>> Receipt(mechanism=step, steps=1, clip_norm=1.0, request_key="", entry=1)
    Traceback (most recent call last):
    lrdp.errors.ReceiptRefused: a Receipt comes from Ledger.charge alone: one made by hand has paid for nothing.
    """

    mechanism: Mechanism
    steps: int
    clip_norm: float
    request_key: str
    entry: int
    by_unit: bool = False
    seal: InitVar[object] = None
    _process: int = field(default_factory=os.getpid, init=False, repr=False)
    _once: _Once = field(default_factory=_Once, init=False, repr=False)

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise ReceiptRefused("a Receipt comes from Ledger.charge alone: one made by hand has paid for nothing.")

    @property
    def redeemed(self) -> bool:
        """Whether training has begun on it."""
        return self._once.used

    def redeem(self) -> None:
        """Use it up; call before the first sample is drawn.

        Raises:
            ReceiptRefused: on the second call, or in another process than the one that paid.
        """
        if os.getpid() != self._process:
            raise ReceiptRefused(
                f"the receipt of entry {self.entry} was issued to another process: charge again in this one, for a "
                f"fork would draw noise twice for one payment."
            )
        if not self._once.use():
            raise ReceiptRefused(
                f"the receipt of entry {self.entry} was redeemed before: each training is paid for separately."
            )

    def __reduce__(self) -> NoReturn:
        """Neither pickled nor copied: two receipts would train twice on one charge."""
        raise ReceiptRefused(
            f"the receipt of entry {self.entry} cannot be copied: each training is paid for separately."
        )


def issue(
    *, mechanism: Mechanism, steps: int, clip_norm: float, request_key: str, entry: int, by_unit: bool = False
) -> Receipt:
    """For the ledger, after the charge is on disk."""
    return Receipt(
        mechanism=mechanism,
        steps=steps,
        clip_norm=clip_norm,
        request_key=request_key,
        entry=entry,
        by_unit=by_unit,
        seal=_SEAL,
    )
