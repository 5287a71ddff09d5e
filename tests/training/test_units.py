"""Units that are people: what one of them does to a step is bounded by the clip norm, however many rows they have."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lrdp.errors import InvalidInput, Unsupported
from lrdp.ledger.receipt import issue
from lrdp.training import (
    CrossEntropy,
    Execution,
    GroupedByUnit,
    NamedCrossEntropy,
    Padded,
    PerUnit,
    PublicConstants,
    Sgd,
    Task,
    TensorRecords,
    check_gradients,
    check_records,
    private_update,
)
from lrdp.training.engine import Engine
from lrdp.training.local_steps import prepared
from lrdp.training.marking import marked
from lrdp.training.rounding import clip_target
from lrdp.training.sampling import Draw
from training.cases import fixed, poisson, vector

CLIP = 0.7
ROWS, UNITS, MOST = 150, 23, 6


def owners(rows=ROWS, units=UNITS):
    return torch.randint(0, units, (rows,), generator=torch.Generator().manual_seed(5))


def visits(inputs=(5,), whole=0, rows=ROWS):
    source = torch.Generator().manual_seed(29)
    drawn = torch.randint(0, whole, (rows, *inputs), generator=source) if whole else None
    values = torch.randn(rows, *inputs, generator=source) if drawn is None else drawn
    return TensorRecords(values, torch.randint(0, 3, (rows,), generator=source))


def task(model, rows, loss=None, most=MOST, **changes):
    grouped = GroupedByUnit(rows, units=owners(len(rows)), most_rows=most)
    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(lr=0.5))
    return Task(
        model=model, dataset=grouped, loss=loss or PerUnit(CrossEntropy(classes=3)), constants=constants, **changes
    )


def rows_of_each(names, most=MOST):
    """The oracle: whose rows are whose, by a loop."""
    found: dict[int, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).append(row)
    return [rows[:most] for rows in found.values()]


def clipped_truth(model, rows, names, most=MOST):
    """The oracle: a plain backward pass over one person's rows, shortened as a whole."""
    total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for mine in rows_of_each(names, most):
        inputs, labels = rows.columns_at(np.array(mine))
        model.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs), labels).backward()
        gradient = torch.cat([p.grad.double().flatten() for p in model.parameters()])
        total = total + gradient * min(1.0, clip_target(CLIP, torch.float32) / float(gradient.norm()))
    model.zero_grad(set_to_none=True)
    return total


def computed_sum(given, numbers, slots=None):
    mechanism = poisson(batch=8, cap=slots or len(numbers), accounted=10_000)
    with prepared(mechanism, given) as ready:
        totals = ready.clipped_sum(Draw(np.array(numbers)))
        return torch.cat([totals[p].double().flatten() for p in ready.engine.parameters.values()])


