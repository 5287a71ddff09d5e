"""`lrdp check`, as a command on its own."""

import json
import re
import sys

import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from lrdp.cli import app
from lrdp.commands.training import check
from lrdp.errors import InvalidInput
from lrdp.training import PublicConstants, Sgd, Task, TensorRecords, trial

MODELS = """
import torch
from torch import nn
good = nn.Sequential(nn.Linear(2, 3), nn.GroupNorm(1, 3))
class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
from torch.nn import functional
from lrdp.federation import LocalTask
from lrdp.training import Constant, CrossEntropy, PublicConstants, Sgd, Task, TensorRecords
CONSTANTS = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1))
def records(count=9): return TensorRecords(torch.rand(count, 2), torch.zeros(count, dtype=torch.int64))
def trained(model): return Task(model=model, dataset=records(), loss=CrossEntropy(classes=3), constants=CONSTANTS)
class Branching(nn.Linear):
    def forward(self, inputs): return super().forward(inputs if inputs.max() < 9 else inputs / 2)
class Centred(nn.Linear):
    def forward(self, inputs): return super().forward(inputs - inputs.mean(0))
together = trained(good)
def alone(): return trained(Branching(2, 3))
mixing = trained(Centred(2, 3))
batch_norm = trained(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
def stored(given): return records(given["count"])
local = LocalTask(model=lambda: nn.Linear(2, 3), dataset=stored, loss=functional.cross_entropy)
by_unit = LocalTask(
    model=lambda: nn.Linear(2, 3), dataset=stored, loss=functional.cross_entropy,
    units=lambda rows: [row % 4 for row in range(len(rows))],
)
def needs(argument): ...
def number(): return 3
"""
BAD_NAMES = ("nothing", "needs", "number")


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "models_under_check.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(check)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_a_good_model_is_shown_with_its_rules(run):
    result = run("models_under_check:good")
    assert result.exit_code == 0
    assert "linear" in result.stdout
    assert "No layer stands in the way" in result.stdout
    assert "A model alone was not run" in result.stdout
    assert "99.22% of the clip norm" in " ".join(result.stdout.split())
    assert json.loads(run("models_under_check:good", "--json").stdout)["headroom"] == 2.0**-7


def test_a_bad_model_ends_with_the_code_of_bad_input_and_the_fix(run):
    result = run("models_under_check:Bad", "--json")
    assert result.exit_code == 2
    printed = json.loads(result.stdout)
    assert not printed["trainable"]
    assert "replace_batch_norm" in printed["layers"][0]["refused"]


def test_a_fix_is_never_cut_off_for_a_narrow_screen(run):
    shown = run("models_under_check:Bad").stdout
    rows = (line.split("│")[-2].strip() for line in shown.splitlines() if line.count("│") > 1)
    assert "lrdp.training.replace_batch_norm(" in "".join(rows)
    assert "…" not in shown


@pytest.mark.parametrize("name", ["nonsense", "no_such_module:Model", *(f"models_under_check:{n}" for n in BAD_NAMES)])
def test_names_that_lead_to_no_model_are_refused(run, name):
    assert isinstance(run(name).exception, InvalidInput)


def test_a_module_that_is_not_there_is_said_with_where_it_was_looked_for(run, tmp_path):
    assert f"it is looked for in {tmp_path} first" in str(run("pilot_task:task").exception)


def test_a_task_is_tried_and_measured_beside_plain_training(run):
    result = run("models_under_check:together", "--rows", "4")
    assert result.exit_code == 0
    assert "Trains privately as it is" in result.stdout
    assert "Its examples run together." in result.stdout
    assert "times plain SGD's" in result.stdout
    tried = json.loads(run("models_under_check:together", "--json").stdout)["task"]
    assert tried["rows"] == 32
    assert min(tried["private_seconds"], tried["plain_seconds"], tried["private_bytes"], tried["plain_bytes"]) > 0


def test_a_task_whose_examples_run_alone_says_why(run):
    assert "one by one" in run("models_under_check:alone").stdout
    tried = json.loads(run("models_under_check:alone", "--json").stdout)["task"]
    assert "Branching, models_under_check.py line" in tried["alone"]


@pytest.mark.parametrize(("name", "words"), [("mixing", "they meet in Centred"), ("batch_norm", "replace_batch_norm")])
def test_a_task_that_an_update_would_refuse_is_not_called_fine(run, name, words):
    result = run(f"models_under_check:{name}", "--json")
    assert result.exit_code == 2
    assert not json.loads(result.stdout)["trainable"]
    assert words in result.stdout
    shown = run(f"models_under_check:{name}").stdout
    assert "Does not train privately yet" in shown
    assert "was not run" not in shown


def test_a_clients_own_task_is_checked_with_its_settings(run):
    assert json.loads(run("models_under_check:local", "--set", "count=5", "--json").stdout)["trainable"]
    problem = run("models_under_check:local").exception
    assert isinstance(problem, InvalidInput)
    assert "KeyError: 'count'" in str(problem)


