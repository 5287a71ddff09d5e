"""A cell of the study is the real engine and the real sums: with ledgers and tags the models are the same bits."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.small_study import CLASSES, FEATURES, made_up, places, run, small, use_made_up
from experiments_data import write_mnist
from lrdp.errors import InvalidInput
from lrdp.experiments.study import Cell
from lrdp.experiments.utility import opacus_noise
from lrdp.experiments.utility.averaging import Researcher, averaged
from lrdp.experiments.utility.plan import NAME
from lrdp.experiments.utility.shares import holdings
from lrdp.experiments.utility.training import run_in_process, tail_average, trained
from lrdp.experiments.utility.verified import run_with_ledgers, verified
from lrdp.federation.local import simulation
from lrdp.federation.local.simulation import in_one_process
from lrdp.federation.wire.layout import Layout


@pytest.fixture
def where(tmp_path, monkeypatch):
    use_made_up(monkeypatch)
    monkeypatch.setattr(opacus_noise, "FINE", opacus_noise.Fineness(tolerance=0.0001, prv_error=0.01))
    logger = logging.getLogger("lrdp.client")
    before = logger.handlers[:], logger.propagate
    yield places(tmp_path)
    logger.handlers, logger.propagate = before
    simulation._keep_client_log.cache_clear()
    simulation._made.cache_clear()


@pytest.fixture
def final(where):
    """A final cell of a method, by name."""

    def named(method, seed=0, **changes):
        study = small(only_methods=[method])
        results = run(study, where, stages=2)
        epsilon = study.plan.settings.epsilons_of(study.plan.settings.methods[method])[0]
        cell = study.plan._training(results, ("mnist", method, epsilon), rate=1.5, seed=seed, tested=True)
        return Cell(NAME, {**cell.values, **changes})

    return named


def test_with_ledgers_policies_and_verified_rounds_the_models_are_the_same_bits(final, where, tmp_path):
    cell = final("l-rdp")
    cheap = run_in_process(cell, holdings(cell, where))
    ledgered, spent = run_with_ledgers(cell, where, holdings(cell, where), tmp_path / "here", in_one_process)
    assert len(ledgered.models) == cell["rounds"]
    for one, other in zip(cheap.models, ledgered.models, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
    assert max(spent) <= cell["epsilon"]


def test_automatic_clipping_lengthens_what_is_short(final, where):
    cell = final("automatic")
    flat = Cell(NAME, {name: value for name, value in cell.values.items() if name != "gamma"})
    moved, less = (run_in_process(each, holdings(each, where)).models[0] for each in (cell, flat))
    assert not np.array_equal(moved, less)


def test_another_seed_gives_other_models_and_a_difference_is_an_error(final, where):
    cell, other = final("l-rdp"), final("l-rdp", seed=1)
    expected = trained(other, where)["models_sha256"]
    wrong = Cell(NAME, {**cell.values, "stage": "verified", "expected": expected})
    with pytest.raises(InvalidInput, match="does not train as it says"):
        verified(wrong, where, in_one_process)


@pytest.mark.slow
@pytest.mark.timeout(900)  # Ray's processes stand back behind all others
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_on_ray_the_models_are_the_same_bits(tmp_path):
    """From files, since another process knows nothing of a test's data."""
    pytest.importorskip("ray")
    where = places(tmp_path)
    where.data.mkdir()
    write_mnist(where.data, train=371, test=60)
    features = {"mnist": {"data": {"components": 7, "most_train": 0}}}
    study = small(ray=True, only_methods=["l-rdp"], seeds=[0], rates=1, tasks=features)
    results = run(study, where)
    ((cell, found),) = results.where(stage="verified")
    assert found["verified_rounds"] == cell["rounds"] == 3
    assert found["models_sha256"] == cell["expected"]
    assert found["epsilon_ledgers"] <= 8.0


def test_a_policy_of_other_noise_is_refused(final, where, tmp_path):
    cell = final("fixed-pld")
    with pytest.raises(InvalidInput, match="calibrated by rdp it has as much or more"):
        run_with_ledgers(cell, where, holdings(cell, where), tmp_path / "here", in_one_process)


def test_the_same_cell_comes_out_the_same_and_micro_batches_change_only_the_last_bits(final, where):
    cell = final("truncated")
    held = holdings(cell, where)
    once, twice = run_in_process(cell, held), run_in_process(cell, held)
    whole = run_in_process(Cell(NAME, {**cell.values, "micro_batch": 0}), held)
    assert once.digest == twice.digest
    np.testing.assert_allclose(once.models[-1], whole.models[-1], atol=1e-4)


