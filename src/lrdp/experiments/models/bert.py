"""The paper's model for text: BERT-base, 110 million weights, all of them trained.

The paper says "the pre-trained BERT-base model": name a folder or ``bert-base-uncased`` as its weights to have that.
Without them, it has the same size and random weights, which is enough to measure what a step costs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lrdp.experiments.models.entry import Form, ModelEntry, Wanted
from lrdp.experiments.models.transformer import arguments, library, loaded, some_sentences

# Without dropout: its chance would come on top of the noise, and the engine's check takes it to be the batch's.
_STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Bert(nn.Module):
    """Logits of tokens."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        """From the first place, as BERT does it."""
        logits: Tensor = self.inner(**arguments(tokens)).logits
        return logits


def _build(wanted: Wanted) -> nn.Module:
    if wanted.weights is not None:
        return Bert(loaded("BertForSequenceClassification", wanted.weights, num_labels=wanted.classes, **_STILL))
    transformers = library("transformers")
    config = transformers.BertConfig(num_labels=wanted.classes, **_STILL)
    return Bert(transformers.BertForSequenceClassification(config))


BERT = ModelEntry(form=Form.TOKENS, build=_build, probes=some_sentences)
