"""`lrdp init`: a policy that explains itself, keys that nobody else reads, a budget that is opened once."""

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from federation.worlds import TASK
from lrdp.cli import app
from lrdp.errors import LrdpError
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import Workbench
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.standing import Standing
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Decline, read_message
from lrdp.integrity import new_identity
from lrdp.ledger import Clipped, Home, read_policy

from .clients import Client, folder


def test_init_explains_every_line_and_keeps_keys_private(client: Client) -> None:
    lines = client.home.policy.read_text().splitlines()
    assert sum(line.startswith("#") for line in lines) >= 14
    for path in (client.home.key, client.home.administrator, client.home.ledger):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_policy(client.home.policy).identity.client == "hospital-a"


def test_the_budget_of_init_lasts_exactly_as_long_as_was_planned(client: Client) -> None:
    for number in range(5):
        client.train(number)
    assert client.json("ledger", "show", *folder(client))["budget"]["rounds_left"] == 0  # type: ignore[index]
    with pytest.raises(LrdpError) as caught:
        client.train(6)
    assert caught.value.exit_code == 3


def test_whoever_was_in_a_federation_opens_no_second_budget_for_a_ledger_that_is_lost(client: Client) -> None:
    """It would have as much to spend again, on the same records."""
    (client.home.folder / "session").mkdir()
    for path in (client.home.ledger, client.home.key, client.home.administrator):
        path.unlink()
    said = client.run("init", *folder(client), code=2)
    assert "restore the backup" in said
    assert "No budget was opened" in said
    assert not client.home.ledger.exists()
    assert not client.home.key.exists()


def test_a_client_that_was_started_before_its_policy_was_written_opens_its_first_budget(tmp_path: Path) -> None:
    """Its refusal says to write one with `lrdp init`, and a lock in `session/` is all that a refused message leaves."""
    client = Client(tmp_path)
    participant = Participant(ClientHome(folder=client.home.folder), Workbench(TASK, {"partition-id": 0}))
    assert read_message(participant.handle(Frame(b"hello"))) == Decline(code="no-policy")
    assert [path.name for path in (client.home.folder / "session").iterdir()] == ["lock"]
    assert "rounds" in client.run("init", *folder(client))


def test_control_a_client_that_entered_a_session_opens_no_budget(tmp_path: Path) -> None:
    client = Client(tmp_path)
    with Standing(client.home.folder / "session").locked():
        (client.home.folder / "session" / "left").write_bytes(b"")
    assert "had a ledger" in client.run("init", *folder(client), code=2)


def test_a_ledger_without_its_key_is_not_replaced_and_the_sentence_says_what_to_do(client: Client) -> None:
    """The key was lost, or whoever made both was killed in between."""
    before = client.home.ledger.read_bytes()
    client.home.key.unlink()
    said = client.run("init", *folder(client), code=2)
    assert "restore it from the backup: no other opens this ledger" in said
    assert "nothing was ever spent, move the ledger and" in said
    assert client.home.ledger.read_bytes() == before
    assert not client.home.key.exists()


def test_an_open_budget_is_named_before_what_is_typed_is_compared(client: Client) -> None:
    assert "the budget is open already" in client.run("init", *folder(client), "--epsilon", "-1", code=2)


