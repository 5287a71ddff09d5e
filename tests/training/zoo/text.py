"""Language models of ``transformers``, in tiny configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from training.zoo import entry
from training.zoo.entry import CLASSES, END, ENTRIES, IGNORED, TOKENS, Entry, Logits

_SMALL = {
    "vocab_size": ENTRIES,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": END,
    "num_labels": CLASSES,
}
_GPT2: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
_BART = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_start_token_id": END,
}
_T5 = {
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}


_UNFIT = {"alone": "the rules do not fit it"}
_SHARED: dict[str, Any] = {"alone": "positions with one row per example or a leading 1"}
_RAW = {"alone": "has raw parameters and draws random numbers"}
_LOOKS = {"alone": "depends on values in its batch"}


def configured(kind: str, without: tuple[str, ...] = (), **sizes: Any) -> Any:
    """A tiny configuration of that kind of model."""
    common = {name: value for name, value in _SMALL.items() if name not in without}
    return transformers.AutoConfig.for_model(kind, **{**common, **sizes})


def tiny(task: str, kind: str, *columns: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A model for that task, as its configuration alone makes it."""
    maker = getattr(transformers, f"AutoModelFor{task}")
    return lambda: Logits(maker.from_config(configured(kind, **sizes)), *columns)


def classifier(kind: str, /, told: dict[str, Any] | None = None, **sizes: Any) -> Entry:
    """Of sentences of different lengths, with an attention mask."""
    build = tiny("SequenceClassification", kind, "input_ids", "attention_mask", **sizes)
    given = {"name": kind, "family": "transformers", "records": entry.sentences, "loss": entry.of_classes}
    return Entry(build=build, **{**given, **(told or {})})


def of_words(kind: str, /, told: dict[str, Any] | None = None, **sizes: Any) -> Entry:
    """Of sentences of one length, without a mask."""
    build = tiny("SequenceClassification", kind, "input_ids", **sizes)
    given = {"name": kind, "family": "transformers", "records": entry.words, "loss": entry.of_classes}
    return Entry(build=build, **{**given, **(told or {})})


def writer(kind: str, /, told: dict[str, Any] | None = None, **sizes: Any) -> Entry:
    """Of the next word, for sentences of different lengths, with an attention mask."""
    build = tiny("CausalLM", kind, "input_ids", "attention_mask", **sizes)
    given = {"name": kind, "family": "transformers", "records": entry.texts, "loss": entry.of_next_tokens}
    return Entry(build=build, **{**given, **(told or {})})


def eager(kind: str, **sizes: Any) -> Entry:
    return classifier(kind, told={"name": f"{kind}, eager"}, attn_implementation="eager", **sizes)


class SparsePrediction(nn.Module):
    """ModernBERT that computes logits only where there is a label: as many rows as the batch has of them."""

    def __init__(self) -> None:
        super().__init__()
        config = configured("modernbert", sparse_prediction=True)
        self.inner = transformers.AutoModelForMaskedLM.from_config(config)

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        logits = self.inner(input_ids=ids, attention_mask=mask, labels=labels).logits
        chosen = labels.flatten() != IGNORED
        each = functional.cross_entropy(logits, labels.flatten()[chosen], reduction="none")
        owners = torch.arange(len(labels)).repeat_interleave(labels.shape[1])[chosen]
        return torch.zeros(len(labels), dtype=each.dtype).index_add(0, owners, each)


