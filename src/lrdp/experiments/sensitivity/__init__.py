"""Sensitivity: what a federation's parameters do to accuracy and noise, and what clients that come and go pay.

Stages: sizes of the data, noise, a crowd whose rounds are counted, a small federation with real ledgers, learning rates
at the base on validation data, and then each parameter varied around the base with all seeds.
"""

from lrdp.experiments.sensitivity.study import Sensitivity, study

__all__ = ["Sensitivity", "study"]
