"""The entry for the public registry: its fields are the registry's, its figures the guarantee's, nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger.worlds import World, policy, request, round_trip
from lrdp.ledger.summary import summarize
from lrdp.report.registry_entry import TO_ADD, entry
from lrdp.report.statement import Statement

FIELDS = {
    "basic": "name data_curators intended_use data_product_type data_product_region description publication_date "
    "data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type "
    "data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors",
}
"""Every field that the registry's schema knows; it allows no other."""
CHOICES = {
    ("basic", "data_product_type"): "Machine learning model",
    ("dp_variant", "variant_name"): "Approximate DP",
    ("deployment_model", "model_name"): "Federated",
    ("deployment_model", "release_type"): "Many releases",
    ("deployment_model", "data_source_type"): "Static",
    ("deployment_model", "access_type"): "Non-interactive",
}


def made(world: World) -> tuple[Statement, dict[str, Any]]:
    with world.create() as ledger:
        round_trip(ledger, request())
        statement = Statement(summary=summarize(ledger.books), head=ledger.head())
    return statement, json.loads(json.dumps(entry(statement), allow_nan=False))


def test_every_field_of_the_schema_is_filled_or_named_as_to_be_added_and_no_other(tmp_path: Path) -> None:
    _, found = made(World(folder=tmp_path))
    deployment = found["entry"]["deployment"]
    filled = {f"deployment.{part}.{field}" for part, fields in deployment.items() for field in fields}
    known = {f"deployment.{part}.{field}" for part, fields in FIELDS.items() for field in fields.split()}
    assert filled | set(found["to_add"]) == known
    assert not filled & set(found["to_add"])
    assert found["to_add"] == TO_ADD
    assert set(found["entry"]) == {"url_slug", "status", "tier", "deployment"}
    assert all(deployment[part][field] == choice for (part, field), choice in CHOICES.items())


@pytest.mark.parametrize("rows", ["1", "3"])
def test_the_parameters_are_those_guaranteed_to_the_unit_as_a_whole(tmp_path: Path, rows: str) -> None:
    statement, found = made(World(folder=tmp_path, rules=policy(max_rows_per_unit=rows)))
    held = statement.summary.group
    loss = found["entry"]["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": held.epsilon, "delta": held.delta}
    assert loss["privacy_unit"] == statement.summary.policy.identity.unit
    assert "with and without one record" in loss["privacy_unit_details"]


def test_mechanism_and_head_are_in_the_entry(tmp_path: Path) -> None:
    statement, found = made(World(folder=tmp_path))
    deployment = found["entry"]["deployment"]
    assert "fixed-size sampling, σ = " in deployment["implementation"]["mechanisms"]
    assert statement.summary.digest in deployment["administrative"]["notes"]
    assert "at least" in deployment["dp_variant"]["data_domain"]
