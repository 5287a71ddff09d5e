"""Whether whoever chooses weights and records can get round the clip norm (docs/training.md, *Certified clipping*)."""

import sys
from functools import partial
from typing import Any

import pytest
import torch

from lrdp.training import AutomaticClipping
from training import before
from training.adversary.forms import Form, forms
from training.adversary.moves import Attack
from training.adversary.search import Budget, search, share
from training.adversary.target import computed_sum, true_gradients

FORMS = {form.name: form for form in forms()}
every_form = pytest.mark.parametrize("name", FORMS)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests run side by side; small matrices gain nothing from more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@every_form
def test_no_weights_or_records_move_the_computed_sum_by_more_than_the_clip_norm(name):
    found = search(FORMS[name], seed=1, budget=Budget(tries=70))
    assert found.largest <= 1.0, found.attack
    assert found.largest > 0.99  # an attack that fails is still clipped, not thrown away


@every_form
@pytest.mark.parametrize("gamma", [0.01, 1e-9])
def test_automatic_clipping_keeps_the_clip_norm_whatever_weights_and_records_are_chosen(name, gamma):
    """Short gradients are lengthened, by up to what is allowed, and what rounding did to them with them."""
    target = partial(computed_sum, clipping=AutomaticClipping(gamma=gamma))
    found = search(FORMS[name], seed=5, budget=Budget(tries=24), target=target)
    assert found.largest <= 1.0, found.attack
    assert found.largest > 0.5


@pytest.mark.slow
@every_form
def test_a_long_search_finds_no_way_past_the_clip_norm_either(name):
    found = search(FORMS[name], seed=2, budget=Budget(tries=1200))
    assert found.largest <= 1.0, found.attack


# What the search must find in the clipping of before, where squares from Gram matrices fell short of the truth.
BROKEN = {
    "linear, one term": 2.0,
    "linear, Gram": 2.0,
    "linear, Gram, no bias": 2.0,
    "linear, Gram, wide": 100.0,
    "convolution 2d, patches": 2.0,
    "convolution 2d, pixels": 2.0,
    "two positions": 100.0,
    "two positions, weights only": 100.0,
    "two convolutions, weights only": 100.0,
}


@pytest.mark.parametrize(("name", "enough"), BROKEN.items())
def test_the_search_finds_its_way_past_the_clipping_of_before(name, enough):
    found = search(FORMS[name], seed=3, budget=Budget(tries=6000, enough=enough), target=before.computed_sum)
    assert found.largest > enough
    assert found.attack is not None
    assert share(FORMS[name], found.attack) <= 1.0  # what got round it then is clipped now


