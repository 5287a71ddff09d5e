"""The server."""

import os
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits.task import Net, accuracy
from lrdp.federation import Consortium, Terms, VerifiedAverage

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average what the hospitals send."""
    ours = Consortium(folder=Path(os.environ["LRDP_CONSORTIUM"]))
    terms = Terms(identity=ours.server_identity(), registry=ours.registry(), folder=ours.server_folder)
    strategy = VerifiedAverage(terms)
    rounds = int(context.run_config["num-server-rounds"])
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=rounds, evaluate_fn=evaluate)


def evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
    """After each round."""
    return MetricRecord({"accuracy": accuracy(arrays.to_torch_state_dict())})
