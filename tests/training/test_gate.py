"""The gate in front of the engine: what is accepted is exact, what is exact is accepted, and what mixes is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lrdp.errors import InvalidInput, OutOfReach, Unsupported
from lrdp.training import CrossEntropy, TensorRecords, check_gradients
from lrdp.training.digests import digest
from lrdp.training.local_steps import prepared
from lrdp.training.sampling import EMPTY, Draw
from training.cases import RECORDS, fixed, model, records, task
from training.truth import clipped, gradients_one_by_one

CLIP = 0.7


def trained_sum(given, slots):
    """The sum as it is trained on, and why examples run alone."""
    with prepared(fixed(batch=len(slots)), given) as ready:
        totals = ready.clipped_sum(Draw(torch.tensor(slots).numpy()))
        parameters = ready.engine.parameters.values()
        found = [totals.get(p, torch.zeros_like(p)).detach().double().flatten() for p in parameters]
        return torch.cat(found), ready.checked.alone


def assert_trains_exactly(given, alone, slots=(4, EMPTY, 17, 30, 2)):
    """As separate backward passes say, within the headroom; and by the way that is expected."""
    found, why = trained_sum(given, list(slots))
    assert bool(why) == alone, why
    drawn = [given.dataset[number] for number in slots if number != EMPTY]
    batch = tuple(torch.stack(column) for column in zip(*drawn, strict=True))
    truth = clipped(gradients_one_by_one(given.model, given.loss, batch, len(drawn)), CLIP).sum(0)
    assert float((found - truth).norm()) <= 0.012 * CLIP * len(drawn)


def mixes(given):
    with pytest.raises(Unsupported, match="other examples of its batch"):
        check_gradients(fixed(), given)


class Changed(nn.Module):
    """A model whose input is changed in some way first."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change = model(), change

    def forward(self, inputs):
        return self.inner(self.change(self, inputs))


# ------------------------------------------------------------------------------------------------------ what is refused
@pytest.mark.parametrize("share", [1.0, 1e-3, 1e-6])
def test_examples_that_feel_each_other_are_refused_however_little(share):
    mixes(task(model=Changed(lambda _, inputs: inputs - share * inputs.mean(0))))


def test_every_row_is_watched_and_in_the_mode_that_is_trained_in():
    mixes(task(model=Changed(lambda self, inputs: inputs.cumsum(0) if self.training else inputs)))
    mixes(task(model=Changed(lambda self, inputs: inputs.flip(0).cumsum(0).flip(0) if self.training else inputs)))


def test_a_share_too_small_to_be_seen_still_taints():
    """What is lost in rounding on made-up records need not be on a server's weights: so examples run alone."""
    given = task(model=Changed(lambda _, inputs: inputs + 1e-30 * inputs.sum(0)))
    assert_trains_exactly(given, alone=True)


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda losses, _: torch.where(losses > 50.0 * losses.median(), 0.0, losses),
        lambda losses, _: losses * (1.0 + ((losses > 40.0).float().mean() > 0.9)),
        lambda losses, inputs: losses * (1.0 + ((inputs > 90.0).any(0).sum() > 4)),
    ],
    ids=["the median of all", "how many are large", "whether any is large"],
)
def test_a_threshold_that_no_made_up_record_passes_is_found_where_examples_meet(loss_of):
    """Losses stay as they are on every probe, whichever example is replaced; what they are compared with does not."""

    def loss(given, batch):
        return loss_of(CrossEntropy(classes=3)(given, batch), batch[0])

    given = task(loss=loss)
    assert "test_gate.py line" in check_gradients(fixed(), given).alone
    assert_trains_exactly(given, alone=True)


def test_what_examples_meet_in_does_not_matter_where_no_loss_comes_from_it():
    class Reporting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model()

        def forward(self, inputs):
            self.seen = inputs.mean()
            return self.inner(inputs)

    assert_trains_exactly(task(model=Reporting()), alone=False)


@pytest.mark.parametrize("look", [lambda x: x.tolist(), lambda x: x.detach().numpy(), lambda x: bool(x.any())])
def test_values_are_looked_at_in_torch_or_outside_of_it(look):
    def watching(_, inputs):
        look(inputs)
        return inputs * 1.0

    assert "Changed, test_gate.py line" in check_gradients(fixed(), task(model=Changed(watching))).alone


