"""A hospital's own code, which its guard trains with: no server ships it, and no server can change it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lrdp.experiments.digits import LOSS, Net
from lrdp.federation import LocalTask
from lrdp.training import TensorRecords


def load(settings: Mapping[str, Any]) -> TensorRecords:
    """The records in the file that ``lrdp guard --data`` names."""
    with np.load(settings["data"], allow_pickle=False) as file:
        return TensorRecords(torch.from_numpy(file["images"]), torch.from_numpy(file["labels"]))


task = LocalTask(model=Net, dataset=load, loss=LOSS)