def ordinary(form: Form, rows: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(4)
    batch = []
    for use in form.uses:
        numbers = torch.randn(rows, *use.inputs, dtype=form.dtype)
        batch += [torch.randint(0, use.entries, (rows, *use.inputs)) if use.entries else numbers]
        batch += [torch.randn(rows, *use.outputs, dtype=form.dtype)]
    return (batch[0], torch.randint(0, form.classes, (rows,))) if form.classes else tuple(batch)


@every_form
def test_an_ordinary_record_adds_its_own_gradient_clipped(name):
    form, clip_norm = FORMS[name], 0.5
    model, batch = form.model(), ordinary(form, 5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    truth = true_gradients(model, form.loss, batch)
    clipped = truth * (clip_norm / truth.norm(dim=1, keepdim=True)).clamp(max=1.0)
    everyone = torch.ones(5, dtype=torch.bool)
    others = everyone.clone()
    others[2] = False
    sums = [computed_sum(model, form.loss, batch, live, clip_norm) for live in (everyone, others)]
    assert float((sums[0] - sums[1] - clipped[2]).norm()) < 0.02 * clip_norm


@every_form
@pytest.mark.parametrize("size", [2.0, 1e12, torch.nan])
def test_what_stands_in_one_slot_changes_no_bit_of_the_others(name, size):
    """What the proof assumes of the machine, where a row's weight is 0 on both sides and only its content differs."""
    form = FORMS[name]
    model, batch = form.model(), ordinary(form, 5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    others = torch.ones(5, dtype=torch.bool)
    others[3] = False
    changed = tuple(leaf.clone() for leaf in batch)
    for leaf in changed:
        leaf[3] = leaf[3].flip(0) * size if leaf.is_floating_point() else leaf[3].flip(-1 if leaf[3].dim() else ())
    sums = [computed_sum(model, form.loss, given, others, 0.5) for given in (batch, changed)]
    assert torch.equal(*sums)
    assert float(sums[0].norm()) > 0.1


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.way])
def test_each_form_takes_the_way_to_its_norm_that_it_is_named_for(name, monkeypatch):
    form = FORMS[name]
    taken: list[Any] = []
    present = [one for one in map(located, form.way) if one is not None]
    if not present:
        pytest.skip("the way has another name now")
    for kind, method in present:
        monkeypatch.setattr(kind, method, watched(getattr(kind, method), taken))
    model, batch = form.model(), ordinary(form, 5)
    attack = Attack("ordinary", tuple(p.detach() for p in model.parameters()), batch, 2, 1.0, flush=False)
    share(form, attack, model)
    assert taken


def located(way: str) -> tuple[Any, str] | None:
    """The class and the method of a name like ``Factored.rows``, if the code has them."""
    kind_name, method = way.split(".")
    modules = [module for name, module in sys.modules.items() if name.startswith("lrdp.training")]
    kinds = [kind for kind in (getattr(module, kind_name, None) for module in modules) if hasattr(kind, method)]
    return (kinds[0], method) if kinds else None


def watched(method, taken):
    def wrapped(*args, **kwargs):
        taken.append(method.__name__)
        return method(*args, **kwargs)

    return wrapped


# ------------------------------------------------------------------------------------------- attacks that worked once
def single(name, inputs, slopes, clip_norm, flush=False):
    """One record of equal numbers, and weights of zero."""
    form = FORMS[name]
    weights = tuple(torch.zeros_like(parameter) for parameter in form.model().parameters())
    batch = torch.full((1, *form.uses[0].inputs), inputs), torch.full((1, *form.uses[0].outputs), slopes)
    return form, Attack("once", weights, batch, 0, clip_norm, flush)


@pytest.mark.parametrize(
    ("name", "inputs", "slopes", "clip_norm"),
    [
        # Squares of the slopes vanish, their products with the inputs do not: 588 and 2217 clip norms.
        ("linear, one term", 3e18, 1e-23, 1e-6),
        ("linear, Gram", 1e18, 1e-23, 1e-6),
        # The same where denormals are flushed: 588 and 221702.
        ("linear, one term", 3e18, 1e-20, 1e-3),
        ("linear, Gram", 1e18, 1e-21, 1e-6),
        # The coefficient is a denormal and rounds up: 1.19.
        ("linear, one term", 3.4e18, 4.2626e18, 1e-6),
        # The slope is one once it is scaled: 1.19.
        ("linear, one element", 2.83e38, 7.1e-16, 1e-6),
        ("linear, one element", 7.1e-16, 2.83e38, 1e-6),
    ],
)
@pytest.mark.parametrize("flush", [False, True])
def test_numbers_near_the_smallest_and_largest_floats_do_not_slip_past_the_clip(name, inputs, slopes, clip_norm, flush):
    form, attack = single(name, inputs, slopes, clip_norm, flush)
    assert share(form, attack) <= 1.0


@pytest.mark.parametrize("name", ["linear, multiplied out twice", "raw matrix, repeated", "two forms, repeated"])
@pytest.mark.parametrize("size", [2.0**10, 2.0**27, 2.0**50])
def test_terms_that_cancel_do_not_take_the_others_sum_with_them(name, size):
    """Added one by one, the first term swallows what was added before and the second leaves nothing: 15 clip norms."""
    form = FORMS[name]
    model, batch = form.model(), ordinary(form, 16)
    for inputs, slopes in zip(batch[0::2], batch[1::2], strict=True):
        inputs[:], slopes[:] = inputs[:1].clone(), slopes[:1].clone()
        inputs[-1] = size
        slopes[-1] = size * torch.tensor([1.0, -1.0]).repeat(slopes.shape[1] // 2)[:, None]
    weights = tuple(torch.zeros_like(parameter) for parameter in model.parameters())
    assert share(form, Attack("once", weights, batch, 15, 1.0, flush=False), model) <= 1.0


def test_rounding_does_not_drift_where_very_many_records_are_added_up():
    """A sum that stands just below a power of two without the record, and just above it with it: 1.04 clip norms.

    Above it floats lie twice as far apart. What comes later is half that distance and a little more, then back by a
    little less: below it this leaves nothing, above it the whole distance every time. Once in 2^14 records, because
    torch adds up float32 in levels, and a new one begins there.
    """
    level, size, power = 1 << 14, 0.495, 16
    slopes = torch.zeros(16 * level)
    below = 2.0**power - 0.25
    count = int(below / size)
    slopes[:count] = size
    slopes[count] = below - count * float(slopes[0])
    record = 9 * level - 1
    slopes[record] = size
    half = 2.0 ** (power - 24)
    slopes[9 * level :: 2 * level], slopes[10 * level :: 2 * level] = half * 1.02, -half * 0.98
    form = Form("two by two", partial(torch.nn.Linear, 2, 2, bias=False), ())
    batch = torch.ones(len(slopes), 2), slopes[:, None].expand(-1, 2)
    attack = Attack("once", (torch.zeros(2, 2),), batch, record, 1.0, flush=False, absence="blank")
    assert share(form, attack, target=partial(computed_sum, micro_batch=len(slopes))) <= 1.0