def test_what_is_kept_from_one_pass_to_the_next_is_refused():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = model(), torch.zeros(())

        def forward(self, inputs):
            kept, self.last = self.last, inputs.detach().sum()
            return self.inner(inputs + 1e-3 * kept.to(inputs))

    with pytest.raises(Unsupported, match=r"other examples of its batch|in a later pass"):
        check_gradients(fixed(), task(model=Remembering()))


class Joined(torch.autograd.Function):
    """Each row for itself on the way there, all together on the way back."""

    @staticmethod
    def forward(_, inputs):
        return inputs.clone()

    @staticmethod
    def backward(_, gradient):
        return gradient + 1e-3 * gradient.sum(0)


def test_examples_that_meet_on_the_way_back_alone_are_trained_one_by_one():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, inputs):
            return self.second(Joined.apply(self.first(inputs)))

    assert_trains_exactly(task(model=Model()), alone=True)


class Shortened(torch.autograd.Function):
    """On the way back, a gradient of the whole batch that is too long is shortened: none of a probe's ever is."""

    @staticmethod
    def forward(_, inputs):
        return inputs.clone()

    @staticmethod
    def backward(_, gradient):
        length = gradient.norm()
        return gradient * torch.where(length > 5.0, 5.0 / length, 1.0)


def hooked(inputs):
    found = inputs * 1.0
    if found.requires_grad:
        found.register_hook(lambda gradient: Shortened.backward(None, gradient))
    return found


@pytest.mark.parametrize("between", [Shortened.apply, hooked], ids=["a function", "a hook"])
def test_a_threshold_on_the_way_back_is_found_where_examples_meet(between):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, inputs):
            return self.second(between(self.first(inputs)))

    given = task(model=Model())
    assert "test_gate.py line" in check_gradients(fixed(), given).alone
    assert_trains_exactly(given, alone=True)


def test_a_refusal_names_the_module_and_the_line_where_examples_meet():
    with pytest.raises(Unsupported, match=r"they meet in Changed, test_gate\.py line \d+\. Keep examples along"):
        check_gradients(fixed(), task(model=Changed(lambda _, inputs: inputs - inputs.mean(0))))


def counts(_, inputs):
    logs = inputs.float().log()
    return logs - logs.mean(0)


def test_a_probe_that_proves_nothing_is_no_proof():
    whole = TensorRecords(torch.randint(0, 2, (RECORDS, 5)), torch.zeros(RECORDS, dtype=torch.int64))
    with pytest.raises(Unsupported, match=r"squared lengths inf, inf"):
        check_gradients(fixed(), task(model=Changed(counts), dataset=whole))

    def flat(given, batch):
        return functional.relu(given(batch[0] - batch[0].mean(0)).sum(1) - 1e3)

    with pytest.raises(Unsupported, match="public records that the model learns from"):
        check_gradients(fixed(), task(loss=flat))


def test_public_probes_take_the_place_of_made_up_records():
    def hinge(given, batch):
        return functional.relu(batch[0].sum(1) - 5.1) * given(batch[0]).sum(1)

    with pytest.raises(Unsupported, match=r"Task\(probes=…\)"):
        check_gradients(fixed(), task(loss=hinge))
    chance = torch.Generator().manual_seed(1)
    known = [(torch.randn(5, generator=chance) * 9, torch.tensor(1)) for _ in range(40)]
    steep = [record for record in known if float(record[0].sum()) > 6.0]
    assert not check_gradients(fixed(), task(loss=hinge, probes=steep)).alone
    with pytest.raises(InvalidInput, match="at least 3 public records"):
        check_gradients(fixed(), task(loss=hinge, probes=steep[:2]))
    with pytest.raises(InvalidInput, match="form of the data set's records"):
        check_gradients(fixed(), task(loss=hinge, probes=[(torch.zeros(4), torch.tensor(1))] * 3))
    with pytest.raises(Unsupported, match="fewer than 3 different ones"):
        check_gradients(fixed(), task(loss=hinge, probes=steep[:1] * 3))


@pytest.mark.parametrize(
    "similar",
    [
        lambda values: functional.cross_entropy(values @ values.t(), torch.arange(len(values)), reduction="none"),
        lambda values: (values - values.topk(2, 0).values[1]).square().sum(1),
    ],
    ids=["no gradient alone", "no loss alone"],
)
def test_a_loss_that_needs_company_is_said_to(similar):
    with pytest.raises(Unsupported, match=r"depends on the others in its batch, as in a contrastive loss"):
        check_gradients(fixed(), task(loss=lambda given, batch: similar(given(batch[0]))))


