"""Who puts a verified strategy where one of Flower's stood is told of every option that would have no effect."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord
from flwr.serverapp import strategy as flower

from federation.worlds import initial, world
from lrdp.errors import InvalidInput, Unsupported
from lrdp.federation import BufferedAverage, VerifiedAverage
from lrdp.federation.server.saved_state import STATE_FILE

STRATEGIES = [name for name in flower.__all__ if name.startswith(("Fed", "QFed", "Krum", "Multi", "Bulyan"))]
OPTIONS = sorted(
    {option for name in STRATEGIES for option in inspect.signature(getattr(flower, name)).parameters} - {"self"}
)


@pytest.fixture(scope="module")
def terms(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return world(tmp_path_factory.mktemp("options"), 3).strategy()._terms


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_of_flowers_strategies_is_silently_dropped(terms: Any, option: str) -> None:
    for make in (
        lambda **given: VerifiedAverage(terms, **given),
        lambda **given: BufferedAverage(terms, buffer=3, **given),
    ):
        with pytest.raises(Unsupported, match=f"has no {option}: .+ Nothing was started"):
            make(**{option: 0.5})


@pytest.mark.parametrize("option", ["server_momentum", "eta"])
def test_a_servers_optimiser_is_refused_with_the_reason(terms: Any, option: str) -> None:
    with pytest.raises(Unsupported, match="could not be told from a forgery; use momentum or Adam at the clients"):
        VerifiedAverage(terms, **{option: 0.9})  # type: ignore[arg-type]


def test_a_misspelt_option_is_an_error(terms: Any) -> None:
    with pytest.raises(TypeError, match="no option 'obzerve'"):
        VerifiedAverage(terms, obzerve=print)


@pytest.mark.parametrize(
    ("name", "given", "maker"),
    [
        ("folder", "pilot/server", "Path"),
        ("registry", Path("registry.json"), "read_registry"),
        ("identity", Path("identity.pem"), "load_identity"),
    ],
)
def test_what_is_not_of_its_type_is_told_with_what_makes_one(terms: Any, name: str, given: Any, maker: str) -> None:
    with pytest.raises(InvalidInput, match=rf"{name} must be a \w+, got a \w+: \S*{maker}\(\S+ makes one; nothing was"):
        replace(terms, **{name: given})


@pytest.mark.parametrize(
    "wrong", [{"num_rounds": "3"}, {"num_rounds": -1}, {"train_config": ConfigRecord({"epochs": 3})}], ids=str
)
def test_a_run_that_is_refused_opens_no_session(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """Its state would hold the folder for that model: a first model that was wrong as well could not be put right."""
    place = world(tmp_path, 3)
    with pytest.raises(InvalidInput):
        place.strategy().start(place.grid, initial(), timeout=5, **wrong)
    assert not (place.consortium.server_folder / STATE_FILE).exists()


def test_the_rounds_of_a_buffered_run_are_counted_as_well(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    with pytest.raises(InvalidInput, match="num_rounds must be at least 0, got -1"):
        BufferedAverage(place.strategy()._terms, buffer=3).start(place.grid, initial(), num_rounds=-1)
    assert not (place.consortium.server_folder / STATE_FILE).exists()
