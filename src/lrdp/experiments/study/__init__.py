"""How a study is made: settings from a TOML, cells that are run once and kept, results that say how they came about.

A *study* is a list of stages. A stage names its *cells*, which are plain values that say everything their result
depends on; so a cell that was run before is not run again, and one whose settings changed is.
"""

from lrdp.experiments.study.cells import Cell, Results
from lrdp.experiments.study.conducting import Places, Study, conduct
from lrdp.experiments.study.decoding import decoded
from lrdp.experiments.study.settings import read_settings
from lrdp.experiments.study.store import CellStore

__all__ = ["Cell", "CellStore", "Places", "Results", "Study", "conduct", "decoded", "read_settings"]
