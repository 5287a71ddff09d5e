"""Data sets and frozen public features of the paper's six tasks, and how records are shared among clients."""

from lrdp.experiments.data.partition import dealt, dirichlet
from lrdp.experiments.data.preparing import prepared
from lrdp.experiments.data.settings import DataSettings
from lrdp.experiments.data.values import Prepared, Split

__all__ = ["DataSettings", "Prepared", "Split", "dealt", "dirichlet", "prepared"]
