"""What an order of the server's comes to for this client: the request that its ledger decides on."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from lrdp.errors import InvalidInput
from lrdp.federation.wire.orders import Order
from lrdp.integrity import MODEL, Model, Position
from lrdp.ledger import Policy, ReceivedModel, Request


def requested(
    order: Order, policy: Policy, position: Position, model: Model, registries: Sequence[bytes] = ()
) -> Request:
    """What is left out is the policy's own. The same order in the same round on the same model is the same request.

    ``registries`` are those that led to the one in force: the ledger is told of the one among them that is pinned.
    """
    rule, pin, newest = policy.mechanism, policy.peers.registry_sha256, position.session.registry.digest.hex()
    most = 1 if order.metrics else rule.max_steps_per_round
    if order.metrics and order.steps not in (None, 1):
        raise InvalidInput(f"a count is one step, got {order.steps}: nothing was counted and nothing was spent.")
    asked: dict[str, Any] = {"batch_size": order.batch_size, "noise_multiplier": order.noise_multiplier}
    mechanism = rule.costliest.varied(**{name: value for name, value in asked.items() if value is not None})
    received = ReceivedModel(
        digest=position.model.hex(), size=model.size * MODEL.itemsize, largest_weight=float(np.abs(model).max())
    )
    return Request(
        run=position.session.digest.hex(),
        round=position.round,
        model=received,
        config_digest=sha256(order.encode()).hexdigest(),
        mechanism=mechanism,
        steps=most if order.steps is None else order.steps,
        clip_norm=rule.clip_norm if order.clip_norm is None else order.clip_norm,
        registry_sha256=pin if pin in {digest.hex() for digest in registries} else newest,
        server=position.session.server_key.hex(),
        metrics=order.metrics,
    )
