"""Options of Flower's own strategies, for whoever replaces one with a verified one: why not, or what to use instead.

None is silently dropped: a server that believes it has momentum or weights would otherwise never learn the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lrdp.errors import Unsupported

_OPTIMISER: Final = (
    "clients recompute the next model from this one and the sum, and a server's optimiser has a state that they lack, "
    "so its step could not be told from a forgery; use momentum or Adam at the clients, which see noised gradients only"
)
_WEIGHTS: Final = "updates count alike: weights would tell the size of each data set and let a client amplify itself"
_CHOICE: Final = "Terms(choose=...) picks each round's participants among those present"
_ROBUST: Final = "clients verify a sum, and a median or a selection is not one"
_MEASURING: Final = "Terms(metrics=...) asks for a noised count, and evaluate_fn evaluates on public data"
_NAMES: Final = "the records have fixed names"
_REASONS: Final = {
    **dict.fromkeys(("server_learning_rate", "server_momentum", "eta", "eta_l", "tau", "beta_1", "beta_2"), _OPTIMISER),
    **dict.fromkeys(("weighted_by_key", "q", "train_loss_key"), _WEIGHTS),
    **dict.fromkeys(("fraction_train", "min_train_nodes", "min_available_nodes"), _CHOICE),
    **dict.fromkeys(("num_malicious_nodes", "num_nodes_to_select", "selection_rule", "beta"), _ROBUST),
    **dict.fromkeys(("fraction_evaluate", "min_evaluate_nodes"), _MEASURING),
    **dict.fromkeys(("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"), _MEASURING),
    **dict.fromkeys(("arrayrecord_key", "configrecord_key"), _NAMES),
    **dict.fromkeys(("proximal_mu", "client_learning_rate"), "what a client minimises is the loss of its own task"),
}


def refuse_options(strategy: str, given: Mapping[str, Any]) -> None:
    """Raise Unsupported for the first of Flower's options, with its reason; TypeError for what nobody knows."""
    for name in given:
        if name not in _REASONS:
            raise TypeError(f"{strategy} has no option {name!r}.")
        raise Unsupported(f"{strategy} has no {name}: {_REASONS[name]}. Nothing was started.")
