"""Models by name: what a study may train. A new one is a file, and a line in choosing.py.

An entry says which *form* of records it takes, how it is built, what it learns by, and which public probes the engine's
gate needs. A study names a ``Choice`` in its TOML, and makes from it what a task is made of:

>>> from pathlib import Path
>>> choice = Choice(kind="cnn")
>>> wanted = choice.wanted((1, 28, 28), 10, seed=3, data=Path("data"))
>>> model, loss, probes = choice.model.made(wanted), choice.model.loss(wanted), choice.model.probes(wanted)
>>> choice.model.form.value, trained_size(model)
('pixels', 26010)
"""

from lrdp.experiments.models.choosing import MODELS, Choice
from lrdp.experiments.models.entry import Form, ModelEntry, Wanted, trained_size

__all__ = ["MODELS", "Choice", "Form", "ModelEntry", "Wanted", "trained_size"]
