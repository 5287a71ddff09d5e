"""Everything that a figure rests on is checked where it is born, and what was checked is what is kept.

The list of constructors, functions and methods is not written here: it is read from what the two packages export, so a
new one without a specimen fails. Each parameter of each specimen is given everything it must not be taken for, and its
own value in every type that holds it exactly; the oracle is the same call with plain numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

import lrdp.accounting
import lrdp.ledger
from lrdp.accounting import (
    MECHANISMS,
    Adjacency,
    BatchFrontier,
    Budget,
    Calibrated,
    Candidate,
    Filter,
    FilterAnswer,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Fleet,
    FullBatchGaussian,
    Gaussian,
    GroupAccountant,
    Mechanism,
    Option,
    Plan,
    PldAccountant,
    PoissonGaussian,
    PrivacySpent,
    RenyiAccountant,
    RenyiOrders,
    ReservedSlots,
    SampledGaussian,
    SizedGaussian,
    SteadyAccountant,
    TaylorAccountant,
    Training,
    TrainingAim,
    TruncatedPoissonGaussian,
    costliest_of,
    least_noise,
    most_rounds,
    options,
    quietest_batch,
)
from lrdp.accounting.conversion import checked_orders
from lrdp.errors import InvalidInput
from lrdp.ledger import Policy, ReceivedModel, Request
from lrdp.ledger.policy import (
    BudgetCounting,
    BudgetRule,
    Clipped,
    Holder,
    MechanismRule,
    ModelRule,
    PeersRule,
    Retries,
    Scheme,
)

STEP = FixedSizeGaussian(dataset_size=120, batch_size=32, noise_multiplier=4.0)
BUDGET, SPENT = Budget(epsilon=8.0, delta=0.125), PrivacySpent(epsilon=0.5, delta=0.125)
ADJACENCY, WEIGHTS = Adjacency.ADD_REMOVE, {8.0: 0.5, 16.0: 0.25}
HISTORY: dict[Mechanism, int] = {STEP: 100}
SAMPLED = {"dataset_size": 120, "batch_size": 32, "noise_multiplier": 4.0}
SIZED = {"dataset_size": 120, "noise_multiplier": 4.0}
ASKED = {"history": HISTORY, "delta": 0.125}
TRAINING = Training(dataset_size=120, batch_size=32, rounds=2, local_steps=3, budget=BUDGET)
EXACT = RenyiAccountant(adjacency=ADJACENCY)
ORDERS, SLOTS = RenyiOrders(weights=WEIGHTS), ReservedSlots(slots=HISTORY)
OPTION = Option(
    accountant=EXACT, mechanism=STEP, spent=SPENT, one_round=SPENT, rounds_affordable=3, rounds_at_equal_noise=3
)
AIM = TrainingAim(dataset_size=120, passes=8.0, rows=32, budget=BUDGET)
CANDIDATE = Candidate(mechanism=STEP, accountant=EXACT, spent=SPENT, rounds=2, local_steps=3)
FLEET = Fleet.from_histories([HISTORY], ADJACENCY)
MODEL = ReceivedModel(digest="0" * 64, size=120, largest_weight=0.5)
STATE = {"budget": BUDGET, "adjacency": ADJACENCY, "history": HISTORY}
RULE: dict[str, dict[str, Any]] = {"guaranteed": STATE, "admits": STATE, "has_place": {"mechanism": STEP}}
RULE |= {"guaranteed_to_group": {**STATE, "rows": 3}, "trade_off": STATE}
ACCOUNTANT = {"epsilon": ASKED, "delta": {"history": HISTORY, "epsilon": 0.5}}
RENYI = {**ACCOUNTANT, "divergence": {"history": HISTORY, "orders": np.array([2.0, 8.0])}}
SAME: dict[str, dict[str, Any]] = {"with_noise": {"noise_multiplier": 4.0}, "looser_in": {"asked": STEP}}
MECHANISM: dict[str, dict[str, Any]] = {"dominating_pair": {"adjacency": ADJACENCY}, **SAME}
MECHANISM |= {"group_pair": {"adjacency": ADJACENCY, "rows": 3}}
POLICY = {
    "identity": Holder(client="a", unit="patient", max_rows_per_unit=2),
    "budget": BudgetRule(total=BUDGET, adjacency=ADJACENCY, per_run=BUDGET),
    "mechanism": MechanismRule(costliest=STEP, clip_norm=0.5, min_clip_norm=0.25, max_steps_per_round=100),
    "model": ModelRule(max_bytes=100, max_abs_weight=0.5),
    "peers": PeersRule(),
}
NO_FIGURE = {"metrics": (), "text": "", "source": "", "lines": {}}
REQUEST = Request(
    run="run", round=3, model=MODEL, config_digest="0" * 64, mechanism=STEP, steps=100, clip_norm=0.5
)  # fmt: skip


def specimen(kind: Callable[..., Any], arguments: dict[str, Any], **methods: dict[str, Any]) -> dict[str, Any]:
    """A call that works, and calls that work of the methods of what it makes."""
    made = {kind.__name__: (kind, arguments)}
    value = kind(**arguments) if inspect.isclass(kind) else None
    return made | {f"{kind.__name__}.{name}": (getattr(value, name), each) for name, each in methods.items()}


SPECIMENS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    **specimen(PrivacySpent, {"epsilon": 0.5, "delta": 0.125, "order": 8.0, "at_edge": False}),
    **specimen(Budget, {"epsilon": 0.5, "delta": 0.125}),
    **specimen(FilterAnswer, {"admitted": True, "guaranteed": SPENT, "spent": SPENT}),
    **specimen(Calibrated, {"mechanism": STEP, "spent": SPENT}),
    **specimen(Gaussian, {"noise_multiplier": 4.0}, **MECHANISM),
    **specimen(SizedGaussian, SIZED, **SAME),
    **specimen(FullBatchGaussian, SIZED, **MECHANISM),
    **specimen(SampledGaussian, SAMPLED, **SAME),
    **specimen(FixedSizeGaussian, SAMPLED, **MECHANISM),
    **specimen(FixedSizeWithReplacementGaussian, SAMPLED, **MECHANISM),
    **specimen(PoissonGaussian, SAMPLED, **MECHANISM),
    **specimen(TruncatedPoissonGaussian, {**SAMPLED, "cap": 100}, **MECHANISM),
    **specimen(RenyiAccountant, {"adjacency": ADJACENCY}, **RENYI),
    **specimen(TaylorAccountant, {"adjacency": ADJACENCY, "terms": 4}, **RENYI),
    **specimen(PldAccountant, {"adjacency": ADJACENCY, "rows": 3}, **ACCOUNTANT),
    **specimen(GroupAccountant, {"adjacency": ADJACENCY, "rows": 3}, **ACCOUNTANT, by_formula=ASKED),
    **specimen(SteadyAccountant, {"adjacency": ADJACENCY}, **ACCOUNTANT),
    **specimen(
        Filter,
        {"rule": ORDERS, **STATE},
        charge={"mechanism": STEP, "steps": 100},
        answer={"admitted": True},
        committed={"budget": BUDGET, "adjacency": ADJACENCY, "plan": HISTORY},
        reserved={"budget": BUDGET, "adjacency": ADJACENCY, "slots": HISTORY},
    ),
    **specimen(
        RenyiOrders,
        {"weights": WEIGHTS},
        **RULE,
        committed={"budget": BUDGET, "adjacency": ADJACENCY, "plan": HISTORY},
        hedged={"budget": BUDGET, "adjacency": ADJACENCY, "costliest": STEP},
    ),
    **specimen(
        ReservedSlots,
        {"slots": HISTORY},
        **RULE,
        cost={"budget": BUDGET, "adjacency": ADJACENCY},
        left={**STATE, "mechanism": STEP},
    ),
    **specimen(costliest_of, {"steps": (STEP, STEP.with_noise(3.0))}),
    **specimen(
        Fleet,
        {name: getattr(FLEET, name) for name in ("adjacency", "mechanisms", "starts", "numbers", "steps")},
        epsilons={"delta": 0.125},
        from_histories={"histories": [HISTORY], "adjacency": ADJACENCY},
    ),
    **specimen(Training, {"dataset_size": 120, "batch_size": 32, "rounds": 2, "local_steps": 3, "budget": BUDGET}),
    **specimen(Option, {field.name: getattr(OPTION, field.name) for field in fields(Option)}),
    **specimen(Plan, {"training": TRAINING, "options": (OPTION,)}, at_equal_noise={"option": OPTION}),
    **specimen(options, {"training": TRAINING}),
    **specimen(
        TrainingAim,
        {"dataset_size": 120, "passes": 8.0, "rows": 32, "budget": BUDGET, "least_steps": 16, "local_steps": 2},
        schedule={"batch_size": 32},
    ),
    **specimen(Candidate, {field.name: getattr(CANDIDATE, field.name) for field in fields(Candidate)}),
    **specimen(
        BatchFrontier, {"aim": AIM, "searched": (CANDIDATE,), "finalists": (CANDIDATE,), "measures": (CANDIDATE,)}
    ),
    **specimen(least_noise, {"mechanism": STEP, "steps": 100, "budget": BUDGET, "accountant": EXACT}),
    **specimen(most_rounds, {"mechanism": STEP, "steps_per_round": 3, "budget": BUDGET, "accountant": EXACT}),
    **specimen(
        quietest_batch,
        {
            "with_batch": lambda size: FixedSizeGaussian(dataset_size=120, batch_size=size, noise_multiplier=4.0),
            "largest": 16,
            "steps": 100,
            "budget": BUDGET,
            "accountant": EXACT,
        },
    ),
    **specimen(ReceivedModel, {"digest": "0" * 64, "size": 120, "largest_weight": 0.5}),
    **specimen(Request, {field.name: getattr(REQUEST, field.name) for field in fields(Request)}),
    **specimen(Policy, {**POLICY, **NO_FIGURE, "micro_batch": 32}, where={"key": "budget.epsilon"}),
    **specimen(Holder, {"client": "a", "unit": "patient", "max_rows_per_unit": 2, "clipped": Clipped.UNITS}),
    **specimen(
        BudgetRule, {"total": BUDGET, "adjacency": ADJACENCY, "per_run": BUDGET, "counting": BudgetCounting.RENYI}
    ),
    **specimen(MechanismRule, {"costliest": STEP, "clip_norm": 0.5, "min_clip_norm": 0.25, "max_steps_per_round": 100}),
    **specimen(ModelRule, {"max_bytes": 100, "max_abs_weight": 0.5}),
    **specimen(
        PeersRule,
        {
            "registry_sha256": "0" * 64,
            "server_keys": ("0" * 64,),
            "min_roster": 3,
            "retries": Retries.SAME_ROSTER,
            "scheme": Scheme.SKETCH,
        },
    ),
}

# Abstract, or made of bytes, files and keys that have checks and tests of their own.
WITHOUT_FIGURES = {
    *("Accountant", "Adjacency", "FilterRule", "History", "Mechanism", "Books", "Head", "Ledger"),
    "ChainPoint",
    *("Receipt", "Refusal", "Reply", "SigningKey", "State", "adopt_head", "parse_policy", "read_policy"),
    *("rotate_key", "void", "raise_budget", "end_participation"),
}
# For other rooms: constants, files and formats, and what is made of values that were checked when they were born.
FOR_OTHER_ROOMS = {
    *("FALSE_POSITIVES", "Risk", "TradeOff", "for_group", "guess_rate", "trade_off"),
    *("CLIP_HEADROOM", "FLEET_CHUNK", "MECHANISMS", "SPREAD", "checked_history", "readings", "recipes"),
    *("LEAST_STEPS", "PlanTrial", "baselines", "calibrated", "close", "finals", "kept", "trials"),
    *("FleetBooks", "FleetView", "Home", "Report", "Retries", "Scheme", "Store", "Summary", "VerifiedBooks"),
    *("LONGEST_HEAD", "LONGEST_LINE", "MOST_TOML_CHARACTERS", "REPORT_LABEL", "check_heads", "check_key_known"),
    "encode_mechanism",
    *("fleet_view", "open_budget", "peers_lines", "read_report", "read_toml", "replace_key", "report_of", "summarize"),
    *("tighter", "verify_export", "write_export", "write_policy"),
    *("PlanRecipe", "PublicSizes", "BudgetCounting", "Clipped", "PolicyDraft", "draft", "promised", "policy_note"),
    *("PolicyRecipe", "PolicyRecipe.count", "PolicyRecipe.index", "FIXED_SIZE", "RECOMMENDED", "rounds_left"),
    *("require_task", "require_unopened", "write_draft"),
}
# Internal to the fleet's view, made of arrays that the fleet itself made.
WITHOUT_SPECIMEN = {
    "Fleet.curves",
    "Fleet.divergences",
    "PldAccountant.directions",  # made of arrays
    *(f"{name}.{made}" for name in ("SampledGaussian", "SizedGaussian") for made in ("dominating_pair", "group_pair")),
}
WITHOUT_SPECIMEN |= {"RenyiOrders.accountant", "ReservedSlots.accountant"} | {  # a class, and
    f"{name}.{made}"
    for name in ["SizedGaussian", "SampledGaussian", *(kind.__name__ for kind in MECHANISMS.values())]
    for made in ("varied", "drawing", "batch_sizes")  # new values, checked at their birth
}
FREE = {(name, text) for name in ("Policy", "Policy.where") for text in (*NO_FIGURE, "task", "key")} | {
    ("costliest_of", "steps"),  # any number of them, each checked
    ("Fleet.from_histories", "histories"),
    ("Plan.at_equal_noise", "option"),
}


def exported() -> Iterator[str]:
    """Every public constructor, function and method with parameters that a figure may rest on."""
    for package in (lrdp.accounting, lrdp.ledger):
        for name in set(package.__all__) - WITHOUT_FIGURES - FOR_OTHER_ROOMS:
            value = getattr(package, name)
            yield name
            members = inspect.getmembers(value, callable) if inspect.isclass(value) else []
            for method, each in members:
                parameters = set(inspect.signature(each).parameters) - {"self"} if method[0] != "_" else set()
                if parameters and f"{name}.{method}" not in WITHOUT_SPECIMEN:
                    yield f"{name}.{method}"


def test_nothing_that_is_exported_was_forgotten() -> None:
    rules = {"BudgetRule", "MechanismRule", "ModelRule"}
    assert set(exported()) | rules == set(SPECIMENS)
    for name, (kind, arguments) in SPECIMENS.items():
        parameters = set(inspect.signature(kind).parameters)
        assert parameters - {"self"} - set(arguments) <= {"task"}, name


# --- what must not be taken for it ----------------------------------------------------------------------------------


class Text(str):
    """A text that says of itself that it is something else."""

    __slots__ = ()
    value = "replace-one"


class Other(Enum):
    """Another enumeration with the same members."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


