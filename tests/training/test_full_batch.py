"""The whole data set in a step: everybody once, in a slot of chance, and time and memory by the public bound alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from lrdp.accounting import FullBatchGaussian
from lrdp.errors import InvalidInput
from lrdp.training import Execution, TensorRecords, check_room
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import prepared
from lrdp.training.sampling import EMPTY, Draw, sampler_for
from training.cases import noise_only, run, silent, task, vector

KEY = bytes(range(32))


def full(bound: int = 70, noise: float = 1.3) -> FullBatchGaussian:
    return FullBatchGaussian(dataset_size=bound, noise_multiplier=noise)


# ---------------------------------------- the law
@given(st.integers(2, 60), st.data())
def test_everybody_stands_in_one_slot_and_the_others_are_empty(bound: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, bound))
    slots = sampler_for(full(bound), count).draw(Keystream.from_system()).slots
    assert len(slots) == bound
    assert sorted(slots[slots != EMPTY].tolist()) == list(range(count))


def placements(draw: Any, steps: int = 6000) -> list[int]:
    """How often each placement of records 0 and 1 in four slots comes, once record 2 is taken out of its slot."""
    found: dict[tuple[int, ...], int] = {}
    for _ in range(steps):
        slots = tuple(EMPTY if record == 2 else int(record) for record in draw())
        found[slots] = found.get(slots, 0) + 1
    return list(found.values())


def is_uniform(counts: list[int]) -> bool:
    return len(counts) == 12 and bool(stats.chisquare(counts).pvalue > 1e-4)


def test_emptying_one_slot_is_drawing_from_the_neighbour_without_that_record() -> None:
    larger, smaller, stream = sampler_for(full(4), 3), sampler_for(full(4), 2), Keystream(KEY)
    assert is_uniform(placements(lambda: larger.draw(stream).slots))
    assert is_uniform(placements(lambda: smaller.draw(stream).slots))


def test_control_records_in_front_and_padding_behind_tell_how_many_there_are() -> None:
    stream, chance = Keystream(KEY), np.random.default_rng(3)

    def compact() -> list[int]:
        return [*chance.permutation(3).tolist(), EMPTY]

    assert not is_uniform(placements(compact))
    stale = sampler_for(full(4), 3).draw(stream).slots
    assert not is_uniform(placements(lambda: stale)), "one order for all steps"


# ---------------------------------------- the sum
def pull(model: nn.Module, batch: Any) -> torch.Tensor:
    """Gradients as long and as opposed as the inputs."""
    found: torch.Tensor = model(batch[0]).sum(1)
    return found


def steep(count: int) -> TensorRecords:
    """All gradients are cut to the clip norm; record 0 points against the others."""
    inputs = torch.full((count, 5), 1e3)
    inputs[0] = -1e3
    return TensorRecords(inputs, torch.zeros(count, dtype=torch.int64))


def moved(bound: int, count: int, micro_batch: int, change: int) -> float:
    """How far the computed sum moves if record 0's slot is emptied, or given to record ``change``."""
    given_task = task(
        model=nn.Linear(5, 3), loss=pull, dataset=steep(count), execution=Execution(micro_batch=micro_batch)
    )
    with prepared(full(bound), given_task) as ready:
        slots = ready.sampler.draw(Keystream(KEY)).slots
        other = np.where(slots == 0, change, slots)
        sums = [ready.clipped_sum(Draw(each)) for each in (slots, other)]
    return float(torch.cat([(sums[0][p].double() - sums[1][p].double()).flatten() for p in sums[0]]).norm())


@pytest.mark.parametrize(("bound", "count", "micro_batch"), [(70, 61, 32), (70, 70, 70), (3000, 2989, 256)])
def test_without_one_record_the_sum_moves_by_no_more_than_the_clip_norm(
    bound: int, count: int, micro_batch: int
) -> None:
    assert 0.98 * 0.7 < moved(bound, count, micro_batch, EMPTY) <= 0.7


def test_control_one_record_for_another_moves_it_by_two() -> None:
    assert 1.9 * 0.7 < moved(70, 61, 32, 1) <= 1.4


def test_the_released_sum_has_the_noise_that_was_charged_over_the_public_bound() -> None:
    released = vector(run(full(), noise_only())).numpy() / -0.5 * 70
    assert stats.kstest(released / (1.3 * 0.7), "norm").pvalue > 1e-3
    assert stats.kstest(released / (1.3 * 0.7) * 61 / 70, "norm").pvalue < 1e-3, "and not over the true number"


def test_micro_batches_change_nothing() -> None:
    updates = [vector(run(full(), task(execution=Execution(micro_batch=size)), 2)) for size in (1, 9, 70)]
    for update in updates[:-1]:
        torch.testing.assert_close(update, updates[-1], rtol=1e-4, atol=1e-6)


# ---------------------------------------- neighbours
def test_every_public_quantity_is_the_same_on_a_neighbouring_data_set() -> None:
    seen: list[Any] = []
    plans: list[Any] = []
    execution = Execution(micro_batch=16, observe=seen.append, announce=plans.append)
    updates = [vector(run(full(), noise_only(dataset=silent(n), execution=execution), 3)) for n in (60, 61)]
    assert updates[0].equal(updates[1])
    assert [(done.step, done.steps) for done in seen] == [(1, 3), (2, 3), (3, 3)] * 2
    assert plans[0].micro_batch == plans[1].micro_batch == 16
    assert plans[0].peak_bytes == plans[1].peak_bytes


def test_as_many_rows_are_computed_whatever_the_number_of_records() -> None:
    passes = []
    for count in (3, 69, 70):
        with prepared(full(), task(dataset=silent(count), execution=Execution(micro_batch=16))) as ready:
            passes.append([len(part) for part in ready._parts(ready.sampler.draw(Keystream(KEY)))])
    assert passes == [[16, 16, 16, 16, 6]] * 3


@pytest.mark.parametrize("count", [0, 71, 500])
def test_more_records_than_rows_are_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match="1 to dataset_size=70"):
        sampler_for(full(), count)


def test_whoever_sets_up_needs_a_row_to_spare() -> None:
    check_room(full(), 69)
    for count in (1, 70):
        with pytest.raises(InvalidInput, match="would reveal one record"):
            check_room(full(), count)


def test_more_rows_than_can_be_added_up_closely_are_refused_before_anything_is_drawn() -> None:
    bound = 2_000_000
    with pytest.raises(InvalidInput, match="cannot be added up closely enough"), prepared(full(bound), task()):
        pass
    with prepared(full(1_000_000), task(execution=Execution(micro_batch=32))) as ready:
        assert ready.memory.micro_batch == 32


def test_a_micro_batch_beyond_the_step_is_the_step() -> None:
    with prepared(full(), task(execution=Execution(micro_batch=500))) as ready:
        assert ready.memory.micro_batch == 70


@pytest.mark.parametrize(
    ("own", "most", "rows"), [({}, 32, 32), ({"micro_batch": 8}, 32, 8), ({"memory_limit": "1GB"}, 32, None)]
)
def test_a_policy_bounds_the_rows_of_a_pass_and_a_task_may_take_fewer(
    own: dict[str, Any], most: int, rows: int | None
) -> None:
    assert Execution(**own).in_passes(most).micro_batch == rows
