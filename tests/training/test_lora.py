"""Private LoRA on language models: exact, paid for, and refused before the charge where an adapter is dead."""

from __future__ import annotations

import os
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lrdp.accounting import Budget, FixedSizeGaussian, Training
from lrdp.errors import Unsupported
from lrdp.ledger.policy import Holder
from lrdp.ledger.starting import Home, open_budget, write_policy
from lrdp.training import NamedCrossEntropy, Padded, check_gradients
from training.cases import run, task
from training.truth import clipped, gradients_one_by_one

# The first import of each warns of what it will drop one day.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("LRDP_DATA", ROOT.parent / "shared" / "data"))
EXAMPLE = ROOT / "examples" / "lora" / "lora.py"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "fine", "nice", "bad", "poor", "sad", "it", "is", "very"]


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def tiny(kind="BertForSequenceClassification", **changes):
    """A BERT of two layers, without chance in it."""
    settings = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings |= {"intermediate_size": 24, "max_position_embeddings": 32}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return getattr(transformers, kind)(transformers.BertConfig(**settings | changes)).eval()


def sentences(count=80):
    chance = torch.Generator().manual_seed(7)
    lengths = torch.randint(0, 9, (count,), generator=chance).tolist()
    labels = torch.randint(0, 2, (count,), generator=chance).tolist()
    told = [5 + 3 * label for label in labels]
    others = [torch.randint(11, len(WORDS), (length,), generator=chance).tolist() for length in lengths]
    ids = [[2, word, *more, 3] for word, more in zip(told, others, strict=True)]
    text = [" ".join(WORDS[one] for one in row[1:-1]) for row in ids]
    return {"input_ids": ids, "label": labels, "sentence": text}


def records(**masks):
    rows = datasets.Dataset.from_dict(sentences())
    return Padded(rows, max_length=8, fill={"input_ids": 0}, keep=["label"], **masks or {"attention": "attention_mask"})


def adapted(config, base=None):
    return peft.get_peft_model(base or tiny(), config)


def lora(**changes):
    given = {"task_type": "SEQ_CLS", "target_modules": ["query", "value"], "r": 2, "lora_dropout": 0.0}
    return peft.LoraConfig(**given | changes)


def of(model, **changes):
    return task(**{"model": model, "dataset": records(), "loss": NamedCrossEntropy(classes=2)} | changes)


STEP = FixedSizeGaussian(dataset_size=70, batch_size=9, noise_multiplier=1e-6)


ADAPTERS = {
    "lora": lora,
    "rslora": lambda: lora(use_rslora=True),
    "dora": lambda: lora(use_dora=True),
    "ia3": lambda: peft.IA3Config(
        task_type="SEQ_CLS", target_modules=["key", "value", "output.dense"], feedforward_modules=["output.dense"]
    ),
    "adalora": lambda: peft.AdaLoraConfig(
        task_type="SEQ_CLS", target_modules=["query"], init_r=4, target_r=2, total_step=9
    ),
    "vera": lambda: peft.VeraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], r=4),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_move_as_clipped_gradients_one_by_one_say(name):
    """They alone: the frozen weights are neither moved nor sent. Those that begin at zero are not taken for dead."""
    model = adapted(ADAPTERS[name]())
    given = of(model)
    checked = check_gradients(STEP, given)
    assert bool(checked.alone) == (name not in {"lora", "rslora"}), checked.alone
    delta = run(replace(STEP, dataset_size=80, batch_size=79), replace(given, checked=checked))
    assert set(delta) == {name for name, values in model.named_parameters() if values.requires_grad}
    rows = [given.dataset[number] for number in range(80)]
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    each = clipped(gradients_one_by_one(model, given.loss, batch, 80), 0.7)
    found = torch.cat([change.flatten() for change in delta.values()]).double() * -79 / 0.5
    without = each.sum(0) - each  # one of the eighty was not drawn
    assert float((without - found).norm(dim=1).min()) <= 0.012 * 0.7 * 79


def test_of_a_plain_mask_the_model_is_asked_not_to_look_whether_anything_is_filled_up():
    assert not check_gradients(STEP, of(adapted(lora()), dataset=records(mask="attention_mask"))).alone