def test_a_loss_of_the_wrong_form_is_told_the_right_one():
    for wrong, named in [(lambda losses: (losses,), "tuple"), (lambda losses: losses.squeeze(), r"squeeze\(-1\)")]:
        with pytest.raises(InvalidInput, match=f"one value per example.*{named}"):
            check_gradients(fixed(), task(loss=lambda given, batch, wrong=wrong: wrong(given(batch[0]).sum(1))))


def test_made_up_records_are_searched_for_such_as_prove_something():
    """Of labels 0 and 1 this loss learns from one alone, as one that wants labels −1 and 1 does."""

    def one_sided(given, batch):
        return given(batch[0]).sum(1) * (batch[1] == 1)

    assert not check_gradients(fixed(), task(loss=one_sided)).alone


def test_a_model_that_takes_some_made_up_records_is_tried_on_those():
    class Demanding(CrossEntropy):
        def __call__(self, given, batch):
            if bool((batch[0][:, 0] < 0.3).any()):
                raise ValueError("too small")
            return super().__call__(given, batch)

    assert "depends on values" in check_gradients(fixed(), task(loss=Demanding(classes=3))).alone


@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("extreme", [torch.amax, lambda counts, _: -counts.amin()], ids=["most", "least"])
def test_counts_are_tried_above_one_and_below_nought_where_the_model_takes_them(columns, extreme):
    """The largest of zeros and ones is one and the least is nought, whichever is replaced."""

    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.head = nn.Linear(columns, 4), nn.Linear(4, 3)

        def forward(self, counts):
            return self.head(self.line(counts / extreme(counts, 0).clamp(min=1).to(self.line.weight)).tanh())

    counts = TensorRecords(torch.randint(0, 200, (RECORDS, columns)), torch.randint(0, 3, (RECORDS,)))
    mixes(task(model=Shares(), dataset=counts))


def test_a_parameter_that_no_record_reaches_is_named():
    given = model()
    given.register_parameter("spare", nn.Parameter(torch.ones(3)))
    with pytest.raises(Unsupported, match=r"1 trained parameters get no gradient .*: spare\. They"):
        check_gradients(fixed(), task(model=given))


def test_a_model_that_fails_on_made_up_records_is_said_to():
    def demanding(_, inputs):
        if not bool((inputs[:, 0] > 1.0).all()):
            raise ValueError("separators are missing")
        return inputs

    with pytest.raises(InvalidInput, match=r"fails on made-up records of the form .*separators are missing.*probes"):
        check_gradients(fixed(), task(model=Changed(demanding)))


def test_a_model_that_takes_made_up_records_one_by_one_only_asks_for_probes():
    """As classifiers do that want the same number of separators in every example."""

    def alike(_, inputs):
        if len(set(inputs.sum(1).round().tolist())) > 1:
            raise ValueError("all examples must have as many separators")
        return inputs

    with pytest.raises(InvalidInput, match=r"fails on made-up records .*as many separators.*probes"):
        check_gradients(fixed(), task(model=Changed(alike)))


# ----------------------------------------------------------------------------------------- what runs example by example
class RawAndDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.drop, self.inner = nn.Parameter(torch.ones(5)), nn.Dropout(0.5), model()

    def forward(self, inputs):
        return self.inner(self.drop(inputs * self.scale))


class OwnWeights(nn.Module):
    """A weight that is used behind its module's back, and a list of raw ones."""

    def __init__(self):
        super().__init__()
        self.line, self.more = nn.Linear(5, 7), nn.ParameterList([nn.Parameter(torch.randn(7, 3) / 3)])

    def forward(self, inputs):
        return functional.linear(inputs, self.line.weight, self.line.bias).tanh() @ self.more[0]


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), model()

    def forward(self, inputs):
        return self.head(checkpoint(self.inner, inputs.requires_grad_(), use_reentrant=True))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(1, 4), nn.Linear(4, 3)

    def forward(self, inputs):
        hidden: Any = None
        for column in inputs.t():
            hidden = self.cell(column[:, None], hidden)
        return self.head(hidden[0])


class Positions(nn.Module):
    """Positions that all examples share, without a row for each."""

    def __init__(self):
        super().__init__()
        self.positions, self.inner = nn.Embedding(5, 1), model()

    def forward(self, inputs):
        return self.inner(inputs + self.positions(torch.arange(5))[:, 0])


