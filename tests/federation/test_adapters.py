"""Adapters of a public model, trained together: only what is trained travels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord
from torch import nn

from lrdp.federation import InProcessGrid, Node, Terms, VerifiedAverage, found, private_client_app
from lrdp.federation.wire.layout import Layout
from lrdp.training import NamedCrossEntropy, Padded

from .worlds import RECORDS, TRAINING, hospitals

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


def adapted() -> nn.Module:
    """The same public model in every hospital, with adapters that the server's weights are written into."""
    settings = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = transformers.BertConfig(**settings, intermediate_size=8, max_position_embeddings=8)
        lora = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], r=2)
        model: nn.Module = peft.get_peft_model(transformers.BertForSequenceClassification(config).eval(), lora)
    return model


def sentences(settings: Mapping[str, Any]) -> Padded:
    chance = torch.Generator().manual_seed(int(settings["partition-id"]))
    labels = torch.randint(0, 2, (RECORDS,), generator=chance).tolist()
    rows = [{"input_ids": [3 + label] * (1 + label), "label": label} for label in labels]
    return Padded(rows, max_length=4, fill={"input_ids": 0}, keep=["label"], attention="attention_mask")


def trained(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: values.detach() for name, values in model.named_parameters() if values.requires_grad}


def test_only_what_is_trained_travels(tmp_path: Path) -> None:
    names, model = hospitals(3), adapted()
    ours = found(tmp_path / "consortium", dict.fromkeys(names, TRAINING))
    app = private_client_app(
        policy=str(ours.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=adapted,
        dataset=sentences,
        loss=NamedCrossEntropy(classes=2),
    )
    grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number in range(3)})
    terms = Terms(identity=ours.server_identity(), registry=ours.registry(), folder=ours.server_folder)
    first = trained(model)
    result = VerifiedAverage(terms).start(grid, ArrayRecord(first), num_rounds=1, timeout=60)
    found_arrays = {name: torch.from_numpy(array.numpy().copy()) for name, array in result.arrays.items()}
    assert set(found_arrays) == set(first)
    assert all("lora_" in name or "classifier" in name for name in found_arrays)
    assert all(not torch.equal(found_arrays[name], first[name]) for name in first), "each of them was trained"
    assert Layout.of_model(model).size == sum(values.numel() for values in first.values())
    assert Layout.of_model(model).size < sum(values.numel() for values in model.parameters()) / 2
