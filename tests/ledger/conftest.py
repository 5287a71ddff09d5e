from pathlib import Path

import pytest

from ledger.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(folder=tmp_path)
