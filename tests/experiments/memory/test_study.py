"""The study from its settings to its tables: which cells there are, and what is made of them."""

from pathlib import Path

import pytest

from lrdp.errors import InvalidInput
from lrdp.experiments.memory import study
from lrdp.experiments.memory.alone import Measurement, measured_alone
from lrdp.experiments.memory.caching import CachingAllocator
from lrdp.experiments.memory.plan import (
    asked_sizes,
    live_cells,
    measured_cells,
    process_cells,
    recorded_sizes,
    trace_cells,
)
from lrdp.experiments.memory.replaying import replay, reserved_bytes
from lrdp.experiments.memory.steps import live_series
from lrdp.experiments.memory.traces import Trace, rows_of
from lrdp.experiments.study import Places, Results, conduct, read_settings
from lrdp.experiments.study.settings import laid_over, shipped

MIB = 1 << 20


def tables(**changes):
    return laid_over(read_settings(shipped("memory"), quick=True), changes)


@pytest.fixture
def plan():
    return study(read_settings(shipped("memory"), quick=False)).plan


def test_the_paper_s_setting_is_what_is_measured(plan):
    assert (plan.model, plan.records, plan.batch_size, sum(plan.parts)) == ("vgg11", 30_000, 128, 200)
    assert len(plan.contestants) == 6
    taken = {name: sum(len(cell["sizes"]) for cell in process_cells(plan, name)) for name in plan.contestants}
    assert taken == {name: plan.process_steps.get(name, 200) for name in plan.contestants}
    for name in plan.contestants:
        if plan.methods[name].engine == "ours":
            assert sum(len(cell["sizes"]) for cell in live_cells(plan, name)) == 200


def test_a_shorter_study_has_the_first_cells_of_a_longer_one(plan):
    longer = [cell.key for cell in measured_cells(plan)]
    half = study(laid_over(read_settings(shipped("memory"), quick=False), {"steps": 100})).plan
    shorter = [cell.key for cell in measured_cells(half)]
    assert set(shorter) < set(longer)
    assert longer[: len(shorter)] == shorter


def test_sizes_that_are_measured_enclose_those_that_are_taken_and_one_comes_twice(plan):
    name = "Opacus, Poisson"
    taken = {size for cell in process_cells(plan, name) for size in cell["sizes"]}
    (found,) = [cell["sizes"] for cell in live_cells(plan, name)]
    assert min(found) <= min(taken) <= max(taken) <= max(found)
    assert len(set(found)) == len(found) - 1 == 9


@pytest.mark.parametrize("name", ["Opacus, Poisson", "Opacus, BatchMemoryManager 32", "Opacus, BatchMemoryManager 128"])
def test_traces_are_recorded_in_as_many_equal_pieces_as_batches_have(plan, name):
    method = plan.methods[name]
    for pieces in {len(rows_of(size, method.micro_batch)) for size in range(97, 170)}:
        few, many = recorded_sizes(plan, method, pieces)
        assert few < many
        assert {few, many} <= set(trace_cells(plan, name))
        assert [len(set(rows_of(size, method.micro_batch))) for size in (few, many)] == [1, 1]
        assert [len(rows_of(size, method.micro_batch)) for size in (few, many)] == [pieces, pieces]


def test_in_pieces_every_size_is_measured_for_their_rows_go_up_and_down(plan):
    name = "Opacus, BatchMemoryManager 32"
    taken = [size for part in asked_sizes(plan, plan.methods[name]) for size in part]
    found = [size for cell in live_cells(plan, name) for size in cell["sizes"]]
    assert len(taken) == 200
    assert set(found) == set(taken)
    assert len(found) == len(set(taken)) + len(list(live_cells(plan, name)))


def test_live_bytes_of_a_step_are_those_of_its_size():
    small = study(tables()).plan
    results = Results()
    for cell in live_cells(small, "Opacus, Poisson"):
        results.add(cell, {"sizes": cell["sizes"], "live": [1000 + size for size in cell["sizes"]]})
    series = live_series(small, results, "Opacus, Poisson")
    assert len(series.values) == small.steps
    assert series.values == [1000 + size for size in series.sizes]


def test_growing_records_of_batch_size_are_what_makes_a_card_lose_memory():
    """Worked by hand: a block of n MiB per step. A new record cannot use what is there; anything else can."""

    def trace_at(size):
        return Trace(((size * MIB, -1),))

    found = reserved_bytes(CachingAllocator(), [], [20, 20, 30, 25, 40, 30], trace_at)
    assert [each // MIB for each in found] == [20, 20, 50, 50, 90, 90]
    assert reserved_bytes(CachingAllocator(), [], [40, 20, 30, 25], trace_at) == [40 * MIB] * 4
    assert reserved_bytes(CachingAllocator(expandable=True), [], [20, 30, 40], trace_at)[-1] == 40 * MIB
    assert len(reserved_bytes(CachingAllocator(capacity=50 * MIB), [], [20, 30, 60, 20], trace_at)) == 2


def test_a_replay_leaves_nothing_allocated():
    allocator = CachingAllocator()
    replay(allocator, Trace(((5, 6, -1), (7, -2, -3))))
    assert allocator.allocated == 0


def test_an_unknown_name_is_a_sentence_before_anything_runs():
    with pytest.raises(InvalidInput, match=r"a contestant must be one of .*got 'Opacity': nothing was run"):
        study(tables(contestants=["Opacity"]))
    with pytest.raises(InvalidInput, match="model must be one of vgg11, small cnn, got 'vgg'"):
        study(tables(model="vgg"))
    with pytest.raises(InvalidInput, match="must be two sizes"):
        study(tables(replay={"recorded": [32, 16]}))


def test_a_process_that_fails_says_why_in_a_sentence():
    method = {"engine": "ours", "sampling": "poisson", "cap": 0, "micro_batch": 0, "memory_limit": "", "malloc": "keep"}
    setting = {"model": "small cnn", "records": 40, "batch_size": 8, "seed": 1}
    with pytest.raises(InvalidInput, match="ended with code 1: our engine draws batches that are fixed or truncated"):
        measured_alone(Measurement(measure="live", method=method, setting=setting, sizes=[8]))


class Quiet:
    def stage(self, cells, kept):
        self.kept = kept

    def done(self, cell, seconds):
        self.kept = 0


@pytest.mark.slow
def test_the_quick_study_ends_in_tables_and_pictures_and_goes_on_where_it_was(tmp_path):
    places, watch = Places(data=Path(), features=Path(), results=tmp_path), Quiet()
    written = conduct(study(tables()), places, 1, watch)
    assert sorted(path.name for path in written) == [
        "memory-per-iteration.png",
        "memory-per-iteration.svg",
        "memory-reserved.png",
        "memory-reserved.svg",
        "memory.csv",
        "memory.json",
    ]
    lines = (tmp_path / "memory.csv").read_text(encoding="utf-8").splitlines()
    assert "largest / smallest ≤ 1.02: met" in next(line for line in lines if line.startswith('live,"ours, truncated'))
    conduct(study(tables()), places, 1, watch)
    assert watch.kept > 0
