"""One private update: validate, redeem the receipt, and only then draw anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from lrdp.accounting import Mechanism, SizedGaussian
from lrdp.errors import InvalidInput, ReceiptRefused, Unsupported
from lrdp.ledger import Receipt
from lrdp.training.checked import CheckedGradients
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness, prepared
from lrdp.training.memory import MemoryPlan
from lrdp.training.optimisers import Moments
from lrdp.training.sampling import samplers
from lrdp.training.task import Task
from lrdp.training.units import is_by_unit


@dataclass(frozen=True)
class Update:
    """The difference that ``steps`` private steps made to the trained weights, by name. All that may be sent.

    ``moments`` are the optimiser's, for the next update of the same client, where it has ``over_rounds``: they are made
    of noised gradients alone, and stay with the client.
    """

    delta: Mapping[str, Tensor]
    steps: int
    moments: Moments | None = None


def private_update(receipt: Receipt, task: Task) -> Update:
    """The update of ``receipt.steps`` local steps from the model as it is; the model comes back unchanged.

    Guarantees: each step is the mechanism of the receipt, so the update is exactly as private as was charged. Whatever
    can be refused is refused before the receipt is redeemed, and so before anything is drawn.
    """
    check_charged(receipt, task)
    with prepared(sized(receipt.mechanism), task) as ready:
        receipt.redeem()
        ran = ready.ran(receipt.steps, from_system())
        return Update(ran.delta, receipt.steps, ran.moments)


def check_charged(receipt: Receipt, task: Task) -> None:
    """Refuse to train on what was not charged."""
    if not isinstance(receipt, Receipt):
        raise ReceiptRefused(f"a private update takes a Receipt from the ledger, got {type(receipt).__name__}.")
    if receipt.clip_norm != task.constants.clip_norm:
        raise InvalidInput(
            f"clip_norm must be the {receipt.clip_norm} that was charged, got {task.constants.clip_norm}: the policy "
            f"that paid fixes both."
        )
    if receipt.by_unit and not is_by_unit(task.dataset):
        raise InvalidInput(
            f"dataset must be a GroupedByUnit, got {type(task.dataset).__name__}: the charge was for units, so all "
            f"rows of one are drawn and clipped together; nothing was trained."
        )


def memory_plan(mechanism: SizedGaussian, task: Task) -> MemoryPlan:
    """What a step will take, and in how many rows at a time it will run; nothing is trained."""
    with prepared(sized(mechanism), task) as ready:
        return ready.memory


def check_gradients(mechanism: Mechanism, task: Task) -> CheckedGradients:
    """Refuse now whatever an update would be refused for; kept as ``Task.checked``, the result saves the check."""
    with prepared(sized(mechanism), task) as ready:
        return ready.checked


def sized(mechanism: Mechanism) -> SizedGaussian:
    """The mechanism, if it says how many rows a step may have."""
    if not isinstance(mechanism, SizedGaussian):
        raise Unsupported(
            f"{mechanism.name} steps have no public bound on the data set's size, and so none on their rows: use "
            f"{samplers()}."
        )
    return mechanism


def from_system() -> Randomness:
    """Two streams with fresh keys from the operating system."""
    return Randomness(sampling=Keystream.from_system(), noise=Keystream.from_system())
