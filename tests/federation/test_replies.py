"""A server that aims weights at one record: no reply tells whether it is there, whatever becomes of it.

A client's replies are functions of what is public: the messages, the policy, the weights. Here real clients answer the
same messages on neighbouring data sets, and all that leaves but the noise is compared.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message
from torch import Tensor, nn
from torch.nn import functional

from lrdp.accounting import TruncatedPoissonGaussian
from lrdp.federation import Node, Order, private_client_app
from lrdp.federation.client import app as apps
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.participant import Participant
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.questions import Contributed, Decline, Question, read_message, to_frame
from lrdp.training import CrossEntropy, Dataset, Execution, TensorRecords, private_update

from .hostile import VICTIM, Stage, ordering, stage
from .replies.layers import LAYERS, Aimable
from .replies.losses import MEASURES, Measure
from .replies.outcomes import Bench, Outcome, Pair, Setting, aimed_pairs, lets_through, weights_of
from .replies.public import BATCH, LEAST, OTHERS
from .replies.records import CHANGES, KINDS, ODD, Listed, People, Skipping, odd_neighbours
from .replies.sums import anomalies_detected, clipped_sums
from .replies.times import TIMED, slowdowns
from .replies.weights import AIMS, MODEST
from .test_hostile_neighbours import TARGET, aimed

MIDDLE = 4
SHARPEST = ("large", "large below zero", "overflowing at the gate", "overflowing at the head", "undefined", "wild")
SHARP = [(aim, 0) for aim in SHARPEST]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Thousands of tiny passes: threads that wait for each other take longer than they do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _some_layers(loss: str) -> list[str]:
    """Two layers for each loss, so that all losses together meet all layers."""
    place, layers = list(MEASURES).index(loss), list(LAYERS)
    return [layers[place % len(layers)], layers[(place + 3) % len(layers)]]


# Tests of one list begin at places of their own, so that together their quick cases meet more of it than each does.
LOSSES = 7
"""One in so many: it shares no factor with the layers, the changes and the aims that losses are given in turn."""
RECORDS = 5
"""One in so many, by as many tests as that: each odd record is met by one of them."""


def _turn(name: str, names: Iterable[str], choices: Iterable[Any]) -> Any:
    """Each name's own choice, in turn: so that few cases meet all choices."""
    given = list(choices)
    return given[list(names).index(name) % len(given)]


def _alike(pairs: Iterable[Pair]) -> int:
    """How many pairs there were, none of which anybody can tell apart; and all of them updates like any other."""
    found = list(pairs)
    apart = [pair for pair in found if pair.told_apart]
    assert not apart, f"{len(apart)} of {len(found)} tell of the record, the first one {apart[0]}"
    odd = [pair for pair in found if not pair.with_target.ordinary]
    assert not odd, f"{len(odd)} of {len(found)} are no ordinary updates, the first one {odd[0]}"
    return len(found)


# ---------------------------------------- updates
def test_every_loss_of_torch_is_tried() -> None:
    takes = {name for name, given in vars(functional).items() if inspect.isfunction(given) and not name.startswith("_")}
    losses = {name for name in takes if "reduction" in inspect.signature(getattr(functional, name)).parameters}
    assert losses <= set(MEASURES)


@pytest.mark.one_in(LOSSES)
@pytest.mark.parametrize("loss", MEASURES)
def test_no_update_tells_of_a_record_whatever_the_loss(loss: str) -> None:
    changes, cases = [_turn(loss, MEASURES, CHANGES)], SHARP[::2]
    assert _alike(aimed_pairs(_some_layers(loss)[0], loss, cases, changes=changes)) == len(cases)


