"""Adapters of ``peft`` on a tiny BERT and a tiny GPT-2 that are frozen but for them."""

from __future__ import annotations

from typing import Any

import peft
from torch import Tensor, nn

from training.zoo import entry
from training.zoo.entry import Entry
from training.zoo.text import _GPT2, configured


class Adapted(nn.Module):
    """An adapted model, called by columns; ``peft`` passes on what it is given."""

    def __init__(self, kind: str, config: Any, **sizes: Any) -> None:
        import transformers

        super().__init__()
        base = transformers.AutoModelForSequenceClassification.from_config(configured(kind, **sizes))
        self.inner = peft.get_peft_model(base, config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(input_ids=ids).logits


def adapted(name: str, make: str, told: dict[str, Any] | None = None, **settings: Any) -> Entry:
    """BERT for sentences of one length, with an adapter of that kind."""

    def build() -> nn.Module:
        return Adapted("bert", getattr(peft, make)(task_type="SEQ_CLS", **settings), without=("num_key_value_heads",))

    given = {"family": "peft", "records": entry.words, "loss": entry.of_classes}
    return Entry(name=name, build=build, **{**given, **(told or {})})


def _written() -> nn.Module:
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    return Adapted("gpt2", config, **_GPT2)


_UNSEEN = {"alone": "is not torch's"}  # raw parameters that other modules use
_UNFIT = {"alone": "the rules do not fit it"}
_PLACES = ["query", "value"]
ENTRIES_OF_ADAPTERS: tuple[Entry, ...] = (
    adapted("LoRA", "LoraConfig", r=2, lora_dropout=0.1, target_modules=_PLACES),
    Entry(name="LoRA on gpt2", family="peft", build=_written, records=entry.words, loss=entry.of_classes),
    adapted("LoRA on embeddings", "LoraConfig", told=_UNSEEN, r=2, target_modules=["word_embeddings", "query"]),
    adapted("rsLoRA", "LoraConfig", r=2, use_rslora=True, target_modules=_PLACES),
    adapted("DoRA", "LoraConfig", told=_UNFIT, r=2, use_dora=True, target_modules=_PLACES),
    adapted("AdaLoRA", "AdaLoraConfig", told=_UNSEEN, init_r=3, target_r=2, total_step=100, target_modules=_PLACES),
    adapted("VeRA", "VeraConfig", told=_UNSEEN, r=4, target_modules=_PLACES),
    adapted(
        "IA3",
        "IA3Config",
        told=_UNSEEN,
        target_modules=["key", "value", "output.dense"],
        feedforward_modules=["output.dense"],
    ),
    adapted("LoHa", "LoHaConfig", told=_UNSEEN, r=2, target_modules=_PLACES),
    adapted("LoKr", "LoKrConfig", told=_UNSEEN, r=2, target_modules=_PLACES),
    adapted("OFT", "OFTConfig", oft_block_size=4, target_modules=_PLACES),
    adapted("BOFT", "BOFTConfig", told=_UNSEEN, boft_block_size=4, target_modules=_PLACES),
    adapted("prompt tuning", "PromptTuningConfig", told=_UNFIT, num_virtual_tokens=3),
    adapted("prefix tuning", "PrefixTuningConfig", num_virtual_tokens=3),
    adapted("p-tuning", "PromptEncoderConfig", told=_UNFIT, num_virtual_tokens=3, encoder_hidden_size=8),
    adapted("layer-norm tuning", "LNTuningConfig", target_modules=["LayerNorm"]),
)