class Selected(nn.Module):
    """As many rows inside as there are certain values."""

    def __init__(self):
        super().__init__()
        self.line, self.head = nn.Linear(1, 4), nn.Linear(4, 3)

    def forward(self, inputs):
        chosen = inputs > 0.2
        values = inputs.new_zeros(*inputs.shape, 4)
        values[chosen] = self.line(inputs[chosen][:, None])
        return self.head(values.sum(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.randn(5, 5) / 2)
        self.two, self.inner = self.one, model()

    def forward(self, inputs):
        return self.inner((inputs @ self.one).tanh() @ self.two)


def normalised():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    "make",
    [OwnWeights, Checkpointed, Positions, Selected, normalised],
    ids=lambda make: make.__name__,
)
def test_what_has_no_rule_and_mixes_nothing_is_trained_exactly_alone(make):
    torch.manual_seed(3)
    assert_trains_exactly(task(model=make()), alone=True)


class Words(nn.Module):
    """Records are token ids, and every example has a row of positions."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(9, 4), nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, tokens):
        places = torch.arange(5).repeat(len(tokens), 1)
        return self.head((self.words(tokens) + self.places(places)).tanh().mean(1))


class Sparse(Words):
    """Gradients that hold the rows of some tokens only, and a table that is used behind its module's back."""

    def forward(self, tokens):
        return self.head(functional.embedding(tokens, self.words.weight, sparse=True).mean(1) + self.places.weight[0])


def test_sparse_gradients_are_gradients():
    whole = TensorRecords(torch.randint(0, 9, (RECORDS, 5)), torch.randint(0, 3, (RECORDS,)))
    layers = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(20, 3))
    with prepared(fixed(), task(model=layers, dataset=whole)) as ready:
        assert not ready.checked.alone
    given = task(model=Sparse(), dataset=whole)
    found, why = trained_sum(given, [4, 17])
    assert why
    given.model.forward = lambda tokens: given.model.head(
        given.model.words(tokens).mean(1) + given.model.places.weight[0]
    )
    batch = tuple(torch.stack(column) for column in zip(whole[4], whole[17], strict=True))
    truth = clipped(gradients_one_by_one(given.model, given.loss, batch, 2), CLIP).sum(0)
    assert float((found - truth).norm()) <= 0.012 * CLIP * 2


def test_a_gradient_in_a_loss_is_taken_one_by_one():
    """As a penalty on how steep a model is."""

    def steep(given, batch):
        inputs = batch[0].detach().requires_grad_()
        (slope,) = torch.autograd.grad(given(inputs).sum(), inputs, create_graph=True)
        return slope.square().sum(1)

    assert_trains_exactly(
        task(loss=steep, model=nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3, bias=False))), alone=True
    )


def test_dropout_after_attention_draws_in_the_order_of_torchs_own():
    """Otherwise torch's most usual layer would run alone, for no other reason than its mask."""
    blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
    given = nn.Sequential(nn.Unflatten(1, (5, 1)), nn.Linear(1, 4), blocks, nn.Flatten(), nn.Linear(20, 3))
    assert not check_gradients(fixed(), task(model=given)).alone


class Stacked(nn.Module):
    """Layers that are not written out in full."""

    def __init__(self, inner):
        super().__init__()
        self.line, self.inner, self.head = nn.Linear(1, 4), inner, nn.Linear(4, 3)

    def forward(self, inputs):
        values = self.line(inputs[:, :, None])
        given = (values,) if isinstance(self.inner, nn.LSTM) else (values, values, values)
        return self.head(self.inner(*given)[0].mean(1))


def test_a_layer_that_is_not_written_out_in_full_is_one_without_a_rule():
    attention = nn.MultiheadAttention(4, 2, add_bias_kv=True, batch_first=True)
    assert_trains_exactly(task(model=Stacked(attention)), alone=True)
    recurrent = Stacked(nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True))
    assert check_gradients(fixed(), task(model=recurrent)).alone
    recurrent.eval()
    assert_trains_exactly(task(model=recurrent), alone=False)


def test_random_numbers_that_are_drawn_until_they_fit_are_drawn_for_each_example_alone():
    """One example's values decide which numbers the next one gets: nothing else ties them together."""
    given = task(model=Changed(lambda _, inputs: inputs + torch.poisson(inputs.abs().clamp(max=9.0))))
    assert "how many random numbers are drawn" in check_gradients(fixed(), given).alone


