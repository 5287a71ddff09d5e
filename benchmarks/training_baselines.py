"""What training is measured against: plain SGD, Opacus in its modes, and torch.func. A step of each, ready to call."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

RATE, CLIP, SIGMA = 0.01, 1.0, 1.0
Step = Callable[[], object]
Build = Callable[[nn.Module, Tensor, Tensor], Step]


def plain(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    optimiser = torch.optim.SGD(model.parameters(), RATE)

    def step() -> None:
        torch.autograd.backward(functional.cross_entropy(model(inputs), labels))
        optimiser.step()
        optimiser.zero_grad()  # here, so that no step begins with the gradients of the one before

    return step


def opacus(mode: str, micro_batch: int | None = None) -> Build:
    def build(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
        from opacus import PrivacyEngine

        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=len(inputs))
        settings = {
            "noise_multiplier": SIGMA,
            "max_grad_norm": CLIP,
            "poisson_sampling": False,
            "grad_sample_mode": mode,
        }
        given = {"module": model, "optimizer": torch.optim.SGD(model.parameters(), RATE), "data_loader": loader}
        private, optimiser, *others = PrivacyEngine().make_private(**given, **settings, criterion=nn.CrossEntropyLoss())
        criterion = others[0] if mode == "ghost" else functional.cross_entropy
        size = micro_batch or len(inputs)

        def step() -> None:
            for start in range(0, len(inputs), size):
                if micro_batch:
                    optimiser.signal_skip_step(do_skip=start + size < len(inputs))
                optimiser.zero_grad()
                criterion(private(inputs[start : start + size]), labels[start : start + size]).backward()
                optimiser.step()
            optimiser.zero_grad()

        return step

    return build


def vectorised(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(given: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, given, (one[None],)), label[None])

    def step() -> None:
        gradients, _ = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(weights, inputs, labels)
        norms = torch.stack([part.flatten(1).norm(dim=1) for part in gradients.values()]).norm(dim=0)
        shares = (CLIP / norms).clamp(max=1.0)
        for name, part in gradients.items():
            total = torch.einsum("b...,b->...", part, shares)
            weights[name] -= RATE / len(inputs) * (total + SIGMA * CLIP * torch.randn_like(total))

    return step


BASELINES: dict[str, Build] = {
    "opacus hooks": opacus("hooks"),
    "opacus ghost": opacus("ghost"),
    "opacus functorch": opacus("functorch"),
    "opacus BatchMemoryManager": opacus("hooks", micro_batch=32),
    "torch.func vmap": vectorised,
}
