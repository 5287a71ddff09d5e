from pathlib import Path

import pytest

from ledger.worlds import POLICY, STEP, policy
from lrdp.accounting import Adjacency, Budget, FixedSizeGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput, PolicyRefused
from lrdp.ledger import Refusal, parse_policy, read_policy
from lrdp.ledger.policy import PeersRule, Retries


def parse(text: str) -> object:
    return parse_policy(text, source="policy.toml")


def test_a_policy_says_what_its_file_says() -> None:
    rules = policy()
    assert (rules.identity.client, rules.identity.unit, rules.identity.max_rows_per_unit) == (
        "hospital-a",
        "patient",
        1,
    )
    assert rules.budget.total == Budget(epsilon=8.0, delta=1e-6)
    assert rules.budget.per_run == Budget(epsilon=4.0, delta=1e-6)
    assert rules.budget.adjacency is Adjacency.ADD_REMOVE
    assert rules.mechanism.costliest == FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.2)
    assert (rules.mechanism.clip_norm, rules.mechanism.max_steps_per_round) == (1.0, 400)
    assert (rules.model.max_bytes, rules.model.max_abs_weight) == (200_000_000, 1e4)
    assert rules.mechanism.min_clip_norm == 0.25
    assert rules.peers == PeersRule(registry_sha256="", server_keys=(), min_roster=3, retries=Retries.SAME_ROSTER)
    assert rules.metrics == ()
    assert STEP.noise_multiplier > rules.mechanism.costliest.noise_multiplier


def test_a_truncated_poisson_policy_has_a_cap_and_a_largest_data_set() -> None:
    text = POLICY.replace('"fixed-size"', '"truncated-poisson"').replace("min_dataset_size", "max_dataset_size")
    rules = parse_policy(text.replace("batch_size = 128", "batch_size = 96\ncap = 128"), source="p")
    assert rules.mechanism.costliest == TruncatedPoissonGaussian(
        dataset_size=5000, batch_size=96, cap=128, noise_multiplier=1.2
    )


def test_a_run_without_a_quota_may_spend_all() -> None:
    text = POLICY.replace("per_run_epsilon = 4.0\n", "")
    assert parse_policy(text, source="p").budget.per_run.epsilon == 8.0


LEFT_OUT = ("per_run_epsilon", "min_clip_norm")
KEYED_LINES = [line for line in POLICY.splitlines() if "=" in line and not line.startswith(LEFT_OUT)]


@pytest.mark.parametrize("line", KEYED_LINES)
def test_every_key_must_be_there(line: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"policy\.toml line \d+: .*must have the key " + line.split(" ", maxsplit=1)[0]
    ):
        parse(POLICY.replace(line + "\n", ""))


