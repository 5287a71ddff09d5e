"""No condition of the protocol can be broken without a test that notices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from integrity import mutants

MODULES = mutants.modules()
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="each mutant lives in a forked process")

# Broken conditions that change nothing, and why.
_OUTSIDER = "word.name not in header.names or len(word.masks) != len(header.names) - 1"
EQUIVALENT = {
    "exact._add_stream: sign > 0 → sign >= 0": "a sign is +1 or −1",
    "masks.Pairwise.signed: own < peer → own <= peer": "one is not one's own peer",
    "depositions._consistent: word.name < peer → word.name <= peer": "one is not one's own peer",
    "depositions._disputed: name < peer → name <= peer": "one is not one's own peer",
    f"depositions.deposed: member is None or {_OUTSIDER} → {_OUTSIDER}": "a roster was found to name members alone",
    "sketch._rows: missing → True": "rows that nothing is added to are the same",
    "fixed_point.quantise: outside → True": "clipping changes nothing that is in range",
    "fixed_point._outside: low < -most or high > most → True": "it saves counting where there is nothing to count",
    "fixed_point._outside: low < -most → low <= -most": "it saves counting where there is nothing to count",
    "fixed_point._outside: high > most → high >= most": "it saves counting where there is nothing to count",
}


@pytest.mark.parametrize("module", MODULES)
def test_every_condition_gives_mutants_and_each_has_a_name_of_its_own(module):
    names = [mutant.name for mutant in mutants.mutants(module)]
    assert names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("module", MODULES)
def test_every_suite_that_should_notice_is_there(module):
    named = [*mutants.suites(module), *mutants.other_suites(module)]
    assert [name for name in named if not (mutants.TESTS / f"{name}.py").is_file()] == []
    assert len(set(named)) == len(named) > 1


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *arguments], env=environment, check=False, capture_output=True, text=True)


@FORKS
def test_a_suite_that_cannot_be_run_is_not_taken_for_one_that_noticed_nothing():
    moved = "mutants.suites = lambda _: ['integrity/test_that_was_moved']"
    ended = _run("-c", f"from integrity import mutants; {moved}; mutants.main(['verdicts'])")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "RuntimeError: the tests of verdicts: unchanged could not be run" in ended.stderr


def test_every_excuse_is_for_a_mutant_that_exists():
    modules = {name.partition(".")[0] for name in EQUIVALENT}
    assert set(EQUIVALENT) <= {mutant.name for module in modules for mutant in mutants.mutants(module)}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@FORKS
@pytest.mark.parametrize("module", MODULES)
def test_every_broken_condition_is_noticed_by_a_test(module):
    ended = _run("-m", "integrity.mutants", module)
    assert ended.returncode == 0, ended.stderr
    control, *found = map(json.loads, ended.stdout.splitlines())
    assert control == {"mutant": module + mutants.UNCHANGED, "noticed_by": None}
    assert len(found) == len(list(mutants.mutants(module)))
    assert {one["mutant"] for one in found if one["noticed_by"] is None} <= set(EQUIVALENT)
