"""What all tests share: how hypothesis searches."""

import os

import pytest
from hypothesis import is_hypothesis_test, settings

# No deadline: a first call that fills a cache is slow, not wrong.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable" if os.environ.get("CI") == "true" else "search")

MEASURED = {"accounting", "federation", "integrity", "ledger", "training"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where coverage is measured, only tests of rooms that are held to a bar are slowed down by it, and no searches."""
    for item in items:
        rooms = item.path.relative_to(item.config.rootpath).parent.parts
        if MEASURED.isdisjoint(rooms) or is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker("no_cover")
