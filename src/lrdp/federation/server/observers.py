"""Observers for dashboards: TensorBoard, MLflow, Weights & Biases, and Prometheus on loopback.

Each is given to ``VerifiedAverage`` or ``BufferedAverage`` after the terms, and is told of every attempt once it is
over and on disk. It passes on the numbers below: no name, no sentence, and nothing that a client did not make public.
An observer that fails is logged and told again after the next round; one that is slow delays the next round.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from lrdp.errors import InvalidInput
from lrdp.federation.server.round_report import ObserveRound, RoundReport
from lrdp.federation.wire.metrics_page import BARE, Family, Labels, MetricsPage, exposition
from lrdp.integrity import Verdict
from lrdp.ledger import Refusal

_OF_CLIENTS: Final = (
    *("answered", "behind", "failed", "invalid", "ledger", "left", "malformed", "no-guard", "no-member", "silent"),
)
WORDS: Final = frozenset({*(each.value for each in (*Refusal, *Verdict)), *_OF_CLIENTS})
"""Every constant that a client declines with. A client may send any other text, which no dashboard is given."""
_OTHER: Final = "other"


def declined_by_word(report: RoundReport) -> Counter[str]:
    """How many declined with each of the known words."""
    return Counter(code if code in WORDS else _OTHER for code in report.declined.values())


def numbers(report: RoundReport) -> dict[str, float]:
    """All that a dashboard is given of an attempt: counts, seconds, and the server's own evaluation on public data."""
    return {
        "participants": len(report.participants),
        "declined": len(report.declined),
        **{f"declined/{word}": count for word, count in sorted(declined_by_word(report).items())},
        "stalest": max(report.staleness.values(), default=0),
        "verified": int(report.verified),
        "seconds": report.seconds,
        **{f"metric/{name}": value for name, value in report.metrics.items() if math.isfinite(value)},
    }


def tensorboard(folder: Path) -> ObserveRound:
    """Event files in ``folder``, flushed after every round."""
    package = _package("tensorboard", "torch.utils.tensorboard")
    with _beginning("tensorboard", folder):
        writer = package.SummaryWriter(str(folder))

    def observe(report: RoundReport) -> None:
        for name, value in numbers(report).items():
            writer.add_scalar(name, value, report.model + 1)
        writer.flush()

    return observe


def mlflow(store: str, experiment: str, run: str | None = None) -> ObserveRound:
    """A new run in a tracking store, as in ``"https://mlflow.example.org"`` or ``"sqlite:///mlflow.db"``.

    The client is used directly: MLflow adds no user, no source file and no measurements of the machine.
    """
    package, metric = _package("mlflow", "mlflow"), import_module("mlflow.entities").Metric
    with _beginning("mlflow", store):
        client = package.MlflowClient(tracking_uri=store)
        found = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if found is None else found.experiment_id
        made = client.create_run(place, run_name=run).info.run_id

    def observe(report: RoundReport) -> None:
        now, step = int(time.time() * 1000), report.model + 1
        client.log_batch(made, [metric(name, value, now, step) for name, value in numbers(report).items()])
        client.set_terminated(made)  # as far as is known now: nobody is told of the last round, and more may be logged

    return observe


def weights_and_biases(project: str, folder: Path, *, offline: bool = False, run: str | None = None) -> ObserveRound:
    """A new run of a project; an offline run lies in ``folder`` until `wandb sync`.

    Whatever else W&B would gather is switched off: console, code, Git, host, packages and the machine's measurements.
    """
    package = _package("wandb", "wandb")
    settings = package.Settings(mode="offline" if offline else "online", silent=True, **_NOTHING_ELSE)
    with _beginning("wandb", folder):
        made = package.init(project=project, name=run, dir=str(folder), settings=settings)
    made.define_metric("*", step_metric="round")

    def observe(report: RoundReport) -> None:
        made.log({"round": report.model + 1, **numbers(report)})

    return observe


@contextmanager
def _beginning(package: str, where: object) -> Iterator[None]:
    """What a package cannot open, as it says itself, before anybody is asked for a round."""
    try:
        yield
    except Exception as problem:
        raise InvalidInput(
            f"{package} cannot begin in {where} ({type(problem).__name__}: {problem}): mend that, or leave it out of "
            f"the observers. Nothing was started."
        ) from problem


_NOTHING_ELSE: Final[dict[str, Any]] = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "host": "",
    "save_code": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


class Prometheus:
    """The same numbers at a loopback address, as in ``Prometheus("127.0.0.1:9465")``, for a local Prometheus."""

    def __init__(self, address: str) -> None:
        self._page = MetricsPage(address)
        self._verified = self._attempts = 0
        self._declined: Counter[str] = Counter()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._page.port

    def __call__(self, report: RoundReport) -> None:
        """Show what an attempt came to."""
        self._attempts += 1
        self._verified = max(self._verified, report.model + report.verified)
        self._declined += declined_by_word(report)
        shown: dict[tuple[str, str], Mapping[Labels, float]] = {
            ("verified_round", "The last round that was verified."): {BARE: self._verified},
            ("attempts_total", "Attempts at a round since the server started."): {BARE: self._attempts},
            ("attempt_verified", "Whether the last attempt was verified."): {BARE: int(report.verified)},
            ("attempt_participants", "Who took part in the last attempt."): {BARE: len(report.participants)},
            ("attempt_seconds", "How long the last attempt took."): {BARE: report.seconds},
            ("attempt_end_seconds", "When it ended, in seconds since 1970."): {BARE: time.time()},
            ("declined_total", "Declined questions since the server started, by the constant."): {
                (("word", word),): count for word, count in self._declined.items()
            },
            ("metric", "The server's own evaluation on public data."): {
                (("name", name),): value for name, value in report.metrics.items()
            },
        }
        self._page.text = exposition(
            Family(name=f"lrdp_server_{name}", about=about, values=values) for (name, about), values in shown.items()
        )

    def close(self) -> None:
        """Stop listening."""
        self._page.close()


def _package(name: str, module: str) -> Any:
    if find_spec(name) is None:
        raise InvalidInput(f"{name} is missing: install it with pip install 'lrdp[tracking]'. Nothing was started.")
    return import_module(module)