def plain_sgd(cell):
    """Mean gradients of batches that fixed-size sampling draws, in float64: no code of engine or federation."""
    from lrdp.experiments.data import dealt
    from lrdp.training.research import seeded_randomness
    from lrdp.training.sampling import placed, uniform_subset

    data, weights = made_up(None, None), torch.zeros(CLASSES, FEATURES, dtype=torch.float64)
    shares = dealt(data.train.labels, cell["clients"], cell["seed"])
    for number in range(cell["rounds"]):
        moved = []
        for client, share in enumerate(shares):
            stream, local = seeded_randomness(cell["seed"], client, number).sampling, weights.clone()
            for _ in range(cell["local_steps"]):
                drawn = placed(uniform_subset(len(share), 24, stream), 24, stream)
                inputs = data.train.inputs[share[drawn]].double()
                errors = torch.softmax(inputs @ local.T, 1)
                errors[torch.arange(24), data.train.labels[share[drawn]]] -= 1
                local -= cell["rate"] * errors.T @ inputs / 24
            moved.append(local - weights)
        weights = weights + torch.stack(moved).mean(0)
    return weights


def test_without_privacy_it_is_plain_federated_averaging(final, where):
    cell = final("none")
    model = run_in_process(cell, holdings(cell, where)).models[-1]
    np.testing.assert_allclose(model, plain_sgd(cell).flatten().numpy(), atol=1e-5)


def test_with_next_to_no_noise_and_a_wide_clip_norm_our_engine_is_plain_sgd(final, where):
    cell = final("l-rdp", clip_norm=50.0)
    cell = Cell(NAME, {**cell.values, "mechanism": {**cell["mechanism"], "noise_multiplier": 1e-6}})
    model = run_in_process(cell, holdings(cell, where)).models[-1]
    np.testing.assert_allclose(model, plain_sgd(cell).flatten().numpy(), atol=1e-4)


def test_opacus_itself_lands_where_our_poisson_does(final, where):
    """With next to no noise both are averages over batches of the same law; each misses plain SGD by sampling alone."""
    found = {}
    for method in ("poisson-rdp", "opacus-rdp"):
        cell = final(method, rate=0.5)
        quiet = {**cell["mechanism"], "noise_multiplier": 1e-3}
        cell = Cell(NAME, {**cell.values, "mechanism": quiet, "rounds": 8})
        found[method] = run_in_process(cell, holdings(cell, where)).models[-1]
    ours, theirs = found["poisson-rdp"], found["opacus-rdp"]
    assert np.linalg.norm(ours - theirs) < 0.15 * np.linalg.norm(ours)


def test_clients_hold_a_record_to_spare_on_the_side_that_their_sampling_needs(final, where):
    sizes = {method: len(holdings(final(method), where).clients[0]) for method in ("l-rdp", "truncated")}
    stated = {final(method)["mechanism"]["dataset_size"] for method in sizes}
    assert stated == {110}
    assert sizes == {"l-rdp": 111, "truncated": 109}


def test_what_goes_wrong_at_a_client_is_said(final, where):
    cell = final("l-rdp")
    held = holdings(cell, where)
    model = held.trainee.model()
    layout = Layout.of_model(model)

    def broken(desk, number):
        raise InvalidInput(f"a broken engine in round {number}.")

    clients = [Researcher(desk=_desk(cell, model, held), engine=broken, layout=layout)]
    with pytest.raises(InvalidInput, match="failed in round 0: a broken engine"):
        list(averaged(clients, np.zeros(layout.size, np.float32), 1))


def _desk(cell, model, held):
    from lrdp.experiments.utility.engines import Desk, constants
    from lrdp.training import Task

    task = Task(model=model, dataset=held.clients[0], loss=held.trainee.loss, constants=constants(1.0, 1.0))
    return Desk(task=task, mechanism=cell["mechanism"], rate=1.0, steps=1, seed=0, client=0)


def test_the_last_fifth_of_the_models_is_averaged_and_at_least_one():
    models = [np.full(2, value, np.float32) for value in (1.0, 2.0, 4.0, 9.0, 16.0, 32.0)]
    np.testing.assert_array_equal(tail_average(models), [24.0, 24.0])
    np.testing.assert_array_equal(tail_average(models[:3]), [4.0, 4.0])


def test_the_test_set_is_not_looked_at_while_rates_are_chosen(where, monkeypatch):
    study = small(only_methods=["l-rdp"], seeds=[0])
    results = run(study, where, stages=2)
    poisoned = made_up(None, None)
    poisoned = replace(poisoned, test=None)
    from lrdp.experiments.utility import shares

    monkeypatch.setattr(shares, "prepared", lambda *_: poisoned)
    shares._loaded.cache_clear()
    shares._holdings.cache_clear()
    cells = study.plan.tuning(results)
    found = [study.work(cell, where) for cell in cells]
    assert len(cells) == 2
    assert not any("test" in result for result in found)
