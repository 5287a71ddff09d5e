"""Why a request is refused: constants, so that an error reply says nothing about the data."""

from __future__ import annotations

from enum import Enum
from typing import Final

MOST_LISTED: Final = 16
"""Refusals that are written in full between two charges; what goes beyond is counted."""


class Refusal(Enum):
    """The reason, as it is recorded and as the server is told."""

    NO_POLICY = "no-policy"
    OTHER_LEDGER = "other-ledger"
    SUSPENDED = "suspended"
    CLOSED = "closed"
    SAMPLING = "sampling"
    BATCH_SIZE = "batch-size"
    DATASET_SIZE = "dataset-size"
    NOISE = "noise"
    CLIP_NORM = "clip-norm"
    STEPS = "steps"
    MODEL_SIZE = "model-size"
    MODEL_WEIGHTS = "model-weights"
    REGISTRY = "registry"
    SERVER = "server"
    ROSTER = "roster"
    SCHEME = "scheme"
    METRICS = "metrics"
    RECHARGE = "recharge"
    BUDGET = "budget"
    RUN_QUOTA = "run-quota"

    @property
    def is_about_budget(self) -> bool:
        """Whether more budget would have admitted it."""
        return self in (Refusal.BUDGET, Refusal.RUN_QUOTA)