def test_token_ids_are_marked_where_they_become_numbers():
    whole = TensorRecords(torch.randint(0, 9, (RECORDS, 5)), torch.randint(0, 3, (RECORDS,)))
    assert_trains_exactly(task(model=Words(), dataset=whole), alone=False)
    centred = Words()
    centred.words.register_forward_hook(lambda _, args, output: output + 1e-30 * output.mean(0))
    assert_trains_exactly(task(model=centred, dataset=whole), alone=True)


@pytest.mark.parametrize("make", [model, Tied, Cell], ids=["layers", "tied raw parameters", "a cell of two states"])
def test_what_the_rules_know_is_trained_together(make):
    assert_trains_exactly(task(model=make()), alone=False)


def test_random_numbers_beside_raw_parameters_run_alone():
    given = task(model=RawAndDropout())
    assert check_gradients(fixed(), given).alone
    given.model.eval()
    assert_trains_exactly(given, alone=False)


def test_a_branch_that_hangs_on_the_batch_is_found_with_its_line():
    def branching(_, inputs):
        return inputs * 1.0 if bool((inputs > -9.0).all()) else inputs

    given = task(model=Changed(branching))
    assert "test_gate.py line" in check_gradients(fixed(), given).alone
    assert_trains_exactly(given, alone=True)


def test_a_loss_bound_to_one_type_of_number_runs_alone():
    weights = torch.tensor([1.0, 2.0, 3.0])

    def loss(given, batch):
        return functional.cross_entropy(given(batch[0]), batch[1], weight=weights, reduction="none")

    given = task(loss=loss)
    assert "float64" in check_gradients(fixed(), given).alone
    assert_trains_exactly(given, alone=True)


# -------------------------------------------------------------------------------------------------- alone, but soundly
def test_alone_a_record_that_raises_or_is_not_finite_weighs_nothing():
    class Raising(CrossEntropy):
        def __call__(self, given, batch):
            if bool((batch[0] > 50).any()):
                raise ValueError("a value that nobody expects")
            return super().__call__(given, batch)

    inputs, labels = records().columns_at(torch.arange(RECORDS).numpy())
    others = task(model=OwnWeights(), loss=Raising(classes=3))
    expected, why = trained_sum(others, [EMPTY, 5, 9])
    assert why
    for bad in (60.0, float("nan"), float("inf")):
        inputs[3] = bad
        given = task(model=others.model, loss=Raising(classes=3), dataset=TensorRecords(inputs.clone(), labels))
        found, _ = trained_sum(given, [3, 5, 9])
        assert torch.equal(found, expected), bad


def test_alone_random_numbers_hang_on_the_slot_and_not_on_who_stands_before():
    given = task(model=RawAndDropout())
    sums = []
    for first in (EMPTY, 11, 12):
        torch.manual_seed(5)
        both = trained_sum(given, [first, 7])[0]
        torch.manual_seed(5)
        sums.append(both - trained_sum(given, [first, EMPTY])[0])
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(sums[0], sums[2], rtol=1e-5, atol=1e-7)


def test_an_instances_own_forward_comes_back():
    given = nn.Sequential(nn.Linear(5, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3))
    own = given[1].forward = lambda inputs, layer=given[1]: type(layer).forward(layer, inputs) * 2.0
    check_gradients(fixed(), task(model=given))
    assert vars(given[1])["forward"] is own


# ----------------------------------------------------------------------------------------------- after the gate, pinned
class Sometimes(nn.Module):
    """Once it is ``woken``, an example with a large value is seen as two shorter ones: no check could have known."""

    def __init__(self):
        super().__init__()
        self.inner, self.woken = nn.Linear(5, 5), False
        self.head = nn.Linear(5, 3)

    def forward(self, inputs):
        if self.woken and bool((inputs > 50.0).any()):
            inner = self.inner(torch.cat([inputs, inputs])).view(2, *inputs.shape).mean(0)
        else:
            inner = self.inner(inputs)
        return self.head(inner)


def test_a_pass_with_other_shapes_than_were_checked_leaves_out_the_record_that_caused_them():
    inputs, labels = records().columns_at(torch.arange(RECORDS).numpy())
    inputs[3] = 60.0
    given = task(model=Sometimes(), dataset=TensorRecords(inputs, labels))
    given = replace(given, checked=check_gradients(fixed(), given))
    assert not given.checked.alone
    expected, _ = trained_sum(given, [EMPTY, 5, 9])
    asleep, _ = trained_sum(given, [3, 5, 9])
    given.model.woken = True
    awake, _ = trained_sum(given, [3, 5, 9])
    assert torch.equal(awake, expected)
    assert not torch.equal(asleep, expected)


