"""A private ClientApp: the Flower app of a client that has data, a policy and a ledger of its own.

In-process, as here, the client's guarantees rest on the app that runs: whoever ships the app ships this code. Where the
server ships it, use a guard (:mod:`lrdp.federation.client.guard`), to which the app can only pass messages on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from flwr.app import Context
from flwr.clientapp import ClientApp
from torch import nn

from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import (
    DEFAULT_CLIPPING,
    DEFAULT_EXECUTION,
    DEFAULT_OPTIMISER,
    LocalTask,
    Loss,
    Settings,
    Workbench,
    prepare_process,
)
from lrdp.federation.client.participant import Participant
from lrdp.federation.wire.flower import answering
from lrdp.federation.wire.frames import Frame
from lrdp.training import Clipping, Dataset, Execution, Optimiser

POLICY_SETTING: Final = "policy"
_LOG: Final = logging.getLogger("lrdp.client")
_MOST_BENCHES: Final = 256
_TOKEN_SIZE: Final = 16
_UNGUARDED: Final = (
    "this client app trains in its own process: its guarantees rest on whoever ships the app; where that is not the "
    "client, run `lrdp guard` and ship guarded_client_app()."
)


@dataclass(frozen=True)
class _Trained:
    """What an app trains. Ray pickles the app for each message: by its token a copy is known to be the same app."""

    token: bytes
    task: LocalTask = field(compare=False)


@lru_cache(maxsize=_MOST_BENCHES)
def _participant(trained: _Trained, folder: Path, settings: tuple[tuple[str, Any], ...]) -> Participant:
    """The client of this app and node, made with the first message that this process has for it."""
    prepare_process(trained.task)
    return Participant(ClientHome(folder=folder), Workbench(trained.task, dict(settings)))


def private_client_app(  # noqa: PLR0913 — what an editor shows of the front door
    *,
    model: Callable[[], nn.Module],
    dataset: Callable[[Settings], Dataset],
    loss: Loss,
    optimiser: Optimiser | None = None,
    optimizer: Optimiser | None = None,
    execution: Execution = DEFAULT_EXECUTION,
    probes: Sequence[Any] = (),
    units: Callable[[Any], Iterable[Any]] | None = None,
    clipping: Clipping = DEFAULT_CLIPPING,
    normaliser: float | None = None,
    policy: str | None = None,
) -> ClientApp:
    """A ClientApp that trains privately, within the budget of the policy, in rounds that it verifies.

    Args:
        model: makes the model that is trained.
        dataset: makes the records; it is called once, with the node's own settings.
        loss: ``loss(model, batch)`` with one value per example, or one of torch's, as ``F.cross_entropy`` or
            ``nn.MSELoss()``, for records ``(input, target)`` or dicts with a ``label``.
        optimiser: what is done with noised gradients, as in ``Sgd(lr=0.5)`` or ``partial(torch.optim.SGD, lr=0.5)``.
        optimizer: the same, as others spell it.
        execution: how a step is computed, as in ``Execution(memory_limit="900MB")``.
        probes: three or more public records, for a model that does not take made-up ones.
        units: says whose each row of the data set is, as in ``lambda rows: rows.patients``, where the policy clips
            units: all rows of one are then drawn and clipped together.
        clipping: how a gradient is scaled by its length, as in ``AutomaticClipping(gamma=0.01)``.
        normaliser: what a step's noised sum is divided by, in place of the policy's batch size.
        policy: where the client's policy.toml lies, next to its ledger and keys; settings of the node are filled in, as
            in ``"clients/{partition-id}/policy.toml"``. Without it, the node's own setting ``policy`` is used. It never
            comes from the server's run configuration.

    >>> import torch
    >>> from lrdp.training import Sgd, TensorRecords
    >>> app = private_client_app(
    ...     policy="clients/{partition-id}/policy.toml",
    ...     model=lambda: nn.Linear(4, 2),
    ...     dataset=lambda settings: TensorRecords(torch.rand(50, 4), torch.arange(50) % 2),
    ...     loss=nn.functional.cross_entropy,
    ...     optimiser=Sgd(lr=0.5),
    ... )
    >>> isinstance(app, ClientApp), policy_path("clients/{partition-id}/policy.toml", {"partition-id": 3}).parts[-2:]
    (True, ('3', 'policy.toml'))

    A whole federation of such apps is in the example of :class:`lrdp.federation.VerifiedAverage`.
    """
    if optimiser is not None and optimizer is not None:
        raise InvalidInput("optimiser and optimizer are the same: give one of them; nothing was started.")
    task = LocalTask(
        model=model,
        dataset=dataset,
        loss=loss,
        optimiser=optimiser or optimizer or DEFAULT_OPTIMISER,
        execution=execution,
        probes=probes,
        units=units,
        clipping=clipping,
        normaliser=normaliser,
    )
    trained = _Trained(token=os.urandom(_TOKEN_SIZE), task=task)
    _LOG.warning(_UNGUARDED)

    def handle(given: Frame, context: Context) -> Frame:
        settings = dict(context.node_config)
        folder = policy_path(policy, settings).parent
        return _participant(trained, folder, tuple(sorted(settings.items()))).handle(given)

    app = answering(handle)
    app.private_task = task  # type: ignore[attr-defined]  # for `lrdp check`, which is given the app
    return app


def policy_path(template: str | None, settings: Mapping[str, Any]) -> Path:
    """The policy of this node: its path is the operator's or the app's, and never in a message."""
    if template is None and POLICY_SETTING not in settings:
        raise InvalidInput(
            f"this node has no policy: start it with --node-config '{POLICY_SETTING}=\"/path/to/policy.toml\"'; "
            f"`lrdp init` writes one."
        )
    try:
        return files.followed(Path((template or str(settings[POLICY_SETTING])).format(**settings)))
    except KeyError as missing:
        raise InvalidInput(
            f"the path of the policy, {template}, names the setting {missing}, which this node lacks: start it with "
            f"--node-config, or leave the setting out of the path."
        ) from None
