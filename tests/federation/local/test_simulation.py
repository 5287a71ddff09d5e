"""Flower's simulation on Ray, for real; and what holds for simulations of either kind."""

import pickle
import threading
from typing import Any

import pytest

import demonstration as shown_by
from demonstration import demonstration
from lrdp.experiments import demo
from lrdp.experiments.demo_clients import DemoHospitals
from lrdp.experiments.story import Story
from lrdp.federation import InProcessGrid
from lrdp.federation.local.simulation import MadeInPlace, Stopped, _Stoppable, in_one_process


def test_in_ray_a_cheat_is_caught_a_budget_is_kept_and_every_figure_is_the_ledgers_own(tmp_path):
    shown = demonstration("--clients 4 --rounds 2 --local-steps 1", tmp_path / "new")
    shown_by.check_shape(shown)
    shown_by.check_spending(shown, local_steps=1)
    shown_by.check_receipts(shown)
    shown_by.check_caught(shown)
    shown_by.check_exhausted(shown, "hospital-d", charges=1)


def test_an_honest_server_is_accused_of_nothing(tmp_path):
    attempts: list[Any] = []
    story = Story(clients=3, rounds=2, local_steps=1, cheats=False)
    summary = demo.run(story, tmp_path / "new", in_one_process, attempts.append)
    assert summary["rounds_run"] == summary["rounds_verified"] == len(attempts) == 2
    assert all(attempt.verified and not attempt.verdicts and not attempt.problem for attempt in attempts)


def test_an_app_travels_as_a_recipe(tmp_path):
    recipe = DemoHospitals(folder=tmp_path, names=("hospital-a",))
    travelled = pickle.loads(pickle.dumps(MadeInPlace(recipe, tmp_path)))
    assert travelled._recipe == recipe
    assert len(pickle.dumps(travelled)) < 2000


def test_a_server_that_waits_for_clients_ends_when_the_simulation_is_stopped():
    stopped = threading.Event()
    grid = _Stoppable(_Silent({}), stopped)
    threading.Timer(0.2, stopped.set).start()
    with pytest.raises(Stopped):
        grid.send_and_receive([], timeout=60)


class _Silent(InProcessGrid):
    def push_messages(self, messages):
        return ["never answered"]
