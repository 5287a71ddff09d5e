"""What the attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .hostile import Stage, stage


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """After one honest round. All attacks on it are refused, so that it stays what it is: the last round shows it."""
    made = stage(tmp_path_factory.mktemp("settled"))
    made.honest_round()
    yield made
    made.honest_round()
