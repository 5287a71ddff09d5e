"""What it costs: numbers in, numbers out.

A *mechanism* is an immutable value that says what one private step does. It knows its *dominating pair*; an
*accountant* folds a history of steps into (ε, δ) by reading pairs; *calibration* inverts an accountant; a *filter* says
when an adaptive client must stop; a *fleet* holds the books of many clients.

>>> from lrdp.accounting import Adjacency, FixedSizeGaussian, RenyiAccountant
>>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
>>> spent = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE).epsilon({step: 10_000}, delta=1e-5)
>>> round(spent.epsilon, 2)
6.0
"""

from lrdp.accounting.accountants import (
    Accountant,
    History,
    PldAccountant,
    PrivacySpent,
    RenyiAccountant,
    SteadyAccountant,
    TaylorAccountant,
    checked_history,
)
from lrdp.accounting.calibration import Budget, Calibrated, least_noise, most_rounds, quietest_batch
from lrdp.accounting.filter_rules import SPREAD, FilterRule, RenyiOrders, ReservedSlots, readings
from lrdp.accounting.filters import Filter, FilterAnswer
from lrdp.accounting.fleet import FLEET_CHUNK, Fleet
from lrdp.accounting.frontier import (
    LEAST_STEPS,
    BatchFrontier,
    Candidate,
    PlanTrial,
    TrainingAim,
    baselines,
    calibrated,
    close,
    finals,
    kept,
    trials,
)
from lrdp.accounting.groups import GroupAccountant, for_group
from lrdp.accounting.mechanisms import (
    CLIP_HEADROOM,
    MECHANISMS,
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    FullBatchGaussian,
    Gaussian,
    Mechanism,
    PoissonGaussian,
    PublicSizes,
    SampledGaussian,
    SizedGaussian,
    TruncatedPoissonGaussian,
    costliest_of,
)
from lrdp.accounting.planning import Option, Plan, PlanRecipe, Training, options, recipes
from lrdp.accounting.risk import FALSE_POSITIVES, Risk, TradeOff, guess_rate, trade_off

__all__ = [
    "CLIP_HEADROOM",
    "FALSE_POSITIVES",
    "FLEET_CHUNK",
    "LEAST_STEPS",
    "MECHANISMS",
    "SPREAD",
    "Accountant",
    "Adjacency",
    "BatchFrontier",
    "Budget",
    "Calibrated",
    "Candidate",
    "Filter",
    "FilterAnswer",
    "FilterRule",
    "FixedSizeGaussian",
    "FixedSizeWithReplacementGaussian",
    "Fleet",
    "FullBatchGaussian",
    "Gaussian",
    "GroupAccountant",
    "History",
    "Mechanism",
    "Option",
    "Plan",
    "PlanRecipe",
    "PlanTrial",
    "PldAccountant",
    "PoissonGaussian",
    "PrivacySpent",
    "PublicSizes",
    "RenyiAccountant",
    "RenyiOrders",
    "ReservedSlots",
    "Risk",
    "SampledGaussian",
    "SizedGaussian",
    "SteadyAccountant",
    "TaylorAccountant",
    "TradeOff",
    "Training",
    "TrainingAim",
    "TruncatedPoissonGaussian",
    "baselines",
    "calibrated",
    "checked_history",
    "close",
    "costliest_of",
    "finals",
    "for_group",
    "guess_rate",
    "kept",
    "least_noise",
    "most_rounds",
    "options",
    "quietest_batch",
    "readings",
    "recipes",
    "trade_off",
    "trials",
]
