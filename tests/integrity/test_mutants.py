"""No condition of the protocol can be broken without a test that notices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from integrity import mutants

# Broken conditions that change nothing, and why.
EQUIVALENT = {
    "exact._add_stream: sign > 0 → sign >= 0": "a sign is +1 or −1",
}


@pytest.mark.parametrize("module", mutants.LIKELY)
def test_every_condition_gives_mutants_and_each_has_a_name_of_its_own(module):
    names = [mutant.name for mutant in mutants.mutants(module)]
    assert names
    assert len(set(names)) == len(names)


def test_every_test_that_should_notice_is_there():
    named = {name for names in (mutants.ALL, *mutants.LIKELY.values()) for name in names}
    assert {name for name in named if not (mutants.TESTS / f"{name}.py").exists()} == set()


def test_every_excuse_is_for_a_mutant_that_exists():
    modules = {name.partition(".")[0] for name in EQUIVALENT}
    assert set(EQUIVALENT) <= {mutant.name for module in modules for mutant in mutants.mutants(module)}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each mutant lives in a forked process")
@pytest.mark.parametrize("module", mutants.LIKELY)
def test_every_broken_condition_is_noticed_by_a_test(module):
    command = [sys.executable, mutants.__file__, module]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    control, *found = map(json.loads, said.splitlines())
    assert control == {"mutant": module + mutants.UNCHANGED, "noticed_by": None}
    assert len(found) == len(list(mutants.mutants(module)))
    assert {one["mutant"] for one in found if one["noticed_by"] is None} <= set(EQUIVALENT)
