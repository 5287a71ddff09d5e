"""What is found once and kept: that the gradients are right, and what a pass over them takes."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lrdp.accounting import FixedSizeGaussian
from lrdp.errors import Unsupported
from lrdp.training import CrossEntropy, TensorRecords, check_gradients, private_update, probes
from lrdp.training.local_steps import prepared
from lrdp.training.memory import LiveBytes, footprint
from training.cases import RECORDS, fixed, keys, model, receipt, run, task


class Counting(CrossEntropy):
    """Cross-entropy that knows how often it was asked."""

    passes = 0

    def __call__(self, model, batch):
        Counting.passes += 1
        return super().__call__(model, (batch[0].flatten(1), batch[1]))


def passes(given):
    Counting.passes = 0
    private_update(receipt(steps=2), given)
    return Counting.passes


def test_gradients_that_were_checked_are_not_checked_again():
    given = task(loss=Counting(classes=3))
    assert passes(given) > 2
    checked = replace(given, checked=check_gradients(fixed(), given))
    assert passes(checked) == 2, "a pass for each step, and none besides"
    with torch.no_grad():
        for parameter in given.model.parameters():
            parameter.mul_(3.0)
    assert passes(checked) == 2, "other weights, as in every round, are the same code"


@pytest.mark.parametrize(
    "change",
    [
        lambda given: replace(given, model=model()),
        lambda given: replace(given, loss=Counting(classes=4)),
        lambda given: replace(given, constants=replace(given.constants, forward_dtype=torch.bfloat16)),
        lambda given: replace(given, dataset=TensorRecords(torch.zeros(RECORDS, 1, 5), torch.zeros(RECORDS).long())),
        lambda given: (given.model.eval(), given)[1],
        lambda given: (given.model[0].requires_grad_(False), given)[1],
        lambda given: (given.model.__setitem__(0, nn.Linear(5, 7)), given)[1],
    ],
    ids=["model", "loss", "precision", "records", "mode", "frozen", "module"],
)
def test_a_check_of_something_else_is_not_believed(change):
    """Were ``checked`` taken on trust, a model that mixes examples would train with the check of one that does not."""
    given = task(loss=Counting(classes=3))
    given = replace(given, checked=check_gradients(fixed(), given))
    changed = change(given)
    with prepared(fixed(), changed) as ready:
        assert ready.checked is not given.checked


class Shifted(nn.Module):
    """A raw weight, and an argument that all examples share, by chance as long as the batch."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, inputs, shared):
        return inputs * self.scale + (shared[:, None] * self.scale).sum(0)


class Sharing(nn.Module):
    def __init__(self):
        super().__init__()
        self.shifted, self.inner = Shifted(), model()

    def forward(self, inputs):
        return self.inner(self.shifted(inputs, torch.linspace(-1.0, 2.0, 13)))


def test_a_checked_task_makes_the_same_update():
    """Of what is shared, a batch of one size cannot tell: the check's two sizes did, and that is kept with it."""
    given = task(model=Sharing())
    checked = replace(given, checked=check_gradients(fixed(batch=13), given))
    plainly, kept = run(fixed(batch=13), given), run(fixed(batch=13), checked)
    assert all(torch.equal(plainly[name], kept[name]) for name in plainly)


class Gated(nn.Module):
    """Mixes examples behind two gates, both shut: neither has a gradient, until noise opens them."""

    def __init__(self):
        super().__init__()
        self.inner, self.gates = model(), nn.Sequential(nn.Linear(5, 5, bias=False), nn.Linear(5, 5, bias=False))
        for gate in self.gates:
            nn.init.zeros_(gate.get_parameter("weight"))

    def forward(self, inputs):
        return self.inner(inputs + self.gates(inputs.mean(0).expand_as(inputs)))


def test_weights_of_zero_hide_nothing():
    given = task(model=Gated())
    with pytest.raises(Unsupported, match="they meet in Gated"):
        check_gradients(fixed(), given)


def test_control_without_stirring_the_shut_gate_would_hide_the_mixing(monkeypatch):
    monkeypatch.setattr(probes, "_STIR", 0.0)
    with pytest.raises(Unsupported, match="get no gradient"):
        check_gradients(fixed(), task(model=Gated()))


@pytest.mark.parametrize("make", [model, Gated])
def test_the_weights_come_back_bit_for_bit_whatever_the_check_says(make):
    given = task(model=make())
    before = {name: value.clone() for name, value in given.model.state_dict().items()}
    try:
        check_gradients(fixed(), given)
    except Unsupported:
        assert make is Gated
    assert all(torch.equal(before[name], value) for name, value in given.model.state_dict().items())


def convolutions():
    """Much memory in rows and much in weights, as in VGG11."""
    layers, channels = [], 3
    for width in (16, 64, 256, 256):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3))


def planned_and_taken(rows):
    images = TensorRecords(torch.rand(2 * rows, 3, 32, 32), torch.zeros(2 * rows).long())
    mechanism = FixedSizeGaussian(dataset_size=2 * rows, batch_size=rows, noise_multiplier=1.0)
    with prepared(mechanism, task(model=convolutions(), dataset=images)) as ready, LiveBytes() as meter:
        ready.run(1, keys())
    return ready, meter.peak


@pytest.mark.parametrize("rows", [8, 48])
def test_a_step_takes_no_more_memory_than_was_planned_and_not_far_less(rows):
    ready, taken = planned_and_taken(rows)
    assert taken <= ready.memory.peak_bytes <= 3 * taken


def test_control_a_line_through_the_peaks_of_whole_passes_alone_would_promise_too_little():
    ready, taken = planned_and_taken(128)
    kept = 2 * sum(parameter.nbytes for parameter in ready.engine.parameters.values())
    assert footprint(ready.checked.peaks.whole, kept=kept).at(128) < taken