SLOW_SEEDS = range(1, 4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loss", MEASURES)
def test_no_update_tells_of_a_record_in_ten_thousand_pairs(loss: str) -> None:
    cases = list(product(AIMS, SLOW_SEEDS))
    count = sum(_alike(aimed_pairs(layer, loss, cases)) for layer in LAYERS)
    assert count * len(MEASURES) >= 10_000


@pytest.mark.one_in(LOSSES)
@pytest.mark.parametrize("loss", MEASURES)
def test_control_who_lets_an_error_through_tells_of_the_record(loss: str) -> None:
    """Else these weights would prove nothing: with every loss some of them show the record, or make it show."""
    tried = (aimed_pairs(layer, loss, SHARP, changes=["replaced"], train=lets_through) for layer in _some_layers(loss))
    assert any(pair.told_apart for pairs in tried for pair in pairs)


SETTINGS: Mapping[str, Setting] = {
    "in parts": Setting(execution=Execution(micro_batch=3)),
    "one at a time": Setting(execution=Execution(micro_batch=1)),
    "in several steps": Setting(steps=4),
    "in slots that may stay empty": Setting(
        mechanism=TruncatedPoissonGaussian(dataset_size=20, batch_size=15, cap=18, noise_multiplier=2.0)
    ),
    "at a large rate": Setting(rate=1e9, steps=2),
    "with a decay that overflows": Setting(rate=1e9, decay=1.0, steps=2),
    "with the smallest clip norm": Setting(clip_norm=1e-6),
}


def _outcomes(
    model: Callable[[], nn.Module],
    measure: Measure,
    neighbours: Sequence[Dataset],
    weights: Mapping[str, Tensor],
    setting: Setting,
) -> list[Outcome]:
    return [Bench(model(), measure, each, setting, private_update).outcome(weights) for each in neighbours]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("name", SETTINGS)
def test_no_update_tells_of_a_record_however_it_is_made(name: str, turn: int) -> None:
    """Each setting with one of two losses, and in the slow turn with the other."""
    losses = ("a normal distribution", "mse_loss")
    setting, measure, pairs = SETTINGS[name], MEASURES[_turn(name, SETTINGS, losses[turn:] + losses[:turn])], []
    people = People.of("linear", measure, seed=3)
    for aim in ("large", "near overflow"):
        weights = weights_of(Aimable("linear", measure), aim, people.target[0], 0)
        both = people.neighbours("replaced", MIDDLE)
        pairs.append(Pair(aim, *_outcomes(lambda: Aimable("linear", measure), measure, both, weights, setting)))
    _alike(pairs)


def test_no_update_tells_of_a_record_where_torch_looks_for_anomalies() -> None:
    with anomalies_detected():
        _alike(aimed_pairs("linear", "cross_entropy", SHARP))


# ---------------------------------------- data sets
def _odd_pair(odd: str, change: str, place: int, kind: type[Listed]) -> Pair:
    measure = MEASURES["cross_entropy"]
    people = People.of("linear", measure, seed=3)
    weights = weights_of(Aimable("linear", measure), "zeros", people.target[0], 0)
    both = odd_neighbours(people, odd, change, place, kind)
    name = f"{odd}, {change}, at {place}, {kind.__name__}"
    return Pair(name, *_outcomes(lambda: Aimable("linear", measure), measure, both, weights, Setting(steps=2)))


@pytest.mark.one_in(RECORDS)
@pytest.mark.parametrize("odd", ODD)
def test_no_update_tells_of_a_record_that_is_not_like_the_others(odd: str) -> None:
    _alike([_odd_pair(odd, _turn(odd, ODD, CHANGES), MIDDLE, _turn(odd, ODD, KINDS.values()))])


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_no_update_tells_of_a_record_that_is_not_like_the_others_wherever_it_is(odd: str) -> None:
    cases = product(CHANGES, (1, 2, MIDDLE, OTHERS), KINDS.values())
    _alike([_odd_pair(odd, *case) for case in cases])


@pytest.mark.one_in(RECORDS, begin=1)
@pytest.mark.parametrize("odd", ODD)
def test_no_update_tells_of_a_first_record_that_is_not_like_the_others(odd: str) -> None:
    """The form of all is read off one of them."""
    _alike([_odd_pair(odd, "replaced", 0, KINDS["one by one"])])


@pytest.mark.parametrize("change", CHANGES)
def test_no_update_tells_of_a_record_that_the_data_set_leaves_out(change: str) -> None:
    _alike([_odd_pair("cannot be read", change, MIDDLE, Skipping)])


def test_no_update_tells_of_a_token_that_nobody_knows() -> None:
    measure = MEASURES["cross_entropy"]
    people = People.of("embedding", measure, seed=3)
    weights = weights_of(Aimable("embedding", measure), "zeros", people.target[0], 0)
    for token in (1000, -1):
        with_token = replace(people, target=(torch.full_like(people.target[0], token), people.target[1]))
        both = with_token.neighbours("replaced", MIDDLE)
        model = lambda: Aimable("embedding", measure)  # noqa: E731
        _alike([Pair(f"{token}", *_outcomes(model, measure, both, weights, Setting(steps=2)))])


# ---------------------------------------- what one record does to the sum
CLIP = 0.05
"""Below most gradients, so that whoever is lost with a record is missed."""
FAR = 2.0 * (1.0 + 1e-3)
"""In clip norms: how far one record that is replaced may move the sum. Whoever draws it loses another."""


def _crowd(people: People) -> People:
    """Everybody is the same, so that it does not matter who is drawn."""
    first, second = (part[:1].expand_as(part).clone() for part in people.others)
    return replace(people, others=(first, second), another=(first[0], second[0]))


def _moved(
    model: nn.Module, loss: Any, neighbours: Sequence[Dataset], clip_norm: float = CLIP, draws: int = 3
) -> float:
    """How far the sums of both lie apart, in clip norms, at the worst of a few draws."""
    sums = (clipped_sums(model, loss, each, clip_norm, draws) for each in neighbours)
    return max(_apart(first, second) for first, second in zip(*sums, strict=True))


def _apart(first: Tensor, second: Tensor) -> float:
    """Not a number counts as further than any."""
    return float(torch.nan_to_num((first - second).norm(), nan=torch.inf))


@pytest.mark.one_in(LOSSES, begin=2)
@pytest.mark.parametrize("loss", MEASURES)
def test_a_record_takes_nobody_with_it_whatever_the_loss(loss: str) -> None:
    layer, aim = _some_layers(loss)[0], _turn(loss, MEASURES, ("overflowing at the gate", "large", "undefined"))
    measure = MEASURES[loss]
    people, model = _crowd(People.of(layer, measure, seed=3)), Aimable(layer, measure)
    weights_of(model, aim, people.target[0], 0)
    assert _moved(model, measure, people.neighbours("replaced", MIDDLE)) <= FAR


@pytest.mark.one_in(RECORDS, begin=2)
@pytest.mark.parametrize("odd", ODD)
def test_a_record_takes_nobody_with_it_however_it_is_read(odd: str) -> None:
    measure, model = MEASURES["cross_entropy"], Aimable("linear", MEASURES["cross_entropy"])
    people = _crowd(People.of("linear", measure, seed=3))
    weights_of(model, "large", people.another[0], 0)
    kind = _turn(odd, ODD, KINDS.values())
    assert _moved(model, measure, odd_neighbours(people, odd, "replaced", MIDDLE, kind)) <= FAR


def _losing(*outputs: float) -> TensorRecords:
    """Records of these outputs, to a label of 0, whose gradients all point the same way."""
    inputs = torch.ones(len(outputs), 4)
    inputs[:, 3] = torch.tensor(outputs) / MAGNIFIED
    return TensorRecords(inputs, torch.zeros(len(outputs)))


MAGNIFIED = 1e22
JOINT: Mapping[str, tuple[TensorRecords, TensorRecords]] = {
    # The losses are squares: 3.2e38 and five times 4e37, of which no two are too much, or a little one instead.
    "one too many for each of the others": (
        _losing(1.79e19, *[6.3e18] * 5, 1.0, 1.0, 1.0, 1.0),
        _losing(1.0, *[6.3e18] * 5, 1.0, 1.0, 1.0, 1.0),
    ),
    # Eight times 4.5e37 is too much, seven times is not.
    "one too many for all": (_losing(*[6.7e18] * 10), _losing(1.0, *[6.7e18] * 9)),
}


@pytest.mark.parametrize("neighbours", JOINT.values(), ids=JOINT)
def test_a_record_takes_nobody_with_it_that_raises_with_others_alone(neighbours: Sequence[Dataset]) -> None:
    """Each loss is finite and their mean is not: no record raises by itself."""
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, 0.5, 0.5, MAGNIFIED]]))
        model.bias.zero_()

    def loss(given: nn.Module, batch: Any) -> Tensor:
        return MEASURES["raises for all"].loss(lambda inputs: given(inputs)[:, 0], batch)

    assert _moved(model, loss, neighbours, draws=40) <= FAR


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_record_that_raises_does_not_change_how_others_are_rounded(seed: int) -> None:
    """Their gradients are nothing but rounding: computed in another way they would be others altogether."""
    inputs, labels = TARGET.repeat(OTHERS + 1, 1), torch.zeros(OTHERS + 1, dtype=torch.int64)
    odd = inputs.clone()
    odd[MIDDLE] = 1e6

    def loss(given: nn.Module, batch: Any) -> Tensor:
        if bool((batch[0] > 1e5).any()):
            raise OverflowError
        return functional.cross_entropy(given(batch[0]), batch[1], reduction="none")

    assert _moved(aimed(seed), loss, (TensorRecords(odd, labels), TensorRecords(inputs, labels))) <= FAR