class WideInt(int):
    """An int that may answer differently each time."""


class WideFloat(float):
    """A float that may answer differently each time."""


def look_alike(value: object) -> object:
    """Has every attribute of ``value``, and ``isinstance`` takes it for one."""

    class Double:
        __class__ = property(lambda self: type(value))

        def __getattr__(self, name: str) -> object:
            return getattr(value, name)

        def __index__(self) -> int:
            return 3

        def __float__(self) -> float:
            return 0.5

    return Double()


def disguises(valid: Any) -> list[object]:
    """A value of a type that was derived from that of ``valid``, to answer differently."""
    if type(valid) not in (Budget, PrivacySpent, Training, Option, ReceivedModel, BudgetRule, MechanismRule):
        return []
    kind = type(type(valid).__name__, (type(valid),), {})
    return [kind(**{field.name: getattr(valid, field.name) for field in fields(valid)})]


def wrong_for(valid: object) -> list[object]:
    """Whatever is not of the type of ``valid``, and looks like it."""
    wrong: list[object] = [
        *disguises(valid),
        None,
        b"x",
        object(),
        Other.REPLACE_ONE,
        look_alike(valid),
        1j,
        type,
        10**5000,
    ]
    wrong += [] if type(valid) is str else ["replace-one", "bogus", "", Text("add-remove")]
    wrong += [] if type(valid) is bool else [True, np.True_]
    if type(valid) in (int, float):
        wrong += [str(valid), Decimal(1), Fraction(1, 2), np.array(valid), [valid], float("nan"), -1, np.float64("nan")]
        wrong += [WideInt(3), WideFloat(0.5), np.timedelta64(3), np.datetime64(3, "s")]
    else:
        wrong += [3, 0.5, np.float64(0.5), [valid], {"a": 1}, (None,)]
    if type(valid) is int:
        wrong += [3.0, np.float32(3.0)]
    if isinstance(valid, Mapping):
        key, item = next(iter(valid.items()))
        wrong += [{key: each} for each in (None, "3", True, Decimal(1), look_alike(item))]
        wrong += [{each: item} for each in (None, "fixed-size", look_alike(key))]
    return wrong


