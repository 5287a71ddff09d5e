"""A hospital's side: who trains, and with which policy and keys, only its own operator says.

- ``guard`` in the node's configuration: the hospital's guard, a process of its own, trains and signs.
- ``policy`` in the node's configuration: this process trains, with the ledger and the keys beside that policy.
- Neither, as in a simulation: the environment variable LRDP_CONSORTIUM names a folder with all hospitals in it.

A server's run configuration is never asked: it could point at another hospital's keys, or at a policy of its own.
"""

import os
from functools import cache

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from lrdp.federation import guarded_client_app

app = ClientApp()
guarded = guarded_client_app()


@cache
def trained_here() -> ClientApp:
    """Loaded where it is needed: behind a guard this process starts without torch."""
    from lrdp.experiments.digits import LOSS, Net, records
    from lrdp.federation import private_client_app

    simulated = os.environ.get("LRDP_CONSORTIUM")
    policy = f"{simulated}/clients/hospital-{{partition-id}}/policy.toml" if simulated else None
    return private_client_app(policy=policy, model=Net, dataset=records, loss=LOSS)


@app.train()
@app.query()
def answer(message: Message, context: Context) -> Message:
    """Whatever the server asks, one of the two answers."""
    chosen = guarded if "guard" in context.node_config else trained_here()
    return chosen(message, context)