@dataclass(frozen=True)
class Narrow:
    """Three linear maps without bias: what enters the middle one, and what comes back to it."""

    enters: float
    returns: float
    width: int
    height: int
    clip_norm: float

    def model(self) -> nn.Module:
        sizes = ((4, self.width), (self.width, self.height), (self.height, 1))
        model: Any = nn.Sequential(*(nn.Linear(*size, bias=False) for size in sizes))
        with torch.no_grad():
            model[0].weight.zero_()
            model[0].weight[:, 3] = self.enters
            model[1].weight.zero_()
            model[2].weight.fill_(self.returns)
        return model


NARROW: Mapping[str, Narrow] = {
    "a square that vanishes": Narrow(1e30, 1e-24, 1, 2, 1.0),
    "a square that vanishes by far": Narrow(1e38, 1e-23, 1, 2, 1.0),
    "squares that vanish in a small clip norm": Narrow(4e18, 1e-23, 4, 2, 1e-6),
    "many squares that vanish": Narrow(4e18, 1.5e-23, 4, 1000, 1e-3),
    "a coefficient below the smallest": Narrow(7e7, 2e37, 1, 1, 1.0),
    "a coefficient near the smallest": Narrow(2e6, 1e38, 1, 1, 1.0),
    "a factor near the smallest": Narrow(2.6e38, 1e-13, 1, 1, 1e-6),
}


