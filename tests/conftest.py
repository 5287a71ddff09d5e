"""What all tests share: how hypothesis searches."""

import os

from hypothesis import settings

# No deadline: a first call that fills a cache is slow, not wrong.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable" if os.environ.get("CI") == "true" else "search")

ROOMS_MEASURED = ("accounting", "federation", "integrity", "ledger", "training")


def pytest_collection_modifyitems(items):
    """Where coverage is measured, only tests of the rooms that are held to a bar are slowed down by it."""
    for item in items:
        if item.path.parent.name not in ROOMS_MEASURED:
            item.add_marker("no_cover")
