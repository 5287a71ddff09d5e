"""Found a consortium for a simulation: keys, registry, and for each hospital a policy and an open budget."""

import argparse
from pathlib import Path

from lrdp.accounting import Budget, Training
from lrdp.experiments.digits import stated_size
from lrdp.federation import found

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("folder", type=Path, help="a folder that is not there yet")
options.add_argument("--hospitals", type=int, default=4)
options.add_argument("--rounds", type=int, default=20, help="how many rounds the budget is to last for")
options.add_argument("--local-steps", type=int, default=10)
options.add_argument("--epsilon", type=float, default=8.0)
options.add_argument("--delta", type=float, default=1e-4)
given = options.parse_args()

training = Training(
    dataset_size=stated_size(given.hospitals),
    batch_size=32,
    rounds=given.rounds,
    local_steps=given.local_steps,
    budget=Budget(epsilon=given.epsilon, delta=given.delta),
)
found(given.folder, {f"hospital-{number}": training for number in range(given.hospitals)})
print(f"Founded a consortium of {given.hospitals} hospitals in {given.folder}.")  # noqa: T201
