"""Replaced layers: standardised weights are trained exactly, and say what they should."""

import torch
from torch import nn

from lrdp.training import StandardisedConv2d, check_gradients, standardise_weights
from training.cases import fixed, task
from training.truth import assert_engine_is_exact


def network():
    torch.manual_seed(2)
    layers = (nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=2), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(16, 3))


def cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def test_filters_have_mean_nought_and_length_one_whatever_their_weights_are():
    (layer,) = standardise_weights(nn.Sequential(nn.Conv2d(2, 4, 3, bias=False))).children()
    with torch.no_grad():
        layer.get_parameter("weight").mul_(7.0).add_(3.0)
    ones = layer(torch.ones(1, 2, 3, 3)).detach()
    torch.testing.assert_close(ones, torch.zeros_like(ones), atol=1e-4, rtol=0)
    steps = torch.eye(18).view(18, 2, 3, 3)
    lengths = layer(steps).detach().flatten(1).square().sum(0)
    torch.testing.assert_close(lengths, torch.ones(4), atol=1e-3, rtol=0)


def test_the_gate_takes_them_and_their_gradients_are_exact():
    model = standardise_weights(network())
    assert [type(layer) for layer in list(model.children())[:3]] == [StandardisedConv2d, nn.ReLU, StandardisedConv2d]
    batch = torch.randn(5, 2, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    assert_engine_is_exact(standardise_weights(network()).double(), cross_entropy, batch, 5)
    rows = [(torch.randn(2, 8, 8), number % 3) for number in range(30)]
    given = task(model=model, dataset=rows, loss=nn.functional.cross_entropy)
    assert check_gradients(fixed(batch=4, accounted=20), given).alone == ""


def test_the_model_itself_stays_as_it_is_and_single_weights_too():
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 1))
    changed = standardise_weights(model)
    assert [type(layer) for layer in model] == [nn.Conv2d] * 2
    assert [type(layer) for layer in changed.children()] == [nn.Conv2d, StandardisedConv2d]
    assert all(map(torch.equal, model.parameters(), changed.parameters()))
