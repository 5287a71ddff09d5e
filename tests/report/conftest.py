from collections.abc import Iterator

import pytest

from browser import Browser, launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running