def test_init_keeps_an_edited_policy_and_never_opens_a_budget_twice(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.run("init", *folder(client), "--policy-only")
    assert not client.home.ledger.exists()
    edited = client.home.policy.read_text().replace('"client"', '"edited"')
    client.home.policy.write_text(edited)
    client.run("init", *folder(client))
    assert client.home.policy.read_text() == edited
    client.home.ledger.unlink()
    assert "its ledger was opened before" in client.run("init", *folder(client), code=2)


@pytest.mark.parametrize("clipped", list(Clipped))
def test_what_is_clipped_as_one_stands_in_the_policy(tmp_path: Path, clipped: Clipped) -> None:
    client = Client(tmp_path)
    asked = ("--unit", "patient", "--rows-per-unit", "40", "--clipped", clipped.value)
    client.run("init", *folder(client), "--policy-only", *asked)
    identity = read_policy(client.home.policy).identity
    assert (identity.unit, identity.max_rows_per_unit, identity.clipped) == ("patient", 40, clipped)


def test_the_guards_task_stands_in_the_policy_and_the_folder_is_its_owners(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    assert "package.module:name" in client.run("init", *folder(client), "--task", "no name", code=2)
    assert not client.home.folder.exists(), "a policy that could not be read was not written"
    client.run("init", *folder(client), "--policy-only", "--task", "digits_task:task")
    assert read_policy(client.home.policy).task == "digits_task:task"
    assert client.home.folder.stat().st_mode & 0o777 == 0o700
    injected = 'm:n"\n[execution]\nmicro_batch = 1\n# "'
    other = Client(tmp_path / "other")
    assert "package.module:name" in other.run("init", *folder(other), "--task", injected, code=2)
    assert not other.home.folder.exists()


@pytest.mark.parametrize("name", ["Hospital A", "hospital/a", ".a", "ä", "a" * 64, ""])
def test_a_name_that_no_registry_takes_is_refused_before_the_budget_is_opened(tmp_path: Path, name: str) -> None:
    client = Client(tmp_path / "home")
    assert "is not a name" in client.run("init", *folder(client), "--client", name, code=2)
    assert not client.home.folder.exists()
    with pytest.raises(LrdpError, match="is not a name"):
        new_identity(name)
    client.run("init", *folder(client), "--policy-only")
    text = client.home.policy.read_text().replace('"client"', f'"{name}"')
    client.home.policy.write_text(text)
    client.run("init", *folder(client), code=2)
    assert not client.home.ledger.exists()


def test_a_plan_becomes_a_policy_and_a_budget_that_lasts_as_long_as_was_promised(tmp_path: Path) -> None:
    client = Client(tmp_path)
    sizes = ("-n", "3000", "-b", "24", "--rounds", "4", "--local-steps", "7", "--epsilon", "2", "--delta", "1e-5")
    planned = client.json("plan", *sizes, "--write", str(client.home.policy), "--client", "hospital-a")
    policy = read_policy(client.home.policy)
    best = planned["recommended"]
    assert isinstance(best, dict)
    assert (best["mechanism"], best["accountant"]) == ("truncated-poisson", "pld"), "the default where it is quietest"
    assert policy.mechanism.costliest.noise_multiplier == best["noise_multiplier"]
    assert planned["rounds_promised"] == best["rounds_affordable"]
    assert client.json("init", *folder(client))["rounds"] == planned["rounds_promised"]
    for number in range(best["rounds_affordable"]):
        client.train(number)
    with pytest.raises(LrdpError) as caught:
        client.train(99)
    assert caught.value.exit_code == 3
    assert "already" in client.run("plan", *sizes, "--write", str(client.home.policy), code=2)


PLANNED = ("--rounds", "3", "--local-steps", "5")
USUAL = ('sampling = "truncated-poisson"', 'accountant = "pld"', "cap = 128", "max_dataset_size = 5000")
FIXED = ('sampling = "fixed-size"', 'accountant = "rdp"', "batch_size = 128", "min_dataset_size = 5000")
RAISED_ONE_DAY = ('sampling = "truncated-poisson"', 'accountant = "rdp"', "cap = 128", "max_dataset_size = 5000")


@pytest.mark.parametrize(
    ("asked", "lines", "bound"),
    [
        ((), USUAL, "# There are at most this many records, a public upper bound"),
        (("--mechanism", "truncated-poisson", "--accountant", "pld"), USUAL, "at most this many"),
        (("--accountant", "rdp"), RAISED_ONE_DAY, "at most this many"),
        (("--mechanism", "fixed-size"), FIXED, "# There are at least this many records, a public lower bound"),
    ],
)
def test_init_writes_what_a_plan_recommends_unless_another_policy_is_asked_for(
    tmp_path: Path, asked: tuple[str, ...], lines: tuple[str, ...], bound: str
) -> None:
    client = Client(tmp_path)
    assert client.json("init", *folder(client), *PLANNED, *asked)["rounds"] == 3
    text = client.home.policy.read_text()
    assert set(lines) <= set(text.splitlines())
    assert bound in text


def test_what_is_recommended_is_quieter_than_fixed_size(tmp_path: Path) -> None:
    noise = []
    for number, asked in enumerate([(), ("--accountant", "rdp"), ("--mechanism", "fixed-size")]):
        client = Client(tmp_path / str(number))
        client.run("init", *folder(client), *PLANNED, *asked, "--policy-only")
        noise.append(read_policy(client.home.policy).mechanism.costliest.noise_on_mean)
    assert noise == sorted(noise)
    assert noise[0] < 0.9 * noise[2]


def test_more_rows_of_a_unit_than_an_epsilon_is_worked_out_for_open_nothing(tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    said = client.run("init", *folder(client), "--rows-per-unit", "1000000000", code=2)
    assert "max_rows_per_unit must be at most 1048576, got 1000000000" in said
    assert not client.home.folder.exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((), "can never be raised, because its rounds are reserved: `lrdp init` and `lrdp found` make one that can be"),
        (("--accountant", "rdp"), "`lrdp ledger raise` takes it from the policy"),
    ],
)
def test_it_is_said_at_the_opening_whether_a_budget_can_be_raised(
    tmp_path: Path, asked: tuple[str, ...], words: str
) -> None:
    said = CliRunner().invoke(app, ["init", "--folder", str(tmp_path / "home"), *PLANNED, *asked]).stderr
    assert words in said
    with Home(folder=tmp_path / "home").open() as ledger:
        assert ledger.books.rule.may_grow == ("ledger raise" in said)


def test_a_budget_that_is_open_is_called_so(client: Client) -> None:
    assert "the budget is open already" in client.run("init", *folder(client), code=2)


def test_a_unit_is_written_as_it_was_given_whatever_quotes_it_has(tmp_path: Path) -> None:
    """Between the template's own quotes the first would have ended in an error, and the second been cut short."""
    for number, unit in enumerate(('the "household"', 'patient" # of one year', "C:\\new", "Zoë")):
        client = Client(tmp_path / str(number))
        client.run("init", *folder(client), "--unit", unit, "--policy-only")
        assert read_policy(client.home.policy).identity.unit == unit
