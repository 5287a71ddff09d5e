"""Patients become numbers one by one, by public constants; each hospital is judged on records it did not train on."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from experiments.small_hospitals import SIZES, write_heart
from lrdp.errors import InvalidInput
from lrdp.experiments.hospitals.cohorts import CohortSettings, CohortSource, OutcomeColumn, cohort, for_training
from lrdp.experiments.hospitals.columns import Column, features
from lrdp.experiments.hospitals.metrics import area, concordance
from lrdp.experiments.hospitals.outcomes import Hazard, HowSoon, network

STAYS = CohortSource(
    file="stays.parquet",
    outcome=OutcomeColumn(column="died"),
    columns={"pulse": Column(middle=80, spread=20)},
    patient="patient",
    order="stay",
)


def heart(folder):
    columns = {"age": Column(middle=55, spread=10), "oldpeak": Column(indicator=True), "cp": Column(choices=(1.0, 3.0))}
    source = CohortSource(file="heart_disease_uci4.parquet", outcome=OutcomeColumn(column="target"), columns=columns)
    return cohort(CohortSettings(source=source, site="hospital", group="", least=3), folder)


def test_a_patients_numbers_do_not_depend_on_any_other_patient(tmp_path):
    write_heart(tmp_path / "one")
    write_heart(tmp_path / "other", changed=99.0)
    one, other = heart(tmp_path / "one"), heart(tmp_path / "other")
    assert (one.inputs[1:] == other.inputs[1:]).all()
    assert (one.inputs[0] != other.inputs[0]).any()


def test_control_a_normaliser_that_is_fitted_moves_everybody(tmp_path):
    write_heart(tmp_path / "one")
    write_heart(tmp_path / "other", changed=99.0)
    one, other = (heart(tmp_path / name).inputs for name in ("one", "other"))
    assert not np.allclose((one - one.mean(0))[1:], (other - other.mean(0))[1:], atol=1e-6)


def test_columns_by_hand():
    table = {"pulse": np.array([80.0, 1e9, np.nan, 0.0]), "kind": np.array([1.0, 3.0, np.nan, 2.0])}
    columns = {
        "pulse": Column(middle=80, spread=20, missing=(0.0,), indicator=True),
        "kind": Column(choices=(1.0, 3.0)),
    }
    expected = np.array([[0, 0, 1, 0], [2, 0, 0, 1], [0, 1, 0, 0], [0, 1, 0, 0]]) / 2
    assert features(columns, table).tolist() == expected.tolist()


def test_no_record_is_longer_than_two():
    wide = {str(number): Column() for number in range(50)}
    table = {str(number): np.array([2.0, 0.0]) for number in range(50)}
    assert np.linalg.norm(features(wide, table), axis=1).tolist() == pytest.approx([2.0, 0.0])


def test_of_a_patients_stays_in_a_hospital_the_first_is_taken(tmp_path):
    rows = [("a", "x", 9, 100.0, 1), ("a", "x", 2, 60.0, 0), ("b", "x", 3, 80.0, 1), ("a", "y", 5, 80.0, 0)]
    names = ("patient", "site", "stay", "pulse", "died")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), tmp_path / STAYS.file)
    found = cohort(CohortSettings(source=STAYS, site="site", group="", least=1), tmp_path)
    assert sorted(zip(found.sites, found.inputs[:, 0].tolist(), found.happened.tolist(), strict=True)) == [
        ("x", -0.5, False),
        ("x", 0.0, True),
        ("y", 0.0, False),
    ]


def test_parts_are_disjoint_and_of_the_stated_size_in_each_hospital(tmp_path):
    write_heart(tmp_path)
    training, judging = heart(tmp_path).parted(7)
    assert {name: int((training.sites == name).sum()) for name in SIZES} == {
        name: for_training(count) for name, count in SIZES.items()
    }
    both = np.vstack([training.inputs, judging.inputs])
    assert len(both) == sum(SIZES.values())
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, heart(tmp_path).inputs.tolist()))


def test_a_missing_file_and_a_missing_column_are_sentences(tmp_path):
    with pytest.raises(InvalidInput, match=r"heart_disease_uci4\.parquet cannot be read .* --data-dir"):
        heart(tmp_path)
    (tmp_path / "heart_disease_uci4.parquet").write_bytes(b"PAR1 half of it")
    with pytest.raises(InvalidInput, match="cannot be read"):
        heart(tmp_path)
    pq.write_table(pa.table({"hospital": ["a"], "target": [1]}), tmp_path / "heart_disease_uci4.parquet")
    with pytest.raises(InvalidInput, match="lacks the column 'age'"):
        heart(tmp_path)


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=40))
def test_the_area_is_scikit_learns(rows):
    happened, scores = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    found = area(happened, scores)
    if happened.all() or not happened.any():
        assert math.isnan(found)
    else:
        assert found == pytest.approx(roc_auc_score(happened, scores))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(-3, 3)), min_size=2, max_size=25))
def test_concordance_pair_by_pair(rows):
    wins = pairs = 0.0
    for happened, day, score in rows:
        for _, other_day, other_score in rows:
            if happened and day < other_day:
                pairs += 1
                wins += 1.0 if score > other_score else 0.5 if score == other_score else 0.0
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    found = concordance(columns[0].astype(bool), columns[1].astype(float), columns[2].astype(float))
    assert math.isnan(found) if not pairs else found == pytest.approx(wins / pairs)


def survivors(tmp_path, days, died):
    table = {"E": died, "T": days, "center": [0] * len(days), "age": [50.0 + day / 100 for day in days]}
    pq.write_table(pa.table(table), tmp_path / "survival.parquet")
    outcome = OutcomeColumn(column="E", days="T", until=(10.0, 20.0, 40.0))
    source = CohortSource(file="survival.parquet", outcome=outcome, columns={"age": Column(middle=50, spread=10)})
    return cohort(CohortSettings(source=source, site="center", group="", least=1), tmp_path)


def test_the_hazards_loss_is_the_likelihood_of_each_interval(tmp_path):
    """By hand: whoever is seen at an interval's end survived it, whoever dies in it did not, and nothing follows."""
    patients = survivors(tmp_path, [0.0, 15.0, 15.0, 40.0, 99.0, 5.0], [1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    asked = HowSoon(until=(10.0, 20.0, 40.0))
    hazards = [0.1, 0.25, 0.4]
    alive, dead = [-math.log(1 - each) for each in hazards], [-math.log(each) for each in hazards]
    by_hand = [dead[0], alive[0] + dead[1], alive[0], sum(alive), sum(alive), 0.0]

    def fixed(inputs: Any) -> Any:
        logits = torch.tensor([math.log(each / (1 - each)) for each in hazards])
        return (inputs[..., 1:] @ logits).unsqueeze(-1)

    batch = asked.records(patients).columns_at(np.arange(6))
    asked.loss.check(batch)
    assert asked.loss(fixed, batch).tolist() == pytest.approx(by_hand, rel=1e-5)  # type: ignore[arg-type]


def cox(scores, days, died):
    """Breslow's partial likelihood, record by record: the control, which mixes records."""
    at_risk = days[None, :] >= days[:, None]
    return died * (torch.logsumexp(torch.where(at_risk, scores[None, :], -torch.inf), 1) - scores)


def test_a_records_loss_does_not_see_other_records_as_coxs_would(tmp_path):
    asked, model = HowSoon(until=(10.0, 20.0, 40.0)), network(4, (5,), 1)
    died = [1.0, 1.0, 0.0]
    one, other = survivors(tmp_path, [5.0, 15.0, 30.0], died), survivors(tmp_path, [5.0, 15.0, 300.0], died)
    losses = [asked.loss(model, asked.records(each).columns_at(np.arange(3))).detach() for each in (one, other)]
    assert losses[0][:2].tolist() == losses[1][:2].tolist()
    mixed = [
        cox(torch.from_numpy(asked.scores(model, each)), torch.from_numpy(each.days), torch.tensor(died))
        for each in (one, other)
    ]
    assert mixed[0][:2].tolist() != mixed[1][:2].tolist()


def test_an_event_after_the_patient_left_is_refused():
    with pytest.raises(InvalidInput, match="an interval that the patient entered"):
        Hazard(2).check((torch.zeros(1, 2, 3), torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])))


def test_intervals_must_rise():
    with pytest.raises(InvalidInput, match="rising ends"):
        OutcomeColumn(column="E", days="T", until=(20.0, 10.0))
