"""For studies alone: updates without a ledger, and randomness that can be repeated.

Whoever knows the key of the noise can take it off, so an update made with a seeded key is not private. No room that
serves real clients imports this module (an import contract), and nothing that is configured or sent reaches it.
"""

from __future__ import annotations

import json
from hashlib import sha256

from lrdp import limits
from lrdp.accounting import SizedGaussian
from lrdp.ledger import Receipt
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness, prepared
from lrdp.training.task import Task
from lrdp.training.update import Update, check_charged, from_system, sized


def seeded_randomness(seed: int, client: int, number: int) -> Randomness:
    """The streams of one client in round ``number`` of a study: the same for the same three numbers."""

    def stream(purpose: str) -> Keystream:
        return Keystream(sha256(json.dumps(["study", seed, client, number, purpose]).encode()).digest())

    return Randomness(sampling=stream("sampling"), noise=stream("noise"))


def unaccounted_private_update(
    mechanism: SizedGaussian, steps: int, task: Task, randomness: Randomness | None = None
) -> Update:
    """The update of ``steps`` local steps, without a ledger or a budget: whoever calls it accounts for every call.

    Guarantees: each step is ``mechanism``. Nothing is charged, so calling it twice costs twice and no one knows.
    Without ``randomness`` it comes from the operating system.

    >>> import torch
    >>> from lrdp.accounting import FixedSizeGaussian
    >>> from lrdp.training import PublicConstants, Sgd, TensorRecords
    >>> mechanism = FixedSizeGaussian(dataset_size=40, batch_size=8, noise_multiplier=1.0)
    >>> constants = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.5))
    >>> records = TensorRecords(torch.rand(50, 4), torch.arange(50) % 3)
    >>> loss = torch.nn.functional.cross_entropy
    >>> task = Task(model=torch.nn.Linear(4, 3), dataset=records, loss=loss, constants=constants)
    >>> update = unaccounted_private_update(mechanism, 2, task)
    >>> {name: tuple(change.shape) for name, change in update.delta.items()}
    {'weight': (3, 4), 'bias': (3,)}
    """
    steps = limits.whole("steps", steps, 1, "an update takes at least one step")
    with prepared(sized(mechanism), task) as ready:
        ran = ready.ran(steps, randomness or from_system())
        return Update(ran.delta, steps, ran.moments)


def seeded_update(receipt: Receipt, task: Task, randomness: Randomness) -> Update:
    """What a paid update would be with this randomness: charged in full, and as private as the key is secret."""
    check_charged(receipt, task)
    with prepared(sized(receipt.mechanism), task) as ready:
        receipt.redeem()
        ran = ready.ran(receipt.steps, randomness)
        return Update(ran.delta, receipt.steps, ran.moments)