@pytest.mark.parametrize("table", ["identity", "budget", "mechanism", "model", "peers", "release"])
def test_every_table_must_be_there(table: str) -> None:
    kept = [part for part in POLICY.split("\n\n") if not part.startswith(f"[{table}]")]
    with pytest.raises(InvalidInput, match=rf"\[{table}\] must have"):
        parse("\n\n".join(kept))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epsilon = 8.0", "epsilon = nan", r"line 7: budget\.epsilon must be a number, got nan"),
        ("epsilon = 8.0", "epsilon = inf", "line 7: .*got inf"),
        ("epsilon = 8.0", "epsilon = 0.0", "line 7: epsilon must be above 0"),
        ("epsilon = 8.0", "epsilon = -1.0", "line 7: epsilon must be above 0"),
        ("epsilon = 8.0", 'epsilon = "8"', "line 7: .*must be a number, got '8'"),
        ("epsilon = 8.0", "epsilon = true", "line 7: .*must be a number, got True"),
        ("delta = 1e-6", "delta = 5", "line 8: delta must lie strictly between 0 and 1"),
        ("per_run_epsilon = 4.0", "per_run_epsilon = 9.0", "line 10: per_run_epsilon must be at most epsilon=8"),
        ('"add-remove"', '"whatever"', "line 9: adjacency must be one of add-remove, replace-one"),
        ('"fixed-size"', '"shuffled"', "line 13: sampling must be one of fixed-size, truncated-poisson"),
        ("batch_size = 128", "batch_size = 128.0", "line 14: .*must be a whole number"),
        ("batch_size = 128", "batch_size = 5000", "line 14: batch_size must be below dataset_size=5000"),
        ("batch_size = 128", "batch_size = 0", "line 14: batch_size must be at least 1"),
        ("clip_norm = 1.0", "clip_norm = 0.0", "line 15: clip_norm must be above 0"),
        ("min_clip_norm = 0.25", "min_clip_norm = 0.0", "line 16: min_clip_norm must be above 0"),
        ("min_clip_norm = 0.25", "min_clip_norm = 1.5", "line 16: min_clip_norm must be at most clip_norm=1"),
        ("min_noise_multiplier = 1.2", "min_noise_multiplier = 0", "line 17: noise_multiplier must be above 0"),
        ("max_steps_per_round = 400", "max_steps_per_round = 0", "line 18: max_steps_per_round must be at least 1"),
        ("min_dataset_size = 5000", "min_dataset_size = 1", "line 19: dataset_size must be at least 2"),
        ("max_abs_weight = 1e4", "max_abs_weight = nan", "line 23: .*got nan"),
        ('registry_sha256 = ""', 'registry_sha256 = "abc"', "line 26: registry_sha256 must be a SHA-256"),
        ("server_keys = []", 'server_keys = "abc"', r"line 27: peers\.server_keys must be a list of"),
        ("server_keys = []", 'server_keys = ["abc"]', "line 27: server_keys must be Ed25519 public keys .*got 'abc'"),
        ("server_keys = []", f'server_keys = ["{"A" * 64}"]', "line 27: server_keys must be .*lower-case"),
        (
            "min_roster = 3",
            "min_roster = 2",
            "line 28: min_roster must be at least 3, got 2",
        ),
        ("min_roster = 3", "min_roster = 3.0", r"line 28: peers\.min_roster must be a whole number"),
        (
            '"same-roster"',
            '"any-roster"',
            "line 29: retries must be one of same-roster, smaller-roster",
        ),
        ("metrics = []", "metrics = [3]", "line 32: .*must be a list of names"),
        ("metrics = []", 'metrics = "loss"', "line 32: .*must be a list of names"),
        ('unit = "patient"', 'unit = ""', "line 3: unit must be a printable name"),
        ("max_rows_per_unit = 1", "max_rows_per_unit = 0", "line 4: max_rows_per_unit must be at least 1"),
        (
            "max_rows_per_unit = 1",
            'max_rows_per_unit = 1\nclipped = "unit"',
            "line 5: clipped must be one of rows, units, got 'unit'",
        ),
        ("metrics = []", "metrics = []\nloss = true", r"line 33: the key release\.loss is not known"),
        ("[release]", "[extra]\nkey = 1\n[release]", r"line 32: the key extra\.key is not known"),
        ("[identity]", "version = 1\n[identity]", "line 1: the key version is not known"),
        ("delta = 1e-6", "delta = 1e-6\ndelta = 1e-5", "not valid TOML.*line 9"),
        ("delta = 1e-6", "delta == 1e-6", "not valid TOML.*line 8"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse(POLICY.replace(old, new, 1))


def test_peers_are_pinned_as_they_are_written() -> None:
    pins = {
        "registry_sha256": f'"{"1f" * 32}"',
        "server_keys": f'["{"2e" * 32}", "{"3d" * 32}"]',
        "min_roster": "7",
        "retries": '"smaller-roster"',
    }
    assert policy(**pins).peers == PeersRule(
        registry_sha256="1f" * 32,
        server_keys=("2e" * 32, "3d" * 32),
        min_roster=7,
        retries=Retries.SMALLER_ROSTER,
    )


OLDER = "".join(
    line
    for line in POLICY.splitlines(keepends=True)
    if not line.startswith(("min_clip_norm", "server_keys", "min_roster", "retries"))
)


def test_a_policy_from_before_peers_were_pinned_is_read_as_the_strictest() -> None:
    rules = parse_policy(OLDER.replace('registry_sha256 = ""', f'registry_sha256 = "{"1f" * 32}"'), source="p")
    assert rules.peers == PeersRule(registry_sha256="1f" * 32, server_keys=(), retries=Retries.SAME_ROSTER)
    assert rules.mechanism.min_clip_norm == rules.mechanism.clip_norm


def test_no_policy_means_refuse(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefused, match="every request is refused") as caught:
        read_policy(tmp_path / "policy.toml")
    assert caught.value.refusal is Refusal.NO_POLICY
    (tmp_path / "policy.toml").write_bytes(b"\xff\xff")
    with pytest.raises(PolicyRefused, match="cannot be read"):
        read_policy(tmp_path / "policy.toml")


def test_a_policy_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    assert read_policy(tmp_path / "policy.toml").digest == policy().digest
