"""What all tests share: how hypothesis searches."""

import os

from hypothesis import settings

# No deadline: a first call that fills a cache is slow, not wrong.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable" if os.environ.get("CI") == "true" else "search")