# ---------------------------------------- as Flower's users write it
FLOWERS = """
from functools import partial
from pathlib import Path
import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from lrdp.federation import LocalTask

class Read:
    \"\"\"Says which records were read, by writing it down.\"\"\"
    def __init__(self, make): self.make = make
    def __call__(self, settings): self.log = Path(settings["data"]); return self
    def __len__(self): return 40
    def __getitem__(self, number):
        with self.log.open("a") as file: file.write(f"{number}\\n")
        return self.make(number)

dicts = Read(lambda number: {"img": torch.full((4,), float(number)), "label": number % 2})
wide = Read(lambda number: (np.full(4, number, dtype=np.float64), float(number)))
def net(): return nn.Linear(4, 2)
def scalar(): return nn.Linear(4, 1)
huggingface = LocalTask(model=net, dataset=dicts, loss=F.cross_entropy)
float64 = LocalTask(model=scalar, dataset=wide, loss=nn.MSELoss())
sgd = LocalTask(model=net, dataset=dicts, loss=nn.CrossEntropyLoss(), optimiser=partial(optim.SGD, lr=0.5))
from lrdp.federation import private_client_app
app = private_client_app(model=net, dataset=dicts, loss=F.cross_entropy, optimizer=optim.Adam)
def instance():
    return LocalTask(model=net, dataset=dicts, loss=F.cross_entropy, optimiser=optim.SGD(net().parameters(), lr=0.5))
def weighted():
    return LocalTask(model=net, dataset=dicts, loss=nn.CrossEntropyLoss(weight=torch.ones(2)))
def mean(model, batch): return F.cross_entropy(model(batch["img"]), batch["label"])
averaged = LocalTask(model=net, dataset=dicts, loss=mean)
def mine(model, batch): return (model(batch[0])[:, 0] - batch[1]) ** 2
own = LocalTask(model=scalar, dataset=wide, loss=mine)
outputs = LocalTask(model=net, dataset=dicts, loss=lambda outputs, targets: (outputs - targets) ** 2)
def made(): return LocalTask(model=net(), dataset=dicts, loss=F.cross_entropy)
def load_data(partition_id, num_partitions): return dicts
def flowers(): return LocalTask(model=net, dataset=load_data, loss=F.cross_entropy)
def nothing(): return LocalTask(model=net, dataset=lambda: dicts, loss=F.cross_entropy)
extra = Read(lambda n: {"img": torch.ones(4), "idx": n, "label": 1})
numbered = LocalTask(model=net, dataset=extra, loss=F.cross_entropy)
labelled = LocalTask(model=net, dataset=Read(lambda n: {"img": torch.ones(4), "diagnosis": 1}), loss=F.cross_entropy)
holes = Read(lambda n: {"img": torch.full((4,), float("nan") if n else 1.0), "label": 1})
missing = LocalTask(model=net, dataset=holes, loss=F.cross_entropy)
from_one = LocalTask(
    model=net, dataset=Read(lambda n: {"img": torch.ones(4), "label": 1 + n % 3 * 90}), loss=F.cross_entropy
)
"""


@pytest.fixture
def tried(run, tmp_path):
    (tmp_path / "flower_task.py").write_text(FLOWERS, encoding="utf-8")
    log = tmp_path / "read.txt"
    return lambda name, *more: run("--task", f"flower_task:{name}", "--data", str(log), "--rows", "4", *more)


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("huggingface", ("img goes to the model as it is, and label is", "torch's cross_entropy of each example")),
        ("float64", ("rounded to float32", "torch's MSELoss of each example")),
        ("app", ("The optimiser is Adam(lr=0.001",)),
        ("sgd", ("The optimiser is Sgd(lr=0.5", "lr in train_config")),
    ],
)
def test_what_flower_s_users_write_works_and_is_told_in_sentences(tried, name, sentences, tmp_path):
    result = tried(name)
    shown = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "Trains privately as it is" in shown
    for sentence in (*sentences, "A server starts from the 2 trained parameters", "rows at a time"):
        assert sentence in shown
    assert "the loss of a few were looked at. Nothing was charged." in shown
    read = {int(line) for line in (tmp_path / "read.txt").read_text().split()}
    assert read == set(range(40)), "of more than 64 a part"
    assert "no finite loss" not in shown


@pytest.mark.parametrize("name", ["missing", "from_one"])
def test_records_that_would_add_nothing_are_told_to_their_owner_before_they_cost(tried, name):
    shown = " ".join(tried(name).stdout.split())
    assert re.search(r"Beware: \d+ of \d+ records, taken evenly, have no finite loss with the first", shown), shown
    assert "no finite loss" in json.loads(tried(name, "--json").stdout)["records"]


