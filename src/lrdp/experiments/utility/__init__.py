"""Figures 2 and 3: accuracy against ε on six tasks, compared with Opacus's accountants and no privacy at all.

Stages: sizes of the data, noise of each method, learning rates on validation data, and then all seeds on the test set.
Tuning itself is not charged, as in the paper: its runs are on seeds of their own, and ε is that of one final training.
"""

from lrdp.experiments.utility.study import Utility, study

__all__ = ["Utility", "study"]
