"""The plan of the demonstration: everybody is away at times, and never so many that no round could be made."""

import pytest

from lrdp.experiments.story import LEAST_CLIENTS, Story


@pytest.mark.parametrize("clients", [6, 7, 11, 26])
def test_everybody_is_away_in_some_round_and_enough_are_left(clients):
    story = Story(clients=clients)
    absent = set()
    for number in range(story.rounds):
        chosen = story.choose(number, story.names)
        assert len(chosen) > max(LEAST_CLIENTS, clients // 2 + 1)
        absent |= set(story.names) - set(chosen)
    assert absent == set(story.names)


def test_nobody_is_sent_away_where_all_are_needed():
    for number in range(12):
        assert story_of(3).choose(number, story_of(3).names) == list(story_of(3).names)
        assert story_of(4).choose(number, story_of(4).names) == list(story_of(4).names)


def story_of(clients):
    return Story(clients=clients)


def test_the_frugal_client_plans_for_half_of_the_rounds_and_others_for_all():
    story = Story(rounds=9)
    planned = {name: training.rounds for name, training in story.trainings().items()}
    assert story.frugal is not None
    assert planned.pop(story.frugal) == 4
    assert set(planned.values()) == {9}


def test_with_three_clients_all_are_needed_so_none_refuses_and_none_is_killed():
    story = Story(clients=3, rounds=5)
    assert (story.frugal, story.killed) == (None, None)
    assert story.attempts == 6
