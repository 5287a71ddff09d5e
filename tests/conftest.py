"""What all tests share: how hypothesis searches, one thread for each worker, and what coverage sees."""

import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import is_hypothesis_test, settings

# Workers share the cores: with two threads each, torch's spend half of their time waiting for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: a first call that fills a cache is slow, not wrong.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repeatable" if os.environ.get("CI") == "true" else "search")

# To build the commands of an app takes longer than to run most of them: once for each app, and not for each line.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

TESTS = Path(__file__).parent
TRACED = (
    "accounting",
    "ledger",
    "integrity",
    "commands/test_guard.py",
    "commands/test_integrity.py",
    "commands/test_ledger.py",
    "federation/client",
    "federation/server/test_blaming.py",
    "federation/server/test_buffered.py",
    "federation/test_hostile_server.py",
    "federation/test_masked.py",
    "federation/test_retries.py",
    "federation/test_rotation.py",
    "federation/test_rounds.py",
    "federation/test_units.py",
    "federation/wire",
    "training/noise",
    "training/test_clipping.py",
    "training/test_keystream.py",
    "training/test_sampling.py",
)
"""What coverage is measured by: quick suites of the rooms that are held to a bar. A tracer slows down all it sees."""


WAITING = ("test_deployment.py", "test_apps.py", "test_simulation.py")
"""Whole federations with processes of their own: begun last, one worker would be idle while they wait."""


FORMULAS = ("accounting", "integrity", "training")
"""Where the first case of a test is traced: the others run the same lines with other values."""
ORACLES = tuple(f"accounting/test_{name}.py" for name in ("brute_force", "peers", "reference_table", "renyi", "taylor"))
"""Most of their time goes to an independent truth, which a tracer slows down for nothing."""


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that mostly wait begin first; where coverage is measured, searches and all else are not slowed down."""
    items.sort(key=lambda item: item.path.name not in WAITING)
    seen = Counter[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        quick = item.get_closest_marker("one_in")
        if quick is not None and seen[test] % quick.args[0] != quick.kwargs.get("begin", 0):
            item.add_marker("slow")
        seen[test] += 1
        again = seen[test] > 1 and _in(item.path, FORMULAS)
        if (
            not _in(item.path, TRACED)
            or _in(item.path, ORACLES)
            or again
            or is_hypothesis_test(getattr(item, "function", None))
        ):
            item.add_marker("no_cover")


@pytest.fixture(autouse=True)
def _the_log_as_it_was() -> Iterator[None]:
    """A guard in the test's own process writes to the streams of the test, which end with it."""
    logger = logging.getLogger("lrdp")
    handlers, propagate, level = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """The tracer stops for what such a test is given, too: by itself it would stop for the test alone."""
    measuring = getattr(item.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if measuring is None or item.get_closest_marker("no_cover") is None:
        return (yield)
    measuring.pause()
    try:
        return (yield)
    finally:
        measuring.resume()


@cache
def _in(path: Path, suites: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(TESTS / suite) for suite in suites)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the disk, and what gets its name, in their order."""
    order: list[str] = []

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **more: object) -> object:
            kind = name
            if name == "fsync":
                kind = "folder" if stat.S_ISDIR(os.fstat(given[0]).st_mode) else "file"  # type: ignore[arg-type]
            order.append(kind)
            return real(*given, **more)

        return call

    for name in ("fsync", "replace", "link"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    return order