def _summed(given: nn.Module, batch: Any) -> Tensor:
    total: Tensor = given(batch[0])[:, 0]
    return total


@pytest.mark.parametrize("narrow", NARROW.values(), ids=NARROW)
def test_no_arithmetic_at_its_limits_lets_a_record_exceed_the_clip_norm(narrow: Narrow) -> None:
    ordinary = torch.zeros(OTHERS + 1, 4)
    ordinary[:, 0] = 1.0
    everybody = ordinary.clone()
    everybody[:, 3] = 1.0
    # All differ, so what one of them does is an eighth of what they do; nobody moves the sum who is not there.
    moved = _moved(narrow.model(), _summed, (TensorRecords(everybody), TensorRecords(ordinary)), narrow.clip_norm)
    assert moved / BATCH <= 1.0 + 1e-3


# ---------------------------------------- clients
TWIN = 99
WORK = Order(steps=1, learning_rate=0.3)
COUNT = Order(steps=1, metrics=("correct",))


@dataclass(frozen=True)
class Visible:
    """A reply, but for its noise, its keys and its hashes."""

    messages: int
    error: bool
    kind: str
    code: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """All that leaves a client, and what it paid."""

    replies: tuple[Visible, ...]
    same_again: bool
    charges: tuple[str, ...]
    steps: int

    @property
    def ordinary(self) -> bool:
        """Everything was answered."""
        return self.same_again and not any(reply.error or reply.kind == "Declined" for reply in self.replies)


