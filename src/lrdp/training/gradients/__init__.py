"""Per-example gradients of one parameter, in the form that is cheapest for its layer."""

from lrdp.training.gradients.convolved import Convolved
from lrdp.training.gradients.dense import Dense, multiplied_out
from lrdp.training.gradients.factored import Factored
from lrdp.training.gradients.factors import Indices, Vectors
from lrdp.training.gradients.geometry import Geometry
from lrdp.training.gradients.mixed import Mixed, combine
from lrdp.training.gradients.protocol import KEPT_BYTES, Gradient, Kept, Measured, chunks

__all__ = [
    "KEPT_BYTES",
    "Convolved",
    "Dense",
    "Factored",
    "Geometry",
    "Gradient",
    "Indices",
    "Kept",
    "Measured",
    "Mixed",
    "Vectors",
    "chunks",
    "combine",
    "multiplied_out",
]