@pytest.mark.parametrize(("holes", "said"), [(range(900, 1000), "Beware: 6 of 64 records"), (range(1000), "64 of 64")])
def test_records_without_a_loss_are_found_wherever_they_lie(tmp_path, monkeypatch, holes, said):
    """And a data set that has none is refused: all of it would be paid for, and nothing learnt."""
    lines = (
        "import torch",
        "from torch.nn import Linear, functional",
        "from lrdp.federation import LocalTask",
    )
    inputs = f"torch.tensor([[float('nan') if row in {holes!r} else 1.0] for row in range(1000)])"
    data = f"lambda _: TensorRecords({inputs}, torch.zeros(1000, dtype=torch.int64))"
    made = f"task = LocalTask(model=lambda: Linear(1, 2), dataset={data}, loss=functional.cross_entropy)"
    text = "\n".join([*lines, "from lrdp.training import TensorRecords", made])
    (tmp_path / "records_with_holes.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "--task", "records_with_holes:task"])
    sys.modules.pop("records_with_holes")
    assert said in " ".join(f"{result.stdout} {result.exception}".split())
    assert (result.exit_code == 0) is (len(holes) < 1000)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("instance", "write Sgd(lr=0.5, momentum=0.0, weight_decay=0.0, over_rounds=False)"),
        ("weighted", "divides by the labels of the whole batch"),
        ("averaged", "one value per example, shape"),
        ("own", "records hold float64 and the weights float32"),
        ("outputs", "a loss is called as loss(model, batch)"),
        ("made", "model must be what makes a model"),
        ("labelled", "'img', 'diagnosis'"),
        ("flowers", "load_data(partition_id, num_partitions) cannot be: wrap it, as in dataset=lambda settings: load"),
        ("nothing", "dataset is called with one argument, a node's settings"),
        ("numbered", "leave out every other field"),
    ],
)
def test_what_does_not_work_ends_in_one_sentence_with_what_to_write(tried, name, words):
    result = tried(name, "--json")
    said = json.loads(result.stdout)["refused"] if result.stdout else str(result.exception)
    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, InvalidInput | SystemExit)
    assert words in said
    assert "Traceback" not in said


def test_the_plan_of_memory_and_what_was_understood_are_in_the_json(tried):
    found = json.loads(tried("huggingface", "--json").stdout)
    assert found["task"]["memory"]["micro_batch"] == 4
    assert found["task"]["memory"]["peak_bytes"] >= found["task"]["private_bytes"] > 0
    assert len(found["understood"]) == 4


def test_a_task_with_units_is_checked_with_the_policy_s_most_rows(run):
    asked = ("--task", "models_under_check:by_unit", "--set", "count=12", "--rows", "3")
    result = run(*asked, "--rows-per-unit", "5")
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "A record is a unit of at most 5 rows, which are drawn and clipped together." in told
    assert "Its examples run together." in told
    for missing in (asked, ("--task", "models_under_check:local", "--set", "count=9", "--rows-per-unit", "5")):
        with pytest.raises(InvalidInput, match="--rows-per-unit"):
            raise run(*missing).exception


def test_one_name_is_given_and_not_two_or_none(run):
    for words in ((), ("models_under_check:good", "--task", "models_under_check:good")):
        assert isinstance(run(*words).exception, InvalidInput)


def test_the_step_that_is_tried_has_records_in_it_and_none_of_the_client_s():
    """Else its cost would be that of an empty step."""
    records = TensorRecords(torch.full((50, 2), 7.0), torch.full((50,), 2))
    seen = []

    def loss(model, batch):
        seen.append(batch[0].detach().clone())
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    constants = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1))
    found = trial(Task(model=nn.Linear(2, 3), dataset=records, loss=loss, constants=constants), 16)
    assert found.rows == 16
    steps = [batch for batch in seen if len(batch) == 16]
    assert len(steps) >= 3
    assert all(not bool((batch == 7.0).all(1).any()) for batch in steps if bool(torch.isfinite(batch).all()))
    different = [len({tuple(row.tolist()) for row in batch}) for batch in steps[-2:]]
    assert max(different) == 3, "the three that it was checked with"


def test_code_that_cannot_be_imported_says_so_in_a_sentence(run, tmp_path):
    (tmp_path / "broken_task.py").write_text("1 / 0\n", encoding="utf-8")
    problem = run("--task", "broken_task:task").exception
    assert isinstance(problem, InvalidInput)
    assert "ZeroDivisionError" in str(problem)


def test_a_module_that_is_a_program_and_a_model_that_is_none_are_named(run, tmp_path):
    (tmp_path / "program.py").write_text("import sys; sys.exit(7)", encoding="utf-8")
    assert "program ends the program when it is imported (sys.exit(7))" in str(run("program:task").exception)
    made = "from torch import nn\nfrom lrdp.federation import LocalTask\n"
    made += "task = LocalTask(model=lambda: (nn.Linear(4, 2), 'tokens'), dataset=lambda s: [1], loss=nn.MSELoss())\n"
    (tmp_path / "two_things.py").write_text(made, encoding="utf-8")
    assert "must make a torch module alone, got tuple" in str(run("--task", "two_things:task").exception)
