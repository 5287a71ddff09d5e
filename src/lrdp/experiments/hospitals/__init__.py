"""Natural hospitals: how well each is served at which ε and with how much memory, and who loses where memory is short.

Stages: sizes of the hospitals, noise for each size, machines under a hard limit, learning rates on validation records,
and then all seeds on test records, with all hospitals and without those of little memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrdp.experiments.hospitals.stages import HospitalsStudy

__all__ = ["study"]


def study(tables: Mapping[str, Any]) -> HospitalsStudy:
    """The study of these settings. Loaded when asked for: a process with a memory limit imports this package, too."""
    from lrdp.experiments.hospitals.stages import study as made

    return made(tables)
