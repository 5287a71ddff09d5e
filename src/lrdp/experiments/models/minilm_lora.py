"""Adapters in the last two layers of MiniLM and a head on its mean: few weights, on top of what it already knows."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from lrdp.errors import InvalidInput
from lrdp.experiments.models.entry import Form, ModelEntry, Wanted
from lrdp.experiments.models.transformer import arguments, library, loaded, some_sentences

_ADAPTED_LAYERS: Final = 2
_RANK: Final = 2
_ALPHA: Final = 0.5


class Adapted(nn.Module):
    """Classes from the mean over a sentence's own places."""

    def __init__(self, encoder: Any, classes: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.config.hidden_size, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        states = self.encoder(**arguments(tokens)).last_hidden_state
        own = tokens[:, 1, :, None].to(states.dtype)
        logits: Tensor = self.head((states * own).sum(1) / own.sum(1).clamp(min=1))
        return logits


def _build(wanted: Wanted) -> nn.Module:
    if wanted.weights is None:
        raise InvalidInput("minilm-lora needs weights, the folder or the name of its encoder: nothing was run.")
    peft = library("peft")
    encoder = loaded("BertModel", wanted.weights, add_pooling_layer=False).eval()
    layers = encoder.config.num_hidden_layers
    last = list(range(max(0, layers - _ADAPTED_LAYERS), layers))
    adapters = peft.LoraConfig(
        target_modules=["query", "value"], layers_to_transform=last, r=_RANK, lora_alpha=_ALPHA, lora_dropout=0.0
    )
    return Adapted(peft.get_peft_model(encoder, adapters), wanted.classes)


MINILM_LORA = ModelEntry(form=Form.TOKENS, build=_build, probes=some_sentences)
