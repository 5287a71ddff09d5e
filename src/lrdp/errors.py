"""Every error raised on purpose, as a tree.

::

    LrdpError
    ├── InvalidInput            a value outside its limits: exit code 2
    │   └── Unsupported         a combination without a sound bound: exit code 2
    └── OutOfReach              no noise and no number of steps meets the target: exit code 2

Each message gives the value, the limit and the reason, in one sentence.
"""

from __future__ import annotations

from typing import ClassVar


class LrdpError(Exception):
    """The root: catch it to catch everything this package raises on purpose."""

    exit_code: ClassVar[int] = 1


class InvalidInput(LrdpError, ValueError):
    """A value outside its limits."""

    exit_code = 2


class Unsupported(InvalidInput):
    """A combination of mechanism, adjacency and accountant for which no sound bound is known."""


class OutOfReach(LrdpError):
    """A target that no admissible value meets."""

    exit_code = 2
