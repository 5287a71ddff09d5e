"""The server."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import Net, accuracy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average what the hospitals send."""
    strategy = FedAvg(fraction_evaluate=0.0)
    rounds = int(context.run_config["num-server-rounds"])
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=rounds, evaluate_fn=evaluate)


def evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
    """After each round."""
    return MetricRecord({"accuracy": accuracy(arrays.to_torch_state_dict())})
