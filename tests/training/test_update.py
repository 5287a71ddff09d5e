"""The private update as a whole (traps 6 to 8, 10, 12, 14, 18, 19, 24, 28, 34)."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional

from lrdp.errors import InvalidInput, OutOfReach, ReceiptRefused, Unsupported
from lrdp.training import (
    Adam,
    AdamW,
    CrossEntropy,
    Execution,
    Sgd,
    TensorRecords,
    check_records,
    memory_plan,
    private_update,
    unaccounted_private_update,
)
from lrdp.training.local_steps import prepared
from lrdp.training.rounding import clip_target
from lrdp.training.sampling import EMPTY, Draw
from training.cases import RECORDS, fixed, keys, noise_only, poisson, receipt, records, run, silent, task, vector
from training.truth import accumulated, clipped, gradients_one_by_one


@pytest.mark.parametrize("mechanism", [fixed(), poisson()])
def test_an_update_comes_from_a_receipt_and_leaves_the_model_as_it_was(mechanism):
    given = task()
    before = copy.deepcopy(given.model.state_dict())
    update = private_update(receipt(mechanism, steps=3), given)
    assert update.steps == 3
    assert list(update.delta) == [name for name, _ in given.model.named_parameters()]
    assert all(bool(torch.isfinite(part).all()) for part in update.delta.values())
    assert all(torch.equal(before[name], value) for name, value in given.model.state_dict().items())


def test_a_receipt_is_good_for_one_update():
    paid = receipt()
    private_update(paid, task())
    with pytest.raises(ReceiptRefused, match="redeemed before"):
        private_update(paid, task())


def test_what_makes_the_noise_is_loaded_and_tried_before_the_receipt_is_redeemed(monkeypatch):
    paid, asked = receipt(), []

    def refuse(device, _):
        asked.append(device)
        raise Unsupported("noise cannot be made here.")

    monkeypatch.setattr("lrdp.training.local_steps.make_ready", refuse)
    with pytest.raises(Unsupported, match="cannot be made"):
        private_update(paid, task())
    assert asked == [torch.device("cpu")]
    assert not paid.redeemed


def test_nothing_but_a_receipt_of_the_same_clip_norm_will_do():
    @dataclass
    class Forged:
        mechanism = fixed()
        steps = 2
        clip_norm = 0.7

        def redeem(self):
            pass

    with pytest.raises(ReceiptRefused, match="from the ledger"):
        private_update(Forged(), task())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="that was charged"):
        private_update(receipt(clip_norm=0.8), task())


def test_one_plain_step_is_the_papers_equation():
    """Δ = -η (Σ clip(g_i) + noise) / B, with the very noise that was drawn."""
    given, drawn = task(), keys()
    with prepared(fixed(), given) as ready:
        found = vector(ready.run(1, keys()))
        chosen = ready.sampler.draw(drawn.sampling).slots
    batch = tuple(column[torch.from_numpy(chosen)] for column in given.dataset._columns)
    truth = clipped(gradients_one_by_one(given.model, given.loss, batch, 13), clip_target(0.7, torch.float32)).sum(0)
    noise = (found / -0.5 * 13 - truth) / (1.3 * 0.7)
    assert 0.7 < float(noise.std()) < 1.3
    quiet = vector(run(fixed(noise=1e-6), task()))
    torch.testing.assert_close(quiet, truth * (-0.5 / 13), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wrong", [0.95, 1.05])
@pytest.mark.parametrize("mechanism", [fixed(), poisson()])
def test_the_released_sum_has_deviation_sigma_times_the_clip_norm(mechanism, wrong):
    given = noise_only()
    released = vector(run(mechanism, given)).numpy() / -0.5 * mechanism.batch_size
    assert stats.kstest(released / (1.3 * 0.7), "norm").pvalue > 1e-3
    assert stats.kstest(released / (1.3 * 0.7) / wrong, "norm").pvalue < 1e-3


@pytest.mark.parametrize(("mechanism", "counts"), [(fixed(accounted=60), (60, 61)), (poisson(accounted=61), (60, 61))])
def test_every_public_quantity_is_the_same_on_a_neighbouring_data_set(mechanism, counts):
    """With gradients of zero all that is left is public or noise: equal noise must give equal updates."""
    seen: list[Any] = []
    first, second = (
        run(
            mechanism,
            noise_only(dataset=silent(n), execution=Execution(observe=seen.append)),
            4,
        )
        for n in counts
    )
    assert vector(first).equal(vector(second))
    assert [(done.step, done.steps) for done in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)] * 2


def test_the_normaliser_is_public_and_not_the_number_drawn():
    with prepared(poisson(), noise_only()) as ready:
        drawn = {int((ready.sampler.draw(keys(sampling).sampling).slots != EMPTY).sum()) for sampling in range(6)}
        updates = [vector(ready.run(1, keys(sampling))) for sampling in range(6)]
    assert len(drawn) > 2  # control: dividing by the number drawn would give as many scales
    assert all(update.equal(updates[0]) for update in updates)


def test_another_public_normaliser_scales_the_noised_sum_and_nothing_else():
    drawn = [vector(run(fixed(), task(constants={"normaliser": given}))) for given in (None, 13, 40.0)]
    assert drawn[0].equal(drawn[1])
    torch.testing.assert_close(drawn[2] * 40.0, drawn[0] * 13.0, rtol=1e-4, atol=1e-5)  # differences of weights


@pytest.mark.parametrize("odd", [0, -1.0, float("nan"), float("inf"), 1e-9, 1e20, "13"])
def test_a_normaliser_that_divides_by_nothing_or_leaves_float32_is_refused(odd):
    with pytest.raises(InvalidInput, match="normaliser"):
        task(constants={"normaliser": odd})


@pytest.mark.parametrize("mechanism", [fixed(), poisson()])
def test_micro_batches_change_nothing(mechanism):
    rows = mechanism.rows
    updates = [vector(run(mechanism, task(execution=Execution(micro_batch=size)), 2)) for size in (1, 3, rows)]
    for update in updates[:-1]:
        torch.testing.assert_close(update, updates[-1], rtol=1e-4, atol=1e-6)


def test_control_clipping_micro_batches_instead_of_examples_would_change_the_result():
    given = task()
    batch = tuple(column[:12] for column in given.dataset._columns)
    gradients = gradients_one_by_one(given.model, given.loss, batch, 12)
    by_threes = clipped(gradients.reshape(4, 3, -1).sum(1), 0.7).sum(0)
    assert not torch.allclose(clipped(gradients, 0.7).sum(0), by_threes, rtol=1e-2)


def test_padding_adds_nothing():
    with prepared(poisson(), task()) as ready:
        numbers = np.arange(5, dtype=np.int64)
        nobody = np.full(7, EMPTY)
        padded = ready.clipped_sum(Draw(np.concatenate([nobody, numbers, nobody])))
        bare = ready.clipped_sum(Draw(numbers))
        empty = ready.clipped_sum(Draw(nobody))
    for parameter in bare:
        torch.testing.assert_close(padded[parameter], bare[parameter], rtol=1e-5, atol=1e-6)
        assert float(empty[parameter].abs().max()) == 0.0


def test_no_seed_makes_two_updates_equal():
    updates = []
    for _ in range(2):
        torch.manual_seed(4111)
        updates.append(vector(unaccounted_private_update(fixed(), 1, task()).delta))
    assert not torch.equal(*updates)


def test_optimisers_see_noisy_gradients_only():
    seen = []

    @dataclass(frozen=True)
    class Spy:
        moments = 0
        over_rounds = False

        def start(self, parameters, before=None):
            return self

        def step(self, number, place, noisy):
            seen.append((number, place, noisy.clone()))

    given = noise_only(constants={"optimiser": Spy(), "first_step": 7})
    run(fixed(), given, 2)
    assert [(number, place) for number, place, _ in seen] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    values = torch.cat([noisy.flatten() for _, place, noisy in seen if place == 0]).numpy() * 13
    assert stats.kstest(values / (1.3 * 0.7), "norm").pvalue > 1e-3  # raw gradients here are exactly zero


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            Sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01),
        ),
        (Adam(lr=0.1, weight_decay=0.02), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.02)),
        (AdamW(lr=0.1, weight_decay=0.02), lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.02)),
    ],
)
def test_optimisers_step_as_torchs_do(ours, theirs):
    mine = [torch.ones(3, dtype=torch.float64), torch.full((2,), 2.0, dtype=torch.float64)]
    reference = [nn.Parameter(value.clone()) for value in mine]
    stepper, other = ours.start(mine), theirs(reference)
    for number in range(4):
        for place, parameter in enumerate(reference):
            parameter.grad = torch.linspace(-1, 1, len(parameter), dtype=torch.float64) * (number + 1)
            stepper.step(number, place, parameter.grad.clone())
        other.step()
    for value, parameter in zip(mine, reference, strict=True):
        torch.testing.assert_close(value, parameter.detach(), rtol=1e-12, atol=1e-12)


def test_changing_one_example_leaves_anothers_gradient_bit_for_bit():
    given = task()
    with prepared(fixed(), given) as ready:
        sums = []
        for other in (3, 4):
            batch = ready.reader.read(np.array([0, other], dtype=np.int64))
            totals: dict[Any, Any] = {}
            accumulated(ready.engine, batch, 2, lambda lengths: torch.tensor([1.0, 0.0]), totals)
            sums.append(torch.cat([total.flatten() for total in totals.values()]))
    assert torch.equal(*sums)


def test_checked_records_are_not_read_again():
    class Counting(TensorRecords):
        read = 0

        def columns_at(self, numbers):
            self.read += len(numbers)
            return super().columns_at(numbers)

    dataset = Counting(*records()._columns)
    given = task(dataset=check_records(dataset, CrossEntropy(classes=3)))
    dataset.read = 0
    private_update(receipt(steps=1), given)
    assert dataset.read < 13 + 10


def test_a_record_that_fails_the_losses_check_leaves_its_slot_empty():
    inputs, labels = records()._columns
    labels = labels.clone()
    labels[8] = 3
    given = task(dataset=check_records(TensorRecords(inputs, labels), CrossEntropy(classes=3)))
    with prepared(fixed(), given) as ready:
        batch, live = ready.reader.slots(np.array([7, 8, EMPTY, 9]))
    assert live.tolist() == [True, False, False, True]
    assert torch.equal(batch[0][1], ready.checked.probes[0][0])
    assert torch.equal(batch[0][2], ready.checked.probes[0][0])


def test_a_first_record_that_lies_nowhere_is_left_out_like_any_other():
    class Nowhere(TensorRecords):
        def __getitem__(self, number):
            record = super().__getitem__(number)
            return tuple(part.to("meta") for part in record) if number == 0 else record

        columns_at = None  # type: ignore[assignment]

    given = task(dataset=check_records(Nowhere(*records()._columns), CrossEntropy(classes=3)))
    assert list(given.dataset.left_out) == [0]
    assert vector(private_update(receipt(), given).delta).isfinite().all()


def test_plain_map_style_data_sets_of_numbers_and_dicts_work():
    class Rows:
        def __len__(self):
            return RECORDS

        def __getitem__(self, number):
            return {"inputs": np.full(5, number / 61, dtype=np.float32), "label": number % 3}

    def loss(model, batch):
        return functional.cross_entropy(model(batch["inputs"]), batch["label"], reduction="none")

    assert vector(private_update(receipt(poisson()), task(dataset=Rows(), loss=loss)).delta).isfinite().all()


def test_weights_that_run_away_end_as_finite_differences():
    given = task(constants={"optimiser": Sgd(lr=1e9, weight_decay=1e9)})
    found = vector(private_update(receipt(steps=6), given).delta)
    assert bool(found.isfinite().all())
    assert float(found.abs().max()) == 0.0 or float(found.abs().max()) > 1e30, "control: they did run away"


def test_dropout_in_the_model_is_allowed():
    given = task(model=nn.Sequential(nn.Linear(5, 30), nn.Dropout(0.5), nn.Linear(30, 3)))
    assert private_update(receipt(), given).steps == 2


def test_memory_is_planned_before_training_and_a_limit_chooses_the_micro_batch():
    announced: list[Any] = []
    wide = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3))
    full = memory_plan(fixed(), task(model=wide, execution=Execution(announce=announced.append)))
    assert announced == [full]
    assert full.micro_batch == 13
    assert full.peak_bytes > 4 * sum(parameter.numel() for parameter in wide.parameters())
    enough = memory_plan(fixed(), task(model=wide, execution=Execution(memory_limit="40GB")))
    assert enough.micro_batch == 13
    with pytest.raises(OutOfReach, match="must be at least"):
        memory_plan(fixed(), task(model=wide, execution=Execution(memory_limit="1MB")))
    assert memory_plan(fixed(), task(execution=Execution(micro_batch=14))).micro_batch == 13  # a step has no more rows
