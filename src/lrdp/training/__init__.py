"""One private update: clipped, noised and in bounded memory, at about the cost of a plain one.

A *task* says what to train on what; the ledger's *receipt* says how private, and that it is paid for. The *engine*
takes the sum of clipped per-example gradients in one backward pass; nothing of size examples × parameters is ever held.

A task is what people write anyway, and it says how it was understood:

>>> from dataclasses import replace
>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> import torch
>>> from lrdp.accounting import Budget
>>> from lrdp.accounting import Training as Plan
>>> from lrdp.ledger import Holder, Home, ReceivedModel, Request, open_budget, write_policy
>>> from lrdp.training import *
>>> task = Task(
...     model=torch.nn.Linear(4, 3),
...     dataset=TensorRecords(torch.rand(50, 4), torch.arange(50) % 3),
...     loss=torch.nn.functional.cross_entropy,
...     constants=PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.5)),
... )
>>> understood(task)[0]
"The loss is torch's cross_entropy of each example by itself, never of a batch."
>>> check(task.model).trainable, public_records(task)[0].shape[1:]
(True, torch.Size([4]))

A client opens its budget, and has the task checked before anything is charged, once for all rounds:

>>> temporary = TemporaryDirectory()
>>> home = Home(folder=Path(temporary.name))
>>> plan = Plan(dataset_size=40, batch_size=8, rounds=5, local_steps=3, budget=Budget(epsilon=8.0, delta=1e-4))
>>> write_policy(home, Holder(client="hospital-a", unit="patient", max_rows_per_unit=1), plan)
>>> ledger = open_budget(home)
>>> step = ledger.policy.mechanism.costliest
>>> check_dataset(task.dataset)
>>> check_room(step, len(task.dataset))
>>> task = replace(task, checked=check_gradients(step, task))
>>> memory_plan(step, task).micro_batch
8
>>> with prepared(step, task) as ready:  # what an update does first
...     ready.checked.alone
''

It pays, and only then is anything drawn:

>>> request = Request(
...     run="run-1",
...     round=1,
...     model=ReceivedModel(digest="0" * 64, size=60, largest_weight=0.5),
...     config_digest="1" * 64,
...     mechanism=step,
...     steps=3,
...     clip_norm=1.0,
... )
>>> update = private_update(ledger.charge(request), task)
>>> update.steps, {name: tuple(change.shape) for name, change in update.delta.items()}
(3, {'weight': (3, 4), 'bias': (3,)})
>>> ledger.close()
>>> temporary.cleanup()
"""

from lrdp.training.checked import CheckedGradients
from lrdp.training.checked_records import CheckedRecords, check_records, unread_records, without_loss
from lrdp.training.clipping import AutomaticClipping, Clipping, FlatClipping
from lrdp.training.constants import Execution, PublicConstants
from lrdp.training.feature_moments import FeatureMoments, FeatureSum, Standardised, moments_task
from lrdp.training.features import Features, cached_features
from lrdp.training.idioms import understood
from lrdp.training.inspection import Layer, ModelReport, check
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness, prepared
from lrdp.training.losses import CrossEntropy, ExampleLoss, NamedCrossEntropy
from lrdp.training.memory import LiveBytes, MemoryPlan, keep_freed_blocks, return_large_blocks
from lrdp.training.optimisers import Adam, AdamW, Moments, Optimiser, Sgd
from lrdp.training.padding import Padded
from lrdp.training.probes import public_records
from lrdp.training.progress import ObserveStep, StepDone, progress_bar, silence
from lrdp.training.records import Dataset, TensorRecords, check_dataset
from lrdp.training.replacement import StandardisedConv2d, replace_batch_norm, standardise_weights
from lrdp.training.research import unaccounted_private_update
from lrdp.training.rounding import clip_target
from lrdp.training.sampling import EMPTY, Draw, Sampler, check_room, placed, uniform_subset
from lrdp.training.schedules import Constant, Schedule
from lrdp.training.shelf import Shelf
from lrdp.training.task import Task
from lrdp.training.torch_losses import OutputLoss, as_loss
from lrdp.training.torch_optimisers import as_optimiser
from lrdp.training.trial import Trial, trial
from lrdp.training.units import GroupedByUnit, PerUnit, is_by_unit
from lrdp.training.update import Update, check_gradients, memory_plan, private_update
from lrdp.training.views import Augmented

__all__ = [
    "EMPTY",
    "Adam",
    "AdamW",
    "Augmented",
    "AutomaticClipping",
    "CheckedGradients",
    "CheckedRecords",
    "Clipping",
    "Constant",
    "CrossEntropy",
    "Dataset",
    "Draw",
    "ExampleLoss",
    "Execution",
    "FeatureMoments",
    "FeatureSum",
    "Features",
    "FlatClipping",
    "GroupedByUnit",
    "Keystream",
    "Layer",
    "LiveBytes",
    "MemoryPlan",
    "ModelReport",
    "Moments",
    "NamedCrossEntropy",
    "ObserveStep",
    "Optimiser",
    "OutputLoss",
    "Padded",
    "PerUnit",
    "PublicConstants",
    "Randomness",
    "Sampler",
    "Schedule",
    "Sgd",
    "Shelf",
    "Standardised",
    "StandardisedConv2d",
    "StepDone",
    "Task",
    "TensorRecords",
    "Trial",
    "Update",
    "as_loss",
    "as_optimiser",
    "cached_features",
    "check",
    "check_dataset",
    "check_gradients",
    "check_records",
    "check_room",
    "clip_target",
    "is_by_unit",
    "keep_freed_blocks",
    "memory_plan",
    "moments_task",
    "placed",
    "prepared",
    "private_update",
    "progress_bar",
    "public_records",
    "replace_batch_norm",
    "return_large_blocks",
    "silence",
    "standardise_weights",
    "trial",
    "unaccounted_private_update",
    "understood",
    "uniform_subset",
    "unread_records",
    "without_loss",
]
