"""One private update: clipped, noised and in bounded memory, at about the cost of a plain one.

A *task* says what to train on what; the ledger's *receipt* says how private, and that it is paid for. The *engine* has
the sum of clipped per-example gradients by one backward pass; nothing of size examples × parameters is ever held.
"""

from lrdp.training.checked import CheckedGradients
from lrdp.training.constants import Execution, PublicConstants
from lrdp.training.features import Features, cached_features
from lrdp.training.inspection import Layer, ModelReport, check
from lrdp.training.losses import CheckedLoss, CheckedRecords, CrossEntropy, NamedCrossEntropy, check_records
from lrdp.training.memory import MemoryPlan, keep_freed_blocks, return_large_blocks
from lrdp.training.optimisers import Adam, AdamW, Optimiser, Sgd
from lrdp.training.padding import Padded
from lrdp.training.progress import StepDone, progress_bar
from lrdp.training.records import Dataset, TensorRecords
from lrdp.training.replacement import replace_batch_norm
from lrdp.training.research import unaccounted_private_update
from lrdp.training.rounding import clip_target
from lrdp.training.schedules import Constant, Schedule, Staircase, WarmupCosine
from lrdp.training.task import Task
from lrdp.training.update import Update, check_gradients, memory_plan, private_update

__all__ = [
    "Adam",
    "AdamW",
    "CheckedGradients",
    "CheckedLoss",
    "CheckedRecords",
    "Constant",
    "CrossEntropy",
    "Dataset",
    "Execution",
    "Features",
    "Layer",
    "MemoryPlan",
    "ModelReport",
    "NamedCrossEntropy",
    "Optimiser",
    "Padded",
    "PublicConstants",
    "Schedule",
    "Sgd",
    "Staircase",
    "StepDone",
    "Task",
    "TensorRecords",
    "Update",
    "WarmupCosine",
    "cached_features",
    "check",
    "check_gradients",
    "check_records",
    "clip_target",
    "keep_freed_blocks",
    "memory_plan",
    "private_update",
    "progress_bar",
    "replace_batch_norm",
    "return_large_blocks",
    "unaccounted_private_update",
]
