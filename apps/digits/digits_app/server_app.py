"""The server: verified averaging, and the model's accuracy on public data."""

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from lrdp.experiments.digits import Net, accuracy
from lrdp.federation import Order, RoundReport, Terms, VerifiedAverage
from lrdp.integrity import load_identity, read_registry

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One run, as the server's run configuration asks for it."""
    asked = context.run_config
    folder = Path(str(asked["server-folder"]))
    terms = Terms(
        identity=load_identity(folder / "identity.pem"),
        registry=read_registry(Path(str(asked["registry"])).read_text(encoding="utf-8")),
        folder=folder,
        order=Order(steps=int(asked["local-steps"]), learning_rate=float(asked["learning-rate"])),
    )

    def log(report: RoundReport) -> None:
        with (folder / f"rounds-{context.run_id}.jsonl").open("a", encoding="utf-8") as file:
            file.write(report.as_json() + "\n")

    VerifiedAverage(terms, log).start(
        grid,
        ArrayRecord(Net().state_dict()),
        num_rounds=int(asked["num-server-rounds"]),
        timeout=float(asked["timeout"]),
        evaluate_fn=evaluate,
    )


def evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
    """On data that belongs to nobody."""
    return MetricRecord({"accuracy": accuracy({name: array.numpy() for name, array in arrays.items()})})