class Scaled(nn.Module):
    """A parameter of its own, without a rule."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5))
        self.line = nn.Linear(5, 3)

    def forward(self, inputs):
        return self.line(inputs * self.scale)


class Read(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.read, self.line = nn.Embedding(9, 6), nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, tokens):
        return self.line(self.read(self.words(tokens))[0][:, -1])


def conv(groups=1):
    layers = (nn.Conv2d(2, 4, 3, groups=groups), nn.ReLU(), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3)), (5,), 0),
    "raw parameter": (Scaled, (5,), 0),
    "convolution": (conv, (2, 6, 6), 0),
    "embedding and recurrence": (Read, (4,), 9),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_step_adds_up_each_persons_mean_gradient_clipped_once_and_all_run_together(name):
    make, inputs, whole = MODELS[name]
    torch.manual_seed(3)
    model, rows = make(), visits(inputs, whole)
    given = task(model, rows)
    assert check_gradients(fixed(batch=4, accounted=20), given).alone == ""
    found = computed_sum(given, range(len(given.dataset)))
    torch.testing.assert_close(found, clipped_truth(model, rows, owners().tolist()), rtol=2e-4, atol=2e-5)


def test_where_rows_of_a_person_have_no_rule_people_run_one_by_one_and_are_as_exact():
    model, rows = conv(groups=2), visits((2, 6, 6))
    given = task(model, rows)
    assert "grouped convolution" in check_gradients(fixed(batch=4, accounted=20), given).alone
    found = computed_sum(given, range(len(given.dataset)))
    torch.testing.assert_close(found, clipped_truth(model, rows, owners().tolist()), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_a_patient_with_forty_rows_moves_the_sum_by_at_most_the_clip_norm(size):
    others, theirs = torch.randn(30, 5), size * torch.ones(40, 5)
    rows = TensorRecords(torch.cat([others, theirs]), torch.zeros(70, dtype=torch.int64))
    names = [*range(30), *["the patient"] * 40]
    grouped = GroupedByUnit(rows, units=names, most_rows=40)
    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(lr=0.5))
    model, loss = nn.Linear(5, 3), CrossEntropy(classes=3)
    by_unit = Task(model=model, dataset=grouped, loss=PerUnit(loss), constants=constants)
    everyone = list(range(31))
    moved = computed_sum(by_unit, everyone) - computed_sum(by_unit, [*everyone[:30], -1])
    assert 0.9 * CLIP < float(moved.norm()) <= CLIP
    # Control: row by row the same person moves it forty times as far.
    by_row = Task(model=model, dataset=rows, loss=loss, constants=constants)
    every_row = list(range(70))
    moved = computed_sum(by_row, every_row) - computed_sum(by_row, [*every_row[:30], *[-1] * 40])
    assert float(moved.norm()) > 30 * CLIP


def test_other_people_stay_as_they_are_when_one_has_other_rows_more_of_them_or_none():
    rows, names = visits(), owners().tolist()
    plain = GroupedByUnit(rows, units=names, most_rows=MOST)
    kept = [row for row, name in enumerate(names) if name != names[0]]
    without = GroupedByUnit(
        TensorRecords(*rows.columns_at(np.array(kept))), units=[names[row] for row in kept], most_rows=MOST
    )
    assert len(without) == len(plain) - 1
    for number in range(len(without)):
        (old, old_labels), old_weights = plain[number + 1]
        (new, new_labels), new_weights = without[number]
        assert old.equal(new)
        assert old_labels.equal(new_labels)
        assert old_weights.equal(new_weights)


def test_each_row_counts_the_same_and_what_fills_up_counts_nothing():
    names = ["a", "b", "a", "a", "c", "a"]
    grouped = GroupedByUnit(TensorRecords(torch.arange(6.0)[:, None]), units=names, most_rows=3)
    assert [grouped[number][0][0][:, 0].tolist() for number in range(3)] == [[0, 2, 3], [1, 1, 1], [4, 4, 4]]
    assert [grouped[number][1].tolist() for number in (0, 1)] == [[pytest.approx(1 / 3)] * 3, [1, 0, 0]]
    assert grouped[-1][0][0].equal(grouped[2][0][0])
    with pytest.raises(IndexError):
        grouped[3]


def test_what_fills_up_changes_nothing_whatever_the_bound_is():
    model, rows = MODELS["linear"][0](), visits()
    counts = torch.bincount(owners())
    most = int(counts.max())
    sums = [computed_sum(task(model, rows, most=bound), range(UNITS)) for bound in (most, 2 * most)]
    torch.testing.assert_close(*sums, rtol=1e-4, atol=1e-6)


SAME = [
    torch.tensor([4, 4, 9]),
    [torch.tensor(4), torch.tensor(4), torch.tensor(9)],
    np.array(["x", "x", "y"]),
    list(np.array([4, 4, 9])),
    [("north", 4), ("north", 4), ("south", 4)],
    [None, None, "x"],
    [math.nan, float("nan"), 1.0],
    [None, math.nan, 3],
]


@pytest.mark.parametrize("units", SAME, ids=str)
def test_one_person_is_one_unit_however_names_are_held_and_what_has_no_name_is_one_too(units):
    """Two tensors of one value are two keys of a dict, and what is no number does not equal itself."""
    assert len(GroupedByUnit(TensorRecords(torch.zeros(3, 1)), units=units, most_rows=2)) == 2


def test_names_that_could_hide_a_second_record_of_somebody_are_refused():
    rows = TensorRecords(torch.zeros(3, 1))
    with pytest.raises(InvalidInput, match="got 2 of them"):
        GroupedByUnit(rows, units=[1, 2], most_rows=2)
    with pytest.raises(InvalidInput, match="text or numbers"):
        GroupedByUnit(rows, units=[object(), object(), object()], most_rows=2)
    with pytest.raises(InvalidInput, match="most_rows must be at least 1"):
        GroupedByUnit(rows, units=[1, 2, 3], most_rows=0)


def test_a_row_that_is_no_number_takes_its_own_person_out_of_the_step_and_nobody_else():
    model, rows = MODELS["linear"][0](), visits()
    inputs, labels = (column.clone() for column in rows._columns)
    theirs = owners() == owners()[7]
    inputs[7] = torch.nan
    found = computed_sum(task(model, TensorRecords(inputs, labels)), range(UNITS))
    names = owners()[~theirs].tolist()
    truth = clipped_truth(model, TensorRecords(inputs[~theirs], labels[~theirs]), names)
    torch.testing.assert_close(found, truth, rtol=2e-4, atol=2e-5)


def test_a_person_with_a_label_that_the_loss_refuses_is_left_out_when_records_are_checked():
    rows = TensorRecords(torch.randn(6, 5), torch.tensor([0, 1, 2, 7, 0, 1]))
    grouped = GroupedByUnit(rows, units=[1, 1, 2, 2, 3, 3], most_rows=2)
    assert set(check_records(grouped, PerUnit(CrossEntropy(classes=3))).left_out) == {1}


def test_a_model_in_which_people_meet_is_refused_though_their_rows_may():
    class Centred(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs - inputs.mean(0))

    with pytest.raises(Unsupported, match="changes with the other examples"):
        check_gradients(fixed(batch=4, accounted=20), task(Centred(5, 3), visits()))


def test_a_loss_that_averages_over_rows_is_refused_as_for_plain_records():
    def mean(model, batch):
        return functional.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(InvalidInput, match="one value per example"):
        check_gradients(fixed(batch=4, accounted=20), task(nn.Linear(5, 3), visits(), PerUnit(mean)))


def test_all_rows_of_a_marked_person_are_marked_in_what_is_looked_up():
    words, own = nn.Embedding(9, 2), torch.tensor([False, True, False])
    engine = Engine(words, PerUnit(CrossEntropy(classes=2)))
    batch = (torch.ones(3, 2, 4, dtype=torch.int64), torch.zeros(3, 2)), torch.ones(3, 2)
    with marked(words, engine.rows_of(own, batch), torch.nan):
        found = words(torch.ones(6, 4, dtype=torch.int64)).isnan().flatten(1).all(1)
    assert found.tolist() == [False, False, True, True, False, False]


def test_words_of_people_that_meet_are_found():
    """Whole numbers cannot be no number themselves: only what is looked up by them is marked."""

    class Meeting(Read):
        def forward(self, tokens):
            looked_up = self.words(tokens)
            return self.line(self.read(looked_up + 0.0 * looked_up.mean(0))[0][:, -1])

    given = task(Meeting(), visits((4,), 9))
    assert "several examples" in check_gradients(fixed(batch=4, accounted=20), given).alone


def test_micro_batches_of_people_change_nothing():
    model = MODELS["linear"][0]()
    sums = [
        computed_sum(task(model, visits(), execution=Execution(micro_batch=size)), range(UNITS))
        for size in (1, 5, UNITS)
    ]
    for found in sums[:-1]:
        torch.testing.assert_close(found, sums[-1], rtol=1e-4, atol=1e-6)


def test_sequences_of_named_fields_are_grouped_as_they_are():
    source = [{"words": [1, 2, 3][: 1 + row % 3], "label": row % 2, "who": f"p{row % 4}"} for row in range(20)]
    padded = Padded(source, max_length=3, fill={"words": 0}, keep=["label"], mask=None)
    grouped = GroupedByUnit(padded, units=[row["who"] for row in source], most_rows=4)

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.line = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, words):
            return self.line(self.words(words).mean(1))

    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(lr=0.5))
    loss = PerUnit(NamedCrossEntropy(classes=2))
    found = check_gradients(
        fixed(batch=2, accounted=4), Task(model=Bag(), dataset=grouped, loss=loss, constants=constants)
    )
    assert found.alone == ""


def test_what_was_charged_for_units_is_trained_on_units_alone():
    def paid():
        return issue(
            mechanism=fixed(batch=4, accounted=20), steps=2, clip_norm=CLIP, request_key="r", entry=1, by_unit=True
        )

    given = task(MODELS["linear"][0](), visits())
    assert vector(private_update(paid(), given).delta).isfinite().all()
    checked = Task(
        model=given.model,
        dataset=check_records(given.dataset, given.loss),
        loss=given.loss,
        constants=given.constants,
    )
    assert private_update(paid(), checked).steps == 2
    refused = paid()
    by_row = Task(model=given.model, dataset=visits(), loss=CrossEntropy(classes=3), constants=given.constants)
    with pytest.raises(InvalidInput, match="charge was for units"):
        private_update(refused, by_row)
    assert not refused.redeemed
