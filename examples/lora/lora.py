"""Private LoRA: adapters of a public language model learn from private sentences, within a budget.

    lrdp init --folder budget --dataset-size 68000 --batch-size 192 --rounds 1 --local-steps 12 --delta 1e-6
    python examples/lora/lora.py MODEL-FOLDER SENTENCES.parquet budget

The model's folder is one of transformers'; the file has the columns ``sentence``, ``label`` (0 or 1) and ``split``.
"""

import argparse
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from lrdp.figures import AtLeast
from lrdp.ledger import ReceivedModel, Request, read_policy
from lrdp.ledger.policy import MechanismRule
from lrdp.ledger.starting import Home
from lrdp.training import (
    Adam,
    Execution,
    NamedCrossEntropy,
    Padded,
    PublicConstants,
    Task,
    check_gradients,
    check_records,
    private_update,
    progress_bar,
)

# Public: longer sentences are cut, shorter ones filled up, each by itself.
FORM = {"max_length": 32, "fill": {"input_ids": 0}, "keep": ["label"], "attention": "attention_mask"}


def tokens(model_folder: Path, sentences: Path, split: str) -> Dataset:
    """One split in numbers. In memory: elsewhere `datasets` would keep a copy of private records in its cache."""
    tokenise = AutoTokenizer.from_pretrained(model_folder)
    table = pq.read_table(sentences)
    rows = Dataset(table.filter(pc.equal(table["split"], split)).combine_chunks())
    return rows.map(lambda some: {"input_ids": tokenise(some["sentence"])["input_ids"]}, batched=True)


class Classifier(nn.Module):
    """Two classes from the mean over a sentence's own places."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(encoder.config.hidden_size, 2)
        nn.init.zeros_(self.head.weight)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        own = attention_mask[:, 0, 0, :, None].to(states.dtype)
        logits: Tensor = self.head((states * own).sum(1) / own.sum(1).clamp(min=1))
        return logits


def request(model: nn.Module, rule: MechanismRule) -> Request:
    """As many steps as the policy allows in one round, asked for by the client itself."""
    trained = [values.detach().flatten() for values in model.parameters() if values.requires_grad]
    weights = torch.cat(trained).numpy()
    digest = sha256(weights.tobytes()).hexdigest()
    received = ReceivedModel(digest=digest, size=weights.nbytes, largest_weight=float(abs(weights).max()))
    return Request(
        run="lora",
        round=1,
        model=received,
        config_digest=sha256(b"").hexdigest(),
        mechanism=rule.costliest,
        steps=rule.max_steps_per_round,
        clip_norm=rule.clip_norm,
    )


def train(model_folder: Path, sentences: Path, budget: Path, rate: float = 2e-2) -> nn.Module:
    """The adapted model, after one charge's private steps."""
    encoder = AutoModel.from_pretrained(model_folder, dtype=torch.float32, add_pooling_layer=False)
    last = [encoder.config.num_hidden_layers - 2, encoder.config.num_hidden_layers - 1]
    adapters = LoraConfig(target_modules=["query", "value"], layers_to_transform=last, r=2, lora_alpha=0.5)
    private = tokens(model_folder, sentences, "train")
    home, loss = Home(folder=budget), NamedCrossEntropy(classes=2)
    rule = read_policy(home.policy).mechanism
    constants = PublicConstants(clip_norm=rule.clip_norm, optimiser=Adam(lr=rate))

    with home.open() as ledger, progress_bar() as observe:
        # Private LoRA in five lines. Dead adapters are refused in the fourth, before anything is charged.
        model = Classifier(get_peft_model(encoder.eval(), adapters))
        records = check_records(Padded(private, **FORM), loss)
        task = Task(model=model, dataset=records, loss=loss, constants=constants, execution=Execution(observe=observe))
        task = replace(task, checked=check_gradients(rule.costliest, task))
        update = private_update(ledger.charge(request(model, rule)), task)

    with torch.no_grad():
        for name, change in update.delta.items():
            model.get_parameter(name).add_(change)
    return model


@torch.no_grad()
def accuracy(model: nn.Module, public: Dataset) -> float:
    """On sentences that belong to nobody."""
    records = Padded(public, **FORM)
    right = 0
    for number in range(len(records)):
        record = {name: values[None] for name, values in records[number].items()}
        label = record.pop("label")
        right += int(model.eval()(**record).argmax(1) == label)
    return right / len(records)


def main() -> None:
    """Train, and say how well it went."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "sentences", "budget"):
        asked.add_argument(name, type=Path)
    given = asked.parse_args()
    model = train(given.model, given.sentences, given.budget)
    share = accuracy(model, tokens(given.model, given.sentences, "test"))
    print(f"accuracy {AtLeast(share):.1%}")  # noqa: T201


if __name__ == "__main__":
    main()
