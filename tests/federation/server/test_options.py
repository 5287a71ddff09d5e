"""Who puts a verified strategy where one of Flower's stood is told of every option that would have no effect."""

import inspect
from typing import Any

import pytest
from flwr.serverapp import strategy as flower

from federation.worlds import world
from lrdp.errors import Unsupported
from lrdp.federation import BufferedAverage, VerifiedAverage

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
