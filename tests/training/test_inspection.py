"""What `check` says, and what the small values around training promise."""

import io
import platform
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import lrdp.training
from lrdp.errors import InvalidInput, Unsupported
from lrdp.training import Constant, Sgd, StepDone, TensorRecords, check, progress_bar, replace_batch_norm
from lrdp.training.memory import (
    Footprint,
    LiveBytes,
    choose,
    either,
    footprint,
    parse_bytes,
    process_bytes,
    return_large_blocks,
)
from lrdp.training.replacement import replace_batch_norm as replace


class Raw(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, inputs):
        return inputs * self.scale


def test_the_public_names_are_those_promised():
    assert all(hasattr(lrdp.training, name) for name in lrdp.training.__all__)
    assert {"Task", "private_update", "check", "Sgd", "CrossEntropy"} <= set(lrdp.training.__all__)


def test_check_names_the_rule_of_every_layer():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.GroupNorm(2, 8),
        nn.LSTM(3, 4),
        nn.MultiheadAttention(4, 2),
        nn.Embedding(5, 2),
        Raw(),
        nn.ReLU(),
    )
    report = check(model)
    rules = ["convolution", "group normalisation", "recurrent", "multi-head attention", "embedding", "fallback"]
    assert [layer.rule for layer in report.layers] == rules
    assert all(layer.cost for layer in report.layers)
    assert report.trainable
    report.demand()


@pytest.mark.parametrize(
    ("layer", "fix"),
    [
        (nn.BatchNorm2d(3), "replace_batch_norm"),
        (nn.SyncBatchNorm(3), "replace_batch_norm"),
        (nn.InstanceNorm2d(3, track_running_stats=True), "track_running_stats=False"),
        (nn.LazyLinear(3), "run the model once"),
        (nn.DataParallel(nn.Linear(2, 2)), "bare model"),
    ],
)
def test_check_refuses_with_the_reason_and_the_fix(layer, fix):
    report = check(nn.Sequential(nn.Linear(2, 3), layer))
    assert not report.trainable
    assert fix in (report.refused[0].refused or "")
    with pytest.raises(Unsupported, match="cannot be trained privately"):
        report.demand()


def test_a_frozen_batch_norm_at_rest_is_allowed():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    assert not check(model).trainable
    model[1].requires_grad_(False)
    assert check(model).trainable


def test_replacing_batch_norm_leaves_the_original_alone():
    model = nn.Sequential(nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6)), nn.BatchNorm1d(6, affine=False))
    changed: Any = replace_batch_norm(model, groups=4)
    assert type(model.get_submodule("0.1")) is nn.BatchNorm1d
    assert changed[0][1].num_groups == 2
    assert changed[1].weight is None
    assert type(replace(nn.BatchNorm1d(4))) is nn.GroupNorm


def test_progress_says_nothing_about_the_data():
    assert set(StepDone.__dataclass_fields__) == {"step", "steps", "seconds"}
    screen = io.StringIO()
    with progress_bar(Console(file=screen, force_terminal=True, width=90)) as observe:
        observe(StepDone(step=3, steps=4, seconds=1.0))
    assert "3/4" in screen.getvalue()


def test_schedules_are_public_values():
    class Rising:
        def at(self, step):
            return 0.5 + step

    parameter = torch.zeros(1)
    stepper = Sgd(lr=Rising()).start([parameter])
    stepper.step(3, 0, torch.ones(1))
    assert parameter.item() == -3.5
    for rate in (0.0, -1.0, float("nan"), 1e10):
        with pytest.raises(InvalidInput, match="rate"):
            Constant(rate=rate)


def test_live_bytes_are_counted_and_forgotten():
    with LiveBytes() as meter:
        first = torch.zeros(1000)
        second = first + 1.0
        first += second  # in place: nothing new
        view = second.view(10, 100)
        del first
        third = view * 2.0
        del second, view, third
    assert meter.peak == 8000
    assert meter._live == 0


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "0", "12XB", "1e9"])
def test_memory_limits_that_cannot_be_read_are_refused(text):
    with pytest.raises(InvalidInput, match="reads like"):
        parse_bytes(text)


def test_a_micro_batch_is_chosen_by_the_line_through_two_peaks():
    line = footprint({2: 1_200, 3: 1_300}, kept=50)
    assert line == Footprint(fixed=1_050, per_row=100)
    assert either(line, Footprint(fixed=9_000, per_row=3)) == Footprint(fixed=9_000, per_row=100)
    room = process_bytes() + 200_000_000
    plan = choose(Footprint(fixed=1_000_000, per_row=3_000_000), 128, room)
    assert 32 <= plan.micro_batch <= 64
    assert plan.peak_bytes <= 200_000_000 + 20_000_000


def test_large_blocks_are_given_back_where_the_c_library_is_glibc():
    assert return_large_blocks() is (platform.libc_ver()[0] == "glibc")


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(InvalidInput, match="equal lengths"):
        TensorRecords(torch.zeros(3), torch.zeros(4))
