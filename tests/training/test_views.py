"""Views of a record: a record is clipped as one, whatever is made of it, and nobody else's views change with it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lrdp.errors import InvalidInput
from lrdp.training import Augmented, CrossEntropy, GroupedByUnit, PerUnit, TensorRecords, check_gradients
from lrdp.training.local_steps import prepared
from lrdp.training.rounding import clip_target
from lrdp.training.sampling import Draw
from training.cases import fixed, poisson, records, task

VIEWS, CLIP = 4, 0.7


def jitter(record, chance):
    inputs, label = record
    return inputs + torch.randn(inputs.shape, generator=chance), label


def augmented(rows=None, **changes):
    return Augmented(rows or records(), views=VIEWS, augment=jitter, **changes)


def summed(given, numbers):
    with prepared(poisson(batch=4, cap=len(numbers), accounted=1000), given) as ready:
        totals = ready.clipped_sum(Draw(np.array(numbers)))
        return torch.cat([totals[p].double().flatten() for p in ready.engine.parameters.values()])


def test_the_gradients_of_the_views_are_averaged_before_the_clip():
    model, known = nn.Linear(5, 3), augmented(seeds=iter(range(5000)).__next__)[7]
    given = task(model=model, dataset=[known] * 12, loss=PerUnit(CrossEntropy(classes=3)))
    (inputs, labels), _ = known
    gradients = torch.autograd.grad(functional.cross_entropy(model(inputs), labels), [*model.parameters()])
    truth = torch.cat([gradient.double().flatten() for gradient in gradients])
    truth *= min(1.0, clip_target(CLIP, torch.float32) / float(truth.norm()))
    torch.testing.assert_close(summed(given, [0, *[-1] * 7]), truth, rtol=2e-4, atol=1e-6)


def test_a_record_moves_the_sum_by_at_most_the_clip_norm_however_many_views_it_has():
    rows = TensorRecords(torch.cat([torch.randn(8, 5), torch.full((1, 5), 50.0)]), torch.zeros(9, dtype=torch.int64))
    model = nn.Linear(5, 3)
    plain = Augmented(rows, views=VIEWS, augment=lambda record, _: record)
    given = task(model=model, dataset=plain, loss=PerUnit(CrossEntropy(classes=3)))
    moved = summed(given, range(9)) - summed(given, [*range(8), -1])
    assert 0.9 * CLIP < float(moved.norm()) <= CLIP
    # Control: views as records of their own move it by as many clip norms.
    copies = TensorRecords(*(column.repeat_interleave(VIEWS, 0) for column in rows._columns))
    by_view = task(model=model, dataset=copies)
    everyone = list(range(9 * VIEWS))
    moved = summed(by_view, everyone) - summed(by_view, [*everyone[: 8 * VIEWS], *[-1] * VIEWS])
    assert float(moved.norm()) > 0.9 * VIEWS * CLIP


def test_views_are_new_in_every_reading_unless_a_study_says_which():
    first, second = augmented()[3], augmented()[3]
    assert not first[0][0].equal(second[0][0])
    assert not first[0][0][0].equal(first[0][0][1])
    once, again = (augmented(seeds=iter(range(50)).__next__)[3] for _ in range(2))
    assert once[0][0].equal(again[0][0])
    assert once[0][1].tolist() == [int(records()[3][1])] * VIEWS


def test_the_global_seed_has_no_part_in_it():
    torch.manual_seed(4)
    first = augmented()[0]
    torch.manual_seed(4)
    assert not augmented()[0][0][0].equal(first[0][0])


def test_a_persons_rows_may_have_views_each():
    rows = augmented(seeds=iter(range(5000)).__next__)
    grouped = GroupedByUnit(rows, units=[row // 3 for row in range(len(rows))], most_rows=3)
    given = task(model=nn.Linear(5, 3), dataset=grouped, loss=PerUnit(PerUnit(CrossEntropy(classes=3))))
    assert check_gradients(fixed(batch=4, accounted=20), given).alone == ""


def test_no_view_is_refused():
    with pytest.raises(InvalidInput, match="views must be at least 1"):
        Augmented(records(), views=0, augment=jitter)