# -------------------------------------------------------------------------------------------------------- dead adapters
class Bare(torch.nn.Module):
    """A head of its own, past the model's pooling."""

    def __init__(self, config):
        super().__init__()
        self.inner, self.head = peft.get_peft_model(tiny("BertModel"), config), torch.nn.Linear(16, 2)

    def forward(self, **inputs):
        return self.head(self.inner(**inputs).last_hidden_state[:, 0])


def unused():
    """An adapter on the pooling layer, whose output nobody looks at."""
    return Bare(lora(task_type=None, target_modules=["query", "pooler.dense"]))


def switched_off():
    model = adapted(lora())
    model.base_model.disable_adapter_layers()
    for name, values in model.named_parameters():
        values.requires_grad_("lora_" in name or "classifier" in name)
    return model


def beside_the_active_one():
    """A second adapter that is trained by mistake: only one of them is in use."""
    model = adapted(lora())
    model.add_adapter("second", lora())
    for name, values in model.named_parameters():
        values.requires_grad_("lora_" in name or "classifier" in name)
    return model


DEAD = {
    unused: r"pooler\.dense\.lora_A",
    switched_off: r"layer\.0\.attention\.self\.query\.lora_A",
    beside_the_active_one: r"lora_A\.second",
}


def budget(folder):
    home = Home(folder=folder)
    training = Training(
        dataset_size=70, batch_size=9, rounds=1, local_steps=20, budget=Budget(epsilon=30.0, delta=1e-3)
    )
    write_policy(home, Holder(client="clinic", unit="patient", max_rows_per_unit=1), training)
    open_budget(home, 1).close()
    return home


@pytest.mark.parametrize("make", DEAD, ids=lambda make: make.__name__)
def test_a_dead_adapter_is_refused_by_name_with_the_fix_and_nothing_is_charged(make, tmp_path):
    home = budget(tmp_path)
    with home.open() as ledger:
        with pytest.raises(Unsupported, match=rf"get no gradient .*: .*{DEAD[make]}.*freeze them"):
            check_gradients(STEP, of(make()))
        assert ledger.books.charges.steps == 0
        assert ledger.answer().spent.epsilon == 0.0


# ---------------------------------------------------------------------------------------------------------- the example
def made_model(folder):
    tiny("BertModel").save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_the_example_trains_adapters_and_its_one_charge_is_in_the_books(tmp_path):
    table = sentences()
    splits = datasets.Dataset.from_dict({**table, "split": ["train"] * 75 + ["dev"] * 5}).remove_columns("input_ids")
    splits.to_parquet(tmp_path / "sentences.parquet")
    (tmp_path / "model").mkdir()
    example, home = runpy.run_path(str(EXAMPLE)), budget(tmp_path / "budget")
    model = example["train"](made_model(tmp_path / "model"), tmp_path / "sentences.parquet", home.folder)
    assert any(bool(values.any()) for name, values in model.named_parameters() if "lora_B" in name)
    with home.open() as ledger:
        assert ledger.books.charges.steps == 20
    public = example["tokens"](tmp_path / "model", tmp_path / "sentences.parquet", "dev")
    assert 0.0 <= example["accuracy"](model, public) <= 1.0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not (DATA / "all-MiniLM-L6-v2").is_dir(), reason="LRDP_DATA names no folder with the model")
def test_minilm_with_adapters_trains_together_within_its_budget(tmp_path):
    example, home = runpy.run_path(str(EXAMPLE)), Home(folder=tmp_path)
    training = Training(
        dataset_size=67_000, batch_size=64, rounds=1, local_steps=3, budget=Budget(epsilon=8.0, delta=1e-6)
    )
    write_policy(home, Holder(client="clinic", unit="patient", max_rows_per_unit=1), training)
    open_budget(home, 1).close()
    model = example["train"](DATA / "all-MiniLM-L6-v2", DATA / "sst2.parquet", tmp_path)
    adapters = [values for name, values in model.named_parameters() if "lora_B" in name]
    assert len(adapters) == 4
    assert all(bool(values.any()) for values in adapters)
    with home.open() as ledger:
        assert 0.0 < ledger.answer().spent.epsilon <= 8.0
