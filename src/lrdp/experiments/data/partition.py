"""Who has which records. Every client has the same number, so that a share's size is public and says nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lrdp import limits
from lrdp.errors import InvalidInput

Shares = list[NDArray[np.int64]]


def dealt(labels: Tensor, clients: int, seed: int) -> Shares:
    """Record numbers for each client, dealt out by lot like cards; what does not go round is left in the box."""
    share = _share(labels, clients)
    return list(np.random.default_rng(seed).permutation(len(labels))[: clients * share].reshape(clients, share))


def dirichlet(labels: Tensor, clients: int, alpha: float, seed: int) -> Shares:
    """The same number for each client, with a mixture of classes drawn from a Dirichlet law of its own.

    Its parameters are ``alpha`` for a class of mean size and in proportion for others: the smaller, the fewer classes
    a client has. Clients take turns at drawing one record, of a class by their own mixture among those of which some
    are left; so towards the end they take what there is, as the sum over all clients demands.
    """
    limits.positive("alpha", alpha, "it is the parameter of a Dirichlet law")
    share, random = _share(labels, clients), np.random.default_rng(seed)
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    heaps = [random.permutation(np.flatnonzero(labels.numpy() == each)) for each in classes]
    mixtures = random.dirichlet(alpha * counts / counts.mean(), size=clients)
    taken = _taken(mixtures, counts, share, random)
    ends = np.cumsum(taken, axis=0)
    begins = ends - taken
    return [
        random.permutation(np.concatenate([heap[a:b] for heap, a, b in zip(heaps, first, last, strict=True)]))
        for first, last in zip(begins, ends, strict=True)
    ]


def _taken(
    mixtures: NDArray[np.float64], counts: NDArray[np.int64], share: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """How many of each class each client takes; every row sums to ``share``."""
    left, taken = counts.copy(), np.zeros(mixtures.shape, dtype=np.int64)
    for _ in range(share):
        for client in random.permutation(len(mixtures)):
            # Where all that a client likes is gone it takes what there is, in proportion.
            liked = mixtures[client] * (left > 0)
            weights = liked if liked.sum() > 0 else left.astype(np.float64)
            chosen = int(np.searchsorted(np.cumsum(weights), random.random() * weights.sum(), side="right"))
            taken[client, chosen] += 1
            left[chosen] -= 1
    return taken


def _share(labels: Tensor, clients: int) -> int:
    limits.whole("clients", clients, 1, "somebody must have the records")
    if clients > len(labels):
        raise InvalidInput(
            f"clients must be at most the {len(labels)} records, got {clients}: each has at least one. Nothing was run."
        )
    return len(labels) // clients