@dataclass(frozen=True)
class Client:
    """What a client's administrator wrote."""

    model: Callable[[], nn.Module]
    loss: Any
    dataset: Dataset


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A policy that leaves a server every freedom but the budget."""
    return stage(
        tmp_path_factory.mktemp("replies"),
        batch_size=str(BATCH),
        min_dataset_size=str(LEAST),
        min_noise_multiplier="9.0",
        max_steps_per_round="2",
        max_abs_weight="3.5e38",
        metrics='["correct"]',
    )


def _questions(made: Stage, weights: Mapping[str, Tensor], order: Order) -> list[Question]:
    """A greeting and an order to train from these weights, in a session of their own."""
    session = replace(made, coordinator=made.world.strategy()._terms.open(ArrayRecord(dict(weights))))
    work = ordering(session.from_model(session.coordinator.model), order.encode())
    return [session.coordinator.hello, session.signed(work)]


def _seen(made: Stage, given: Client, questions: Sequence[Question]) -> Seen:
    """What the victim would show of itself, if it were this client."""
    folder = made.world.consortium.client(VICTIM).folder
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin)
    app = private_client_app(
        policy=str(twin / "policy.toml"), model=given.model, dataset=lambda _: given.dataset, loss=given.loss
    )
    made.world.grid.nodes[TWIN] = Node(app, {"partition-id": 0})  # type: ignore[index]
    try:
        asked = [_asked(made, question) for question in questions]
        with ClientHome(folder=twin).ledger() as ledger:
            books = ledger.books
        bodies = [body for _, body in asked]
        return Seen(
            replies=tuple(visible for visible, _ in asked),
            same_again=bodies[1] == bodies[2],
            charges=tuple(state.value for state in books.charges.states.values()),
            steps=books.charges.steps,
        )
    finally:
        shutil.rmtree(twin)


def _asked(made: Stage, question: Question) -> tuple[Visible, tuple[bytes, ...]]:
    message = Message(to_records(to_frame(question)), TWIN, "train")
    try:
        replies = list(made.world.grid.send_and_receive([message]))
    except BaseException as problem:  # noqa: BLE001 — an app that ends is seen to end
        return Visible(0, True, type(problem).__name__, "", ()), ()
    if len(replies) != 1 or replies[0].has_error():
        return Visible(len(replies), True, "", "", ()), ()
    given = from_message(replies[0])
    answer, bodies = read_message(given), tuple(map(bytes, given.bodies))
    code = answer.code if isinstance(answer, Decline) else ""
    sizes = (len(given.prefix), *map(len, bodies))
    return Visible(1, False, type(answer).__name__, code, sizes), bodies


def _both(made: Stage, clients: Sequence[Client], weights: Mapping[str, Tensor], order: Order = WORK) -> list[Seen]:
    """What both show when they are asked, and asked again."""
    hello, work = _questions(made, weights, order)
    return [_seen(made, each, [hello, work, work]) for each in clients]


def _told(made: Stage, clients: Sequence[Client], weights: Mapping[str, Tensor], order: Order = WORK) -> Seen:
    """What both showed, which must be the same."""
    first, second = _both(made, clients, weights, order)
    assert first == second
    return first


def _client(layer: str, loss: str, dataset: Dataset) -> Client:
    measure = MEASURES[loss]
    return Client(lambda: _begun_alike(layer, measure), measure if measure.own else measure.loss, dataset)


def _begun_alike(layer: str, measure: Measure) -> Aimable:
    """A client's own first weights are chance, and its rehearsal may fail on some: neighbours have the same ones."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return Aimable(layer, measure)


def _attacked(layer: str, loss: str, aim: str, change: str) -> tuple[list[Client], dict[str, Tensor]]:
    people = People.of(layer, MEASURES[loss], seed=3)
    weights = weights_of(Aimable(layer, MEASURES[loss]), aim, people.target[0], 0)
    return [_client(layer, loss, each) for each in people.neighbours(change, MIDDLE)], weights


@pytest.mark.one_in(LOSSES, begin=4)
@pytest.mark.parametrize("loss", MEASURES)
def test_no_reply_tells_of_a_record_whatever_the_loss(scene: Stage, loss: str) -> None:
    layer, aim = _some_layers(loss)[1], _turn(loss, MEASURES, ("overflowing at the gate", "large", "undefined"))
    assert _told(scene, *_attacked(layer, loss, aim, _turn(loss, MEASURES, CHANGES))).ordinary


@pytest.mark.parametrize("loss", ["a normal distribution", "raises on a value", "raises backwards", "cross_entropy"])
def test_a_client_goes_on_as_before_after_an_attack(scene: Stage, loss: str) -> None:
    clients, weights = _attacked("raw", loss, "undefined", "replaced")
    hello, work = _questions(scene, weights, WORK)
    later = _questions(scene, {name: torch.full_like(value, 0.1) for name, value in weights.items()}, WORK)
    first, second = (_seen(scene, each, [hello, work, work, *later]) for each in clients)
    assert first == second
    assert first.ordinary


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loss", MEASURES)
@pytest.mark.parametrize("layer", LAYERS)
def test_no_reply_tells_of_a_record_in_hundreds_of_pairs(scene: Stage, layer: str, loss: str) -> None:
    for place, aim in enumerate(SHARPEST):
        assert _told(scene, *_attacked(layer, loss, aim, CHANGES[place % 2])).ordinary, aim


@pytest.mark.parametrize("aim", MODEST)
def test_no_reply_tells_of_a_record_within_the_weights_that_policies_allow(scene: Stage, aim: str) -> None:
    clients, weights = _attacked("linear", "a normal distribution", aim, "replaced")
    assert max(float(value.abs().max()) for value in weights.values()) <= 1e4
    assert _told(scene, clients, weights).ordinary