def parameters() -> list[tuple[str, str]]:
    return [
        (name, each) for name, (_, arguments) in SPECIMENS.items() for each in arguments if (name, each) not in FREE
    ]


def is_allowed(name: str, parameter: str, valid: object, value: Any) -> bool:
    """The few values of another type that are right: no order, nothing charged so far, the NaN of a bound."""
    if value is None:
        return (name, parameter) in {
            ("PrivacySpent", "order"),
            ("Policy", "micro_batch"),
            ("TrainingAim", "local_steps"),
        }
    if type(value) in (float, np.float64) and np.isnan(value):
        return parameter == "largest_weight" or (name, parameter) == ("PrivacySpent", "epsilon")
    return callable(valid) and callable(value)


@pytest.mark.parametrize(("name", "parameter"), parameters())
def test_what_only_looks_like_it_is_refused_at_birth(name: str, parameter: str) -> None:
    kind, arguments = SPECIMENS[name]
    valid = arguments[parameter]
    for value in wrong_for(valid):
        if is_allowed(name, parameter, valid, value):
            continue
        with pytest.raises(InvalidInput) as caught:
            kind(**{**arguments, parameter: value})
        assert str(caught.value)


@pytest.mark.parametrize("text", ["replace-one", "bogus", None, Text("replace-one"), Other.REPLACE_ONE])
def test_the_refusal_says_what_to_pass(text: object) -> None:
    with pytest.raises(InvalidInput, match=r"adjacency must be .*Adjacency\.ADD_REMOVE, Adjacency\.REPLACE_ONE"):
        RenyiAccountant(adjacency=text)  # type: ignore[arg-type]


