"""A hospital."""

import os

from torch.nn.functional import cross_entropy

from digits.task import Net, load
from lrdp.federation import private_client_app
from lrdp.training import Sgd

app = private_client_app(
    policy=os.path.expandvars("$LRDP_CONSORTIUM/clients/hospital-{partition-id}/policy.toml"),
    model=Net,
    dataset=load,
    loss=cross_entropy,
    optimiser=Sgd(lr=0.5),
)