@pytest.mark.one_in(RECORDS, begin=3)
@pytest.mark.parametrize("odd", ODD)
def test_no_reply_tells_of_a_record_that_is_not_like_the_others(scene: Stage, odd: str) -> None:
    clients, weights = _odd_clients(odd, _turn(odd, ODD, CHANGES), _turn(odd, ODD, KINDS.values()))
    assert _told(scene, clients, weights).ordinary


def _odd_clients(odd: str, change: str, kind: type[Listed]) -> tuple[list[Client], dict[str, Tensor]]:
    people = People.of("linear", MEASURES["cross_entropy"], seed=3)
    weights = weights_of(Aimable("linear", MEASURES["cross_entropy"]), "zeros", people.target[0], 0)
    both = odd_neighbours(people, odd, change, MIDDLE, kind)
    return [_client("linear", "cross_entropy", each) for each in both], weights


CHECKED = [odd for odd in ODD if "label" in odd or "part" in odd or "speechless" in odd]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("odd", CHECKED)
def test_no_reply_tells_of_a_record_that_the_loss_checks(scene: Stage, odd: str) -> None:
    clients, weights = _odd_clients(odd, "replaced", Listed)
    _told(scene, [replace(each, loss=CrossEntropy(classes=3)) for each in clients], weights)


RATES = [(1e9, "near overflow"), (1e30, "large"), (1e38, "zeros"), (3e38, "near overflow"), (1e300, "large")]


@pytest.mark.parametrize(("rate", "aim"), RATES)
def test_no_reply_tells_of_a_record_whatever_the_rate(scene: Stage, rate: float, aim: str) -> None:
    """A rate is public, and may be refused; but not once it was paid for."""
    seen = _told(scene, *_attacked("linear", "mse_loss", aim, "replaced"), Order(steps=2, learning_rate=rate))
    assert seen.ordinary or seen.steps == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layer", LAYERS)
def test_no_count_tells_of_a_record_whatever_the_layer(scene: Stage, layer: str) -> None:
    aim = _turn(layer, LAYERS, ("overflowing at the gate", "undefined", "near overflow"))
    assert _told(scene, *_attacked(layer, "cross_entropy", aim, "replaced"), COUNT).ordinary


@pytest.mark.one_in(RECORDS, begin=4)
@pytest.mark.parametrize("odd", ODD)
def test_no_count_tells_of_a_record_that_is_not_like_the_others(scene: Stage, odd: str) -> None:
    clients, weights = _odd_clients(odd, _turn(odd, ODD, CHANGES), Listed)
    assert _told(scene, clients, weights, COUNT).ordinary


class _Fussy(Aimable):
    """A model that raises by itself."""

    def forward(self, values: Tensor) -> Tensor:
        outputs = super().forward(values)
        if bool((outputs.detach().abs() > 50.0).any() | torch.isnan(outputs.detach()).any()):
            raise RuntimeError("a value that nobody expects")
        return outputs


@pytest.mark.parametrize("order", [WORK, COUNT], ids=["trained", "counted"])
@pytest.mark.parametrize("aim", ["large", "undefined"])
def test_no_reply_tells_of_a_record_that_the_model_raises_on(scene: Stage, aim: str, order: Order) -> None:
    clients, weights = _attacked("linear", "cross_entropy", aim, "replaced")
    fussy = [replace(each, model=lambda: _Fussy("linear", MEASURES["cross_entropy"])) for each in clients]
    assert _told(scene, fussy, weights, order).ordinary


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "a normal distribution", "raises on a value", "mse_loss"])
def test_control_a_client_that_lets_errors_through_is_told_apart(
    scene: Stage, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same messages, the same books: `failed` or `invalid` with the record, and `Contributed` without it."""
    monkeypatch.setattr(apps, "Participant", partial(Participant, update=lets_through))
    with_target, without = _both(scene, *_attacked("linear", loss, "overflowing at the gate", "replaced"))
    assert with_target.replies[1].code in ("failed", "invalid")
    assert without.replies[1].kind == Contributed.__name__
    assert with_target.charges != without.charges


# ---------------------------------------- what it costs
@pytest.mark.slow
def test_what_a_record_costs_that_is_left_out_is_measured() -> None:
    found = slowdowns()
    assert set(found) == set(TIMED)
    assert all(ratio > 0.0 for ratios in found.values() for ratio in ratios.values())
