"""Data files of a few records in the formats of the real ones, and an encoder of two layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"word{number}" for number in range(40))]


def write_pictures(folder, train=90, test=20):
    """mnist.npz."""
    random = np.random.default_rng(7)
    sizes = {"train": train, "test": test}
    labels = {name: random.integers(0, 10, size).astype(np.uint8) for name, size in sizes.items()}
    pictures = {
        name: random.integers(0, 256, (size, 28, 28)).astype(np.uint8) // 2 + labels[name][:, None, None] * 12
        for name, size in sizes.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"x_{name}": pictures[name] for name in sizes} | {f"y_{name}": labels[name] for name in sizes}
    np.savez(folder / "mnist.npz", **arrays)


def write_sentences(folder, train=90, test=20):
    """sst2.parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(11)
    splits = ["train"] * train + ["dev"] * test + ["test"] * test
    text = [" ".join(random.choice(WORDS[4:], size=random.integers(2, 12))) for _ in splits]
    columns = {"sentence": text, "label": random.integers(0, 2, len(splits)), "split": splits}
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "sst2.parquet")


def write_encoder(folder, name="all-MiniLM-L6-v2"):
    """As transformers and tokenizers write it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    sizes: dict[str, Any] = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        BertModel(BertConfig(**sizes)).save_pretrained(folder / name)
    spoken = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    spoken.pre_tokenizer = pre_tokenizers.Whitespace()
    spoken.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    spoken.save(str(folder / name / "tokenizer.json"))
