"""A client that has just been set up."""

from pathlib import Path

import pytest

from .clients import Client


@pytest.fixture
def client(tmp_path: Path) -> Client:
    made = Client(tmp_path / "home")
    made.run(
        "init", "--folder", str(made.home.folder), "--client", "hospital-a", "--rounds", "5", "--local-steps", "20"
    )
    return made
