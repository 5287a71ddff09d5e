"""The page about the ledger tells the truth: its client runs, in the order that it names, and crashes where it may."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lrdp.errors import LedgerRolledBack
from lrdp.ledger import Refusal, State
from lrdp.ledger.starting import Home, open_budget, write_policy

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's client defines, after it ran."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.split("## For a federation client")[1], re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/ledger.md", "exec"), names)
    return names


def test_the_pages_client_does_what_its_comment_says(page: dict[str, Any]) -> None:
    post = page["post"]
    assert len(post) == 4
    assert post[1] == post[2], "asked twice, answered with the identical bytes and head"
    assert len({body for body, _ in post}) == 3
    assert "# 4 messages, 9 steps charged" in PAGE


def opened(page: dict[str, Any], folder: Path) -> Home:
    home = Home(folder=folder)
    write_policy(home, page["Holder"](client="hospital-b", unit="patient", max_rows_per_unit=1), page["PLAN"])
    open_budget(home, 5).close()
    return home


def test_the_pages_client_survives_a_transport_that_dies(page: dict[str, Any], tmp_path: Path) -> None:
    home = opened(page, tmp_path)
    post: list[Any] = []

    def dies(_body: bytes, _head: str) -> None:
        raise ConnectionError

    with home.open() as ledger:
        request = page["question"](ledger.policy, 7, b"model")
        with pytest.raises(ConnectionError):
            page["answer"](ledger, request, [], page["task"], dies)
        (waiting,) = ledger.unsent()
    with home.open() as ledger:
        page["send_what_was_ready"](ledger, partial(page["send"], post))
        assert post == [(waiting.body, waiting.head)]
        assert list(ledger.books.charges.states.values()) == [State.SENT]
        assert ledger.unsent() == []


def test_the_pages_client_stops_at_a_head_it_does_not_contain(page: dict[str, Any], tmp_path: Path) -> None:
    home = opened(page, tmp_path)
    post: list[Any] = []
    whole = home.ledger.read_bytes()
    with home.open() as ledger:
        page["answer"](
            ledger, page["question"](ledger.policy, 7, b"model"), [], page["task"], partial(page["send"], post)
        )
    home.ledger.write_bytes(whole)
    with home.open() as ledger:
        request = page["question"](ledger.policy, 8, b"model")
        with pytest.raises(LedgerRolledBack):
            page["answer"](ledger, request, ["not a head", post[0][1]], page["task"], partial(page["send"], post))
    assert len(post) == 1


def test_every_refusal_is_named() -> None:
    listed = re.search(r"Refusals are constants: `([^`]+)`", PAGE)
    assert listed is not None
    assert listed[1].split() == [each.value for each in Refusal]
