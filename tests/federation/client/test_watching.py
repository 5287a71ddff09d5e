"""What a guard shows its hospital: figures on their safe side, a line for each message, and nothing of a record."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from federation.hostile import HONEST, VICTIM, Stage, stage
from federation.worlds import model, records
from lrdp.federation import LocalTask
from lrdp.federation.client.guard import Guard, Ward, inspected
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.watching import Attended, Budgeted, GuardWatch
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Decline, read_message, to_frame, word_of
from lrdp.ledger import Home, summarize
from lrdp.training import CrossEntropy


class Watched:
    """A client that a guard would serve, asked without a socket, and what its watch said."""

    def __init__(self, made: Stage) -> None:
        self.home: ClientHome = made.world.consortium.client(VICTIM)
        task = LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2))
        bench, _ = inspected(Ward(home=self.home, task=task, settings={"partition-id": 0}))
        self.participant, self.pages = Participant(self.home, bench), list[str]()
        self.watch = GuardWatch(self.home, self.participant, self.pages.append)

    def ask(self, question: object) -> object:
        answer = read_message(self.participant.handle(to_frame(question)))  # type: ignore[arg-type]
        said = f"declined ({answer.code})" if isinstance(answer, Decline) else word_of(answer)
        self.watch(Attended(asked=word_of(question), answered=said, seconds=1.234))  # type: ignore[arg-type]
        return answer

    def shown(self) -> dict[str, float]:
        families = text_string_to_metric_families(self.pages[-1])
        return {
            " ".join([sample.name.removeprefix("lrdp_guard_"), *sample.labels.values()]): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
def made(tmp_path: Path) -> Stage:
    return stage(tmp_path)


def test_charges_refusals_rounds_and_what_is_left_are_shown_as_the_ledger_has_them(
    made: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(made)
    first = watched.shown()
    assert (first["epsilon_spent"], first["charges_total"], "round_seconds" in first) == (0.0, 0, False)
    made.greet()
    with caplog.at_level(logging.INFO, "lrdp.guard"):
        watched.ask(made.coordinator.hello)
        watched.ask(made.coordinator.order_ahead(VICTIM, replace(HONEST, noise_multiplier=0.9)))
        watched.ask(made.coordinator.order_ahead(VICTIM, HONEST))
    shown = watched.shown()
    with watched.home.ledger() as ledger:
        books = summarize(ledger.books)
    assert shown["epsilon_spent"] == books.guaranteed.epsilon > 0
    assert shown["epsilon_left"] == float(books.left) <= books.budget.epsilon - books.guaranteed.epsilon
    assert shown["epsilon_budget"] == books.budget.epsilon
    assert shown["rounds_left"] == books.rounds_left
    assert (shown["charges_total"], shown["charged_steps_total"]) == (1, HONEST.steps)
    assert shown["unsent_replies"] == 1
    assert shown["refusals_total noise"] == 1
    assert shown["round_seconds"] == 1.234
    assert shown["answers_total ahead declined (noise)"] == 1
    hello, refused, trained = [record for record in caplog.records if record.name == "lrdp.guard"]
    assert hello.getMessage().startswith("round – · hello → here · nothing charged · ε 0.0000 of 8.0 guaranteed")
    assert "ahead → declined (noise) · nothing charged" in refused.getMessage()
    line = trained.getMessage()
    assert f"ahead → kept · {HONEST.steps} steps charged" in line
    assert line.endswith("rounds left · 1.24 s"), "a time that something took is rounded up"
    said = float(line.split("ε ")[1].split()[0])
    assert books.guaranteed.epsilon <= said < books.guaranteed.epsilon + 1e-4
    left = float(line.split("guaranteed, ")[1].split()[0])
    assert float(books.left) - 1e-4 < left <= books.left
    assert (trained.charged, trained.round) == (HONEST.steps, 1)  # type: ignore[attr-defined]


def test_reserved_rounds_are_shown_as_rounds_for_their_epsilon_is_paid_from_the_first_day_on() -> None:
    books = Budgeted(client="a", spent=7.99, total=8.0, rounds_left=12)
    assert 0.0099 < books.left <= 8.0 - 7.99
    assert Budgeted(client="a", spent=float("nan"), total=8.0).left == 0.0


def test_a_watch_that_fails_ends_no_guard(made: Stage, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(made)

    def full(_attended: Attended) -> None:
        raise OSError("no space left on device")

    guard = Guard(watched.home, watched.participant, full)
    guard._tell(Attended(asked="hello", answered="here", seconds=0.1))
    assert "hello → here, about which no more could be said" in caplog.text


def test_books_that_cannot_be_read_are_a_line_and_a_figure(made: Stage, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(made)
    made.greet()
    watched.ask(made.coordinator.hello)
    assert watched.shown()["readable"] == 1
    home = Home(folder=watched.home.folder)
    for path, code, words in (
        (home.ledger, "ledger", "is gone, and what it charged is not known without it"),
        (home.policy, "no-policy", "there is no policy at"),
    ):
        away = path.rename(path.with_suffix(".away"))
        caplog.clear()
        answer = watched.ask(made.coordinator.order_ahead(VICTIM, HONEST))
        assert isinstance(answer, Decline)
        lines = [record for record in caplog.records if record.name == "lrdp.guard"]
        (line,) = lines
        assert line.exc_info is None, "a sentence, and in the file of the log too"
        assert f"ahead → declined ({answer.code}) · " in line.getMessage()
        assert words in line.getMessage()
        assert (answer.code, watched.shown()["readable"]) == (code, 0)
        away.rename(path)
    watched.ask(made.coordinator.hello)
    assert watched.shown()["readable"] == 1


def test_what_a_peer_sends_is_no_word_on_the_page(made: Stage) -> None:
    watched = Watched(made)
    watched.participant.handle(Frame(b"secret"))
    watched.watch(Attended(asked="unknown", answered="declined (malformed)", seconds=0.1))
    assert "secret" not in watched.pages[-1]
    assert watched.shown()["answers_total unknown declined (malformed)"] == 1
