"""A hospital: its own model, data and loss; policy, ledger and keys where its operator says they are.

In a deployment the operator says so with ``--node-config``. In a simulation all hospitals are folders of one consortium,
and whoever simulates names it in the environment: a server's run configuration is never asked.
"""

import os

from lrdp.experiments.digits import LOSS, Net, records
from lrdp.federation import private_client_app

SIMULATED = os.environ.get("LRDP_CONSORTIUM")

app = private_client_app(
    policy=f"{SIMULATED}/clients/hospital-{{partition-id}}/policy.toml" if SIMULATED else None,
    model=Net,
    dataset=records,
    loss=LOSS,
)