def test_what_is_done_with_many_examples_only_is_found_before_they_come():
    def crowded(_, inputs):
        return inputs - inputs.mean(0) if len(inputs) > 4 else inputs

    given = task(model=Changed(crowded))
    assert_trains_exactly(given, alone=True)
    few = replace(given, execution=replace(given.execution, micro_batch=4))
    assert "than with 3" not in check_gradients(fixed(batch=12), few).alone
    checked = check_gradients(fixed(batch=12), few)
    assert not checked.alone
    assert "something else is done with 5" in check_gradients(fixed(batch=5), replace(given, checked=checked)).alone


def in_groups(_, values):
    """One group up to 15 examples, two from 16 on, and each example beside its like in the other groups."""
    groups = values.view(max(1, len(values) // 8), -1, values.shape[1])
    return (groups + groups.mean(0)).view(values.shape)


def in_turn(_, values):
    """The first and the ninth are added up, the second and the tenth, and so on."""
    places = torch.arange(len(values)) % 8
    return values + values.new_zeros(8, values.shape[1]).index_add(0, places, values)[places]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (in_groups, "something else is done with 16"),
        (lambda _, values: values / max(1, len(values) - 10), "something else is done with 16"),
        (in_turn, "one of 16 examples depends on the others"),
    ],
    ids=["groups", "a number", "places"],
)
def test_examples_that_meet_in_crowds_only_are_found_before_they_come(change, why):
    """The same operations in the same order, for few and for many; but on other sizes, numbers or places."""
    given = task(model=Changed(change))
    assert why in check_gradients(fixed(batch=16), given).alone
    assert_trains_exactly(given, alone=True, slots=range(16))


class Shuffled(nn.Module):
    """While it is trained, what a layer sees as one row is another; of three, chance may leave all where they are."""

    def __init__(self, burnt):
        super().__init__()
        self.first, self.second, self.head, self.burnt = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3), burnt

    def forward(self, inputs):
        torch.rand(self.burnt)
        order = torch.randperm(len(inputs)) if self.training else torch.arange(len(inputs))
        return self.head(self.second(self.first(inputs)[order]).tanh()[order.argsort()])


@pytest.mark.parametrize("burnt", range(4))
def test_examples_that_are_shuffled_inside_run_alone_whatever_chance_does_to_few(burnt):
    assert check_gradients(fixed(), task(model=Shuffled(burnt))).alone


def test_digests_tell_gradients_apart_wherever_they_differ():
    chance = torch.Generator().manual_seed(2)
    values = torch.randn(3, 1001, 700, generator=chance, dtype=torch.float64)
    plain = digest(values)
    assert torch.equal(digest(values.clone()), plain)
    torch.testing.assert_close(digest(3.0 * values), 3.0 * plain, rtol=1e-12, atol=1e-9)
    for place in (0, 511, 512, 1_048_575, 1_048_576, values.numel() - 1):
        other = values.clone()
        other.view(-1)[place] *= 1.0 + 1e-3
        assert not torch.allclose(digest(other), plain, rtol=0.0, atol=1e-9 * float(plain.norm()))


def test_a_check_that_runs_out_of_memory_says_so_and_not_that_the_model_is_slow():
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model()

        def forward(self, inputs):
            if len(inputs) == 2 and inputs.dtype == torch.float64:
                torch.empty(1 << 60)
            return self.inner(inputs)

    with pytest.raises(OutOfReach, match="ran out of memory"):
        check_gradients(fixed(), task(model=Large()))


def test_empty_slots_hold_a_record_that_the_model_takes(caplog):
    class Demanding(CrossEntropy):
        def __call__(self, given, batch):
            if bool((batch[0] == 0.0).all(1).any()):
                raise ValueError("a row of nothing")
            return super().__call__(given, batch)

    given = task(loss=Demanding(classes=3))
    with caplog.at_level("WARNING", logger="lrdp.training"):
        found, why = trained_sum(given, [EMPTY, 5, EMPTY, 9])
    assert why
    assert not caplog.records
    assert float(found.norm()) > 0.0