def test_a_comparison_by_identity_takes_a_text_for_the_other_adjacency() -> None:
    """The control: what a check by ``isinstance`` or by equality would let through."""
    double = look_alike(Adjacency.REPLACE_ONE)
    assert isinstance(double, Adjacency)
    assert Text("replace-one") == Adjacency.REPLACE_ONE.value
    assert double is not Adjacency.REPLACE_ONE, "so it would be accounted as add-remove"


def test_a_mechanism_whose_cost_is_proved_cannot_be_derived_from() -> None:
    with pytest.raises(InvalidInput, match="must not derive from FixedSizeGaussian"):

        class Cheaper(FixedSizeGaussian):
            probability = 1e-9

    @dataclass(frozen=True, kw_only=True)
    class Own(Mechanism):
        pass

    with pytest.raises(InvalidInput, match="Own has no cost"):
        EXACT.epsilon({Own(noise_multiplier=1.0): 1}, 1e-5)


# --- numbers are kept as they were checked --------------------------------------------------------------------------

INTEGERS = [np.dtype(code).type for code in np.typecodes["AllInteger"]]
FLOATS = [np.dtype(code).type for code in np.typecodes["Float"]]


def narrow(value: Any, kind: type[Any]) -> Any:
    """Every number in ``value`` that ``kind`` holds exactly, as a ``kind``."""
    if isinstance(value, Mapping):
        return {narrow(key, kind): narrow(item, kind) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(narrow(item, kind) for item in value)
    if type(value) is float or (type(value) is int and kind in INTEGERS):
        return kind(value) if kind in FLOATS or type(value) is int else value
    return value


def numbers_in(value: object) -> Iterator[object]:
    """Every number that a value holds, however deep."""
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from numbers_in(each)
    elif isinstance(value, int | float | np.number):
        yield value


@pytest.mark.parametrize("name", [name for name in SPECIMENS if name not in ("options", "Fleet")])
def test_a_fixed_width_number_is_the_plain_number_it_was_checked_as(name: str) -> None:
    kind, arguments = SPECIMENS[name]
    plain = kind(**arguments)
    for width in (*INTEGERS, *FLOATS):
        made = kind(**{each: narrow(value, width) for each, value in arguments.items()})
        assert repr(made) == repr(plain), width
        assert {type(number) for number in numbers_in(made)} <= {int, float, bool, np.float64}
        if inspect.isclass(kind):
            assert {type(number) for number in numbers_in(made)} <= {int, float, bool}


def test_as_many_steps_as_a_narrow_number_holds_are_not_multiplied_in_it() -> None:
    step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    accountants = [EXACT, PldAccountant(adjacency=ADJACENCY), TaylorAccountant(adjacency=ADJACENCY)]
    for accountant in accountants:
        wide = accountant.epsilon({step: 30_000}, 1e-5)
        assert accountant.epsilon({step: np.int16(30_000)}, np.float64(1e-5)) == wide  # type: ignore[dict-item]
    assert EXACT.epsilon({step: 30_000}, 1e-5).epsilon > 11
    plan = Training(
        dataset_size=5000,
        batch_size=np.uint8(128),  # type: ignore[arg-type]
        rounds=np.int16(300),  # type: ignore[arg-type]
        local_steps=np.int16(200),  # type: ignore[arg-type]
        budget=BUDGET,
    )
    assert plan.steps == 60_000


def test_a_filter_charged_in_narrow_numbers_books_what_it_admits() -> None:
    budget, step = (
        Budget(epsilon=3.0, delta=1e-5),
        FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=8.0),
    )
    narrow_filter = wide_filter = Filter(rule=RenyiOrders(weights={12.0: 1.0}), budget=budget, adjacency=ADJACENCY)
    admitted = 0
    for _ in range(60):
        narrow_filter, answer = narrow_filter.charge(step, np.uint8(200))  # type: ignore[arg-type]
        wide_filter, expected = wide_filter.charge(step, 200)
        admitted += 200 * answer.admitted
        assert answer == expected
    assert narrow_filter.history == {step: admitted}
    assert not answer.admitted, "the budget ends, however the steps are counted"
    slots = Filter.reserved(Budget(epsilon=50.0, delta=1e-5), ADJACENCY, {step: np.int16(300)})  # type: ignore[dict-item]
    slots, first = slots.charge(step, np.uint8(200))  # type: ignore[arg-type]
    slots, second = slots.charge(step, np.uint8(200))  # type: ignore[arg-type]
    assert (first.admitted, second.admitted, slots.history) == (True, False, {step: 200})


def test_columns_of_unsigned_numbers_are_no_way_around_the_checks() -> None:
    starts: Any = np.array([0, 2, 1], dtype=np.uint64)
    with pytest.raises(InvalidInput, match="must not decrease"):
        Fleet(adjacency=ADJACENCY, mechanisms=(STEP,), starts=starts, numbers=np.array([0]), steps=np.array([5]))
    huge: Any = np.array([2**64 - 1], dtype=np.uint64)
    with pytest.raises(InvalidInput, match="at least 1"):
        Fleet(adjacency=ADJACENCY, mechanisms=(STEP,), starts=np.array([0, 1]), numbers=np.array([0]), steps=huge)


@pytest.mark.parametrize("orders", [None, "8", [[2.0]], [1.0], [float("nan")], [True], [2.0, 1e9], np.array(["a"])])
def test_orders_that_are_none_are_refused(orders: object) -> None:
    with pytest.raises(InvalidInput):
        checked_orders(orders)  # type: ignore[arg-type]


def test_a_digest_is_a_text() -> None:
    with pytest.raises(InvalidInput):
        ReceivedModel(digest=sha256(b"").digest(), size=1, largest_weight=0.0)  # type: ignore[arg-type]
