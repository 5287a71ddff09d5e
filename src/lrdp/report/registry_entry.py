"""The statement as an entry for the public registry of deployments of differential privacy.

The fields are those of OpenDP's deployments registry (github.com/opendp/deployments-registry-data, its schema of July
2026): tier 1 says what the product is, tiers 2 and 3 what protects the people in it. Policy and ledger fill most of the
last two; what only a person knows is not guessed but named.
"""

from __future__ import annotations

from typing import Any, Final

from lrdp.accounting import SizedGaussian
from lrdp.figures import AtMost
from lrdp.ledger import Summary
from lrdp.report.statement import Statement
from lrdp.version import __version__

TO_ADD: Final = {
    "deployment.basic.name": "the data product's name",
    "deployment.basic.data_curators": "who publishes it, by legal name",
    "deployment.basic.description": "what it is, briefly",
    "deployment.basic.intended_use": "what it is for",
    "deployment.basic.data_product_region": "the region that the records describe, and whose law applies",
    "deployment.basic.data_product_sector": "one of Technology, Healthcare, Education, Government, Energy, Finance",
    "deployment.basic.publication_date": "the first publication of a model, as YYYY-MM-DD",
    "deployment.implementation.justification": "why this unit, budget and noise were chosen, and by whom",
    "deployment.administrative.registry_authors": "who fills in this entry",
    "deployment.administrative.sources": "where the deployment is described",
}
"""What a person must add, each with what is asked for."""

_POST_PROCESSING: Final = (
    "Averages of the noised updates, the models made of them and everything computed from these; none reads a record."
)
_ACTORS: Final = (
    "The client's machine and its administrator are trusted with the records. The server, the other clients, the "
    "network and whoever sees a model are not: they may see every update and may work together."
)


def entry(statement: Statement) -> dict[str, Any]:
    """The entry as far as the books know it, and what is still to be added by hand."""
    summary = statement.summary
    texts = {point.key: point.text for point in statement.points}
    deployment = {
        "basic": {"data_product_type": "Machine learning model"},
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": _domain(summary),
            "unprotected_quantities": texts["uncovered"],
        },
        "privacy_loss": _privacy_loss(summary, texts),
        "deployment_model": {
            "model_name": "Federated",
            "model_name_details": texts["trust"],
            "actors": _ACTORS,
            "release_type": "Many releases",
            "release_type_details": f"{texts['budget']} {texts['renewal']}",
            "data_source_type": "Static",
            "data_source_type_details": "The budget belongs to these records; new ones need a new ledger.",
            "access_type": "Non-interactive",
            "access_type_details": "A server may choose later steps by earlier answers, within a policy; the guarantee "
            "covers that.",
        },
        "accounting": {"post_processing": _POST_PROCESSING, "composition": f"{texts['scope']} {texts['epsilon']}"},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": texts["tuning"],
            "mechanisms": " ".join(texts[key] for key in ("mechanism", "versions", "channels", "audit")),
        },
        "administrative": {"notes": f"Filled by lrdp {__version__} from its ledger. {texts['head']}"},
    }
    slug = f"{summary.client}-{summary.ledger[:8]}".lower().replace(".", "-").replace("_", "-")
    entry = {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": deployment}
    return {"entry": entry, "to_add": dict(TO_ADD)}


def _privacy_loss(summary: Summary, texts: dict[str, str]) -> dict[str, Any]:
    """For the unit as a whole, as it is guaranteed."""
    held = summary.group
    parameters = {"epsilon": float(AtMost(held.epsilon)), "delta": float(AtMost(held.delta))}
    rows, unit = summary.policy.identity.records_per_unit, summary.policy.identity.unit
    detail = f" This is for one record; ε and δ are for a {unit} with up to {rows} of them." if rows > 1 else ""
    return {
        "privacy_unit": unit,
        "privacy_unit_details": f"{texts['unit']} Neighbouring data sets: {texts['adjacency']}",
        "privacy_parameters": parameters,
        "privacy_parameters_details": texts["risk"] + detail,
    }


def _domain(summary: Summary) -> str:
    scopes = {step.scope for step in summary.history if isinstance(step, SizedGaussian)}
    return f"One client's records: {'; '.join(sorted(scopes)) or 'every data set'}."
