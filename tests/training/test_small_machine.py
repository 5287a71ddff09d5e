"""VGG11 at a batch of 128 on a machine with 512 MB: under a hard limit on the process's own memory."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, warnings
resource.setrlimit(resource.RLIMIT_DATA, (512_000_000,) * 2)
warnings.simplefilter("ignore")
import torch
from torch import nn
torch.set_num_threads(1)
layers, channels = [], 3
for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
    layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()] if width else []
    layers += [] if width else [nn.MaxPool2d(2)]
    channels = width or channels
model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))
inputs, labels = torch.randn(200, 3, 32, 32), torch.randint(0, 10, (200,))
"""
OURS = """
from lrdp.accounting import FixedSizeGaussian
from lrdp.training import *
return_large_blocks()
task = Task(
    model=model, dataset=TensorRecords(inputs, labels), loss=CrossEntropy(classes=10),
    constants=PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1)),
    execution=Execution(memory_limit="512MB", announce=print),
)
step = FixedSizeGaussian(dataset_size=200, batch_size=128, noise_multiplier=1.0)
print(unaccounted_private_update(step, 2, task).steps, "steps done")
"""
OPACUS = """
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset
optimiser = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(TensorDataset(inputs, labels), batch_size=128)
model, optimiser, loader = PrivacyEngine().make_private(
    module=model, optimizer=optimiser, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0,
    poisson_sampling=False,
)
batch, target = next(iter(loader))
nn.functional.cross_entropy(model(batch), target).backward()
print("step done")
"""


def run(body):
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + body], capture_output=True, text=True, env=environment, check=False
    )


pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")]


def test_vgg11_trains_within_512_megabytes():
    done = run(OURS)
    assert "2 steps done" in done.stdout, done.stderr[-600:]


def test_control_opacus_dies_at_the_same_limit():
    pytest.importorskip("opacus")
    done = run(OPACUS)
    assert "step done" not in done.stdout
    assert "allocate memory" in done.stderr or "MemoryError" in done.stderr