class Translator(nn.Module):
    """An encoder and a decoder, whose input is the target moved by one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.inner(input_ids=ids, attention_mask=mask, decoder_input_ids=ids.roll(1, 1)).logits


def translator(kind: str, **sizes: Any) -> Entry:
    config = configured(kind, **sizes)
    return Entry(
        name=f"{kind}, translating",
        family="transformers",
        build=lambda: Translator(transformers.AutoModelForSeq2SeqLM.from_config(config)),
        records=entry.texts,
        loss=entry.of_tokens,
        **_SHARED,
    )


def masked(kind: str, told: dict[str, Any] | None = None, **sizes: Any) -> Entry:
    build = tiny("MaskedLM", kind, "input_ids", "attention_mask", **sizes)
    given = {"name": f"{kind}, masked", "family": "transformers", "records": entry.gaps, "loss": entry.of_tokens}
    return Entry(build=build, **{**given, **(told or {})})


ENTRIES_OF_TEXT: tuple[Entry, ...] = (
    classifier("bert"),
    eager("bert"),
    masked("bert"),
    classifier("roberta"),
    classifier("distilbert", dim=16, n_layers=2, n_heads=2, hidden_dim=32),
    classifier("albert", embedding_size=8),
    classifier("electra", embedding_size=8),
    classifier("deberta", told=_RAW, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    classifier("deberta-v2", told=_UNFIT, relative_attention=True, position_buckets=4, pos_att_type=["p2c", "c2p"]),
    classifier("mpnet", told=_SHARED),
    classifier(
        "xlnet",
        told={"frozen": ("r_s_bias", "seg_embed", "mask_emb"), "alone": "one row each"},
        without=("max_position_embeddings",),
        d_model=16,
        n_layer=2,
        n_head=2,
        d_inner=32,
    ),
    classifier("t5", told={"probes": True, **_SHARED}, **_T5),
    translator("t5", **_T5),
    classifier("bart", told={"probes": True, **_LOOKS}, **_BART),
    classifier(
        "longformer",
        told={"frozen": tuple(f"layer.1.attention.self.{name}." for name in ("query", "key", "value")), **_UNFIT},
        attention_window=4,
    ),
    classifier("big_bird", told={"frozen": ("bert.pooler",)}, attention_type="original_full"),
    classifier(
        "funnel",
        told={"frozen": ("blocks.1.0.attention.r_", "blocks.1.0.attention.seg_embed"), **_RAW},
        without=("num_hidden_layers",),
        d_model=16,
        n_head=2,
        d_head=8,
        d_inner=32,
        block_sizes=[1, 1],
        num_decoder_layers=1,
    ),
    classifier("convbert", embedding_size=8, conv_kernel_size=3),
    classifier("squeezebert", embedding_size=16),
    of_words("nystromformer", told=_UNFIT, num_landmarks=4, segment_means_seq_len=TOKENS, conv_kernel_size=3),
    of_words("fnet"),
    classifier("mobilebert", embedding_size=8, intra_bottleneck_size=8, true_hidden_size=8),
    classifier("roformer", embedding_size=16),
    classifier("modernbert"),
    Entry(
        name="modernbert, sparse prediction",
        family="transformers",
        build=SparsePrediction,
        records=entry.gaps,
        loss=entry.as_given,
        alone="modeling_modernbert.py line",
    ),
    writer("gpt2", **_GPT2),
    Entry(
        name="gpt2, one length",
        family="transformers",
        build=tiny("CausalLM", "gpt2", "input_ids", **_GPT2),
        records=entry.plain_texts,
        loss=entry.of_next_tokens,
    ),
    writer("gpt_neo", num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]], window_size=4),
    writer("gpt_neox"),
    writer("gptj", **_GPT2, rotary_dim=4),
    writer("opt", told=_LOOKS, ffn_dim=32, word_embed_proj_dim=16),
    writer("bloom", n_layer=2, n_head=2),
    writer("llama"),
    writer("llama", told={"name": "llama, eager"}, attn_implementation="eager"),
    writer("mistral", sliding_window=4),
    writer("qwen2"),
    writer("qwen3", head_dim=8),
    writer("gemma", head_dim=8),
    writer("gemma2", head_dim=8, sliding_window=16),
    writer("phi"),
    writer("phi3"),
    writer("falcon"),
    writer("stablelm"),
    writer(
        "mixtral", told={"narrow": True, "alone": "does not run in float64"}, num_local_experts=4, num_experts_per_tok=2
    ),
    writer("mamba", told=_UNFIT, state_size=4),
    writer("mamba2", told=_UNFIT, state_size=4, num_heads=4, head_dim=8, n_groups=1, chunk_size=4),
    writer("rwkv", attention_hidden_size=16, context_length=16, use_cache=False),
)
