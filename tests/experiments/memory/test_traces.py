"""What is kept of a recording, and how sizes that were not recorded follow from two that were."""

import math
import warnings

import pytest
import torch

from lrdp.errors import InvalidInput
from lrdp.experiments.memory.contestants import PIECE, ContestantMethod, Setting, contestant
from lrdp.experiments.memory.measuring import STEP, Happening, live_peaks, recorded
from lrdp.experiments.memory.records import Pictures
from lrdp.experiments.memory.traces import Lines, Trace, difference, live_peak, of_last_step, rows_of, trace_of


def happenings(*told):
    """``(address, bytes)`` for an allocation or its end, and names for marks."""
    return [Happening(0, 0, one) if isinstance(one, str) else Happening(*one) for one in told]


TWO_STEPS = happenings(
    (7, 100), STEP, (8, 40), (7, -100), (9, 60), PIECE, (8, -40), (8, 30), PIECE, (9, -60), STEP, (8, -30)
)


def test_the_moves_of_the_last_step_name_blocks_by_their_order():
    """Worked by hand: address 8 is used twice, 7 is from the step before, and the third block outlives the step."""
    found = of_last_step(TWO_STEPS)
    assert found == {"moves": [40, 60, -1, 30, -2, -3], "pieces": [2, 4], "kept_bytes": 30, "earlier_bytes": 100}


def test_peaks_count_what_earlier_steps_left():
    assert live_peaks(TWO_STEPS) == [100, 140]


def test_a_trace_is_cut_where_pieces_end_and_the_last_has_the_rest():
    trace = trace_of(of_last_step(TWO_STEPS))
    assert trace == Trace(((40, 60), (-1, 30, -2, -3)))
    assert live_peak(trace) == 100
    assert trace_of({"moves": [8, -1], "pieces": []}) == Trace(((8, -1),))


@pytest.mark.parametrize(
    ("size", "micro_batch", "expected"),
    [(130, 0, (130,)), (128, 32, (32,) * 4), (129, 32, (26, 26, 26, 26, 25)), (5, 32, (5,)), (33, 32, (17, 16))],
)
def test_batches_are_cut_as_numpy_cuts_them(size, micro_batch, expected):
    assert rows_of(size, micro_batch) == expected


def test_sizes_between_lie_on_the_line_of_their_own_piece():
    few, many = Trace(((100, 7, -1), (20, -2, -3))), Trace(((160, 7, -1), (50, -2, -3)))
    lines = Lines(few, 10, many, 20)
    assert lines.at((15, 12)) == Trace(((130, 7, -1), (26, -2, -3)))
    assert lines.at((10, 10)) == few
    with pytest.raises(InvalidInput, match="2 pieces, got rows for 1"):
        lines.at((15,))


def test_traces_of_different_orders_are_refused():
    with pytest.raises(InvalidInput, match="different orders"):
        Lines(Trace(((5, 6, -1, -2),)), 1, Trace(((5, 6, -2, -1),)), 2)


def test_a_difference_is_relative_to_what_lives_and_infinite_between_orders():
    assert difference(Trace(((100, 100, -1, -2),)), Trace(((100, 101, -1, -2),))) == 0.005
    assert difference(Trace(((5, 6, -1, -2),)), Trace(((5, 6, -2, -1),))) == math.inf
    assert difference(Trace(((5, -1),)), Trace(((5, -1, 3, -2),))) == math.inf


def recorded_step(method, size):
    setting = Setting(model="small cnn", records=90, batch_size=20, seed=3)
    records = Pictures(90, (1, 28, 28), 3)
    with (
        warnings.catch_warnings(action="ignore"),
        contestant(ContestantMethod(engine="opacus", sampling="poisson", **method), setting, records) as steps,
    ):
        sizes, told = recorded(lambda done: steps([size, size], done))
    assert sizes == [size, size]
    return trace_of(of_last_step(told))


def test_a_recorded_batch_of_opacus_follows_from_two_others():
    lines = Lines(recorded_step({}, 14), 14, recorded_step({}, 31), 31)
    assert difference(recorded_step({}, 22), lines.at((22,))) == 0.0


def test_so_does_one_in_pieces():
    pieces = {"micro_batch": 10}
    lines = Lines(recorded_step(pieces, 24), 8, recorded_step(pieces, 30), 10)
    assert difference(recorded_step(pieces, 26), lines.at((9, 9, 8))) == 0.0
    assert difference(recorded_step(pieces, 26), lines.at((9, 9, 9))) > 0.0  # the control


def test_the_profiler_tells_every_tensor_and_nothing_of_its_own():
    """Sizes that nothing else here has; the sum of what lives is worked by hand."""

    def run(done):
        held = torch.empty(1013, dtype=torch.uint8)
        for number in range(30):
            first = torch.empty(70_001, dtype=torch.uint8)
            second = torch.empty(50_003 + number, dtype=torch.uint8)
            del first, second
            done(number)
        del held

    sizes, told = recorded(run)
    assert sizes == list(range(30))
    assert live_peaks(told) == [1013 + 70_001 + 50_003 + number for number in range(30)]


def test_a_block_of_an_earlier_recording_is_in_no_later_one():
    """Its end is told all the same: where Python collects it meanwhile, a step seemed to need fewer bytes."""
    kept = []

    def earlier(done):
        kept.append(torch.empty(90_001, dtype=torch.uint8))
        done(0)

    recorded(earlier)

    def run(done):
        for number in range(2):
            held = torch.empty(70_001, dtype=torch.uint8)
            kept.clear()
            del held
            done(number)

    assert live_peaks(recorded(run)[1]) == [70_001, 70_001]
