"""The apps that ship with the library: they run as their pages say, in Flower's own simulation."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lrdp.accounting import Budget, Training
from lrdp.experiments.digits import stated_size
from lrdp.federation import found
from lrdp.integrity.history import audit_history

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from local_deployment.processes import QUIET, Processes, free_ports, listens  # noqa: E402

HOSPITALS = 4
ROUNDS = 2
LOCAL_STEPS = 7
DEALT = [{"partition-id": number, "num-partitions": HOSPITALS} for number in range(HOSPITALS)]


@pytest.fixture
def consortium(tmp_path):
    training = Training(
        dataset_size=stated_size(HOSPITALS),
        batch_size=32,
        rounds=6,
        local_steps=LOCAL_STEPS,
        budget=Budget(epsilon=7.5, delta=1e-4),
    )
    return found(tmp_path / "consortium", {f"hospital-{number}": training for number in range(HOSPITALS)})


def spent(consortium, name):
    with consortium.client(name).ledger() as ledger:
        return ledger.books.charges.steps, [state.value for state in ledger.books.charges.states.values()]


@pytest.mark.timeout(600)
def test_the_digits_app_runs_in_the_simulation(tmp_path, consortium):
    """Its own SuperLink, on a port of its own: the one that `flwr run … local` starts would stay behind."""
    (port,) = free_ports(1)
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    settings = {"FLWR_HOME": str(home), "LRDP_CONSORTIUM": str(consortium.folder), "OMP_NUM_THREADS": "1"}
    settings |= {"RAY_USAGE_STATS_ENABLED": "0"}
    asked = f'num-server-rounds={ROUNDS} local-steps={LOCAL_STEPS} server-folder="{consortium.server_folder}"'
    asked += f' registry="{consortium.registry_file}"'
    simulated = f"num-supernodes={HOSPITALS} client-resources-num-cpus=1"
    with Processes(tmp_path / "logs") as processes:
        superlink = ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
        processes.start("superlink", superlink, settings)
        processes.until(lambda: listens(port), 120, "the SuperLink did not answer")
        command = ["flwr", "run", str(ROOT / "apps" / "digits"), "here", "--stream"]
        command += ["--federation-config", simulated, "--run-config", asked]
        processes.start("run", command, settings)
        processes.wait("run", 400)
        said = processes.log("run").read_text(encoding="utf-8")

    assert [f"round {number} · 4 took part · verified" in said for number in (1, 2)] == [True, True], said[-2000:]
    (log,) = consortium.server_folder.glob("rounds-*.jsonl")
    assert [json.loads(line)["verified"] for line in log.read_text(encoding="utf-8").splitlines()] == [True, True]
    assert_everybody_paid(consortium)


def assert_everybody_paid(consortium):
    """Once for each round, and the receipts name them all."""
    for name in consortium.names():
        assert spent(consortium, name) == (ROUNDS * LOCAL_STEPS, ["sent"] * ROUNDS)
    (receipts,) = consortium.server_folder.glob("receipts-*.txt")
    seen = audit_history(receipts.read_text(encoding="ascii").split(), consortium.registry().digest)
    assert (seen.failure, seen.rounds) == (None, ROUNDS)
    assert seen.participants == dict.fromkeys(consortium.names(), ROUNDS)


# ------------------------------------------------------------------------------------------------------------ examples
IN_PROCESS = """
import json, sys
from flwr.app import Context, RecordDict
from lrdp.federation import InProcessGrid, Node
package, settings, asked = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
client = __import__(f"{package}.client_app", fromlist=["app"]).app
server = __import__(f"{package}.server_app", fromlist=["app"]).app
nodes = {1 + number: Node(client, given) for number, given in enumerate(settings)}
server(InProcessGrid(nodes, run_config=asked), Context(1, 1, {}, RecordDict(), asked, 1))
"""


def in_process(app, package, settings, asked, **environment):
    """In a process of its own, since both examples have the same names; without Ray, which was seen above."""
    command = [sys.executable, "-W", "ignore", "-c", IN_PROCESS, package, json.dumps(settings), json.dumps(asked)]
    path = os.pathsep.join([str(ROOT / app), str(ROOT / "src")])
    environment = {**os.environ, **QUIET, "PYTHONPATH": path, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run_in_process(*app, **environment):
    """To its end, which is a good one; what it said."""
    ran = in_process(*app, **environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def run_example(name, consortium):
    """After how many rounds its accuracy was told."""
    asked: dict[str, Any] = {"num-server-rounds": ROUNDS}
    said = run_in_process(f"examples/{name}", "digits", DEALT, asked, LRDP_CONSORTIUM=str(consortium.folder))
    return len(re.findall(r"MetricRecord: {'accuracy': [0-9.]+}|verified · [0-9.]+ s · accuracy [0-9.]+", said))


def test_the_plain_example_runs_and_charges_nobody(consortium):
    assert run_example("plain", consortium) == ROUNDS
    assert spent(consortium, "hospital-0") == (0, [])


def test_the_private_example_runs_and_everybody_pays(consortium):
    assert run_example("private", consortium) == ROUNDS
    assert_everybody_paid(consortium)


def difference(path):
    labels = [f"--label={name}/digits/{path}" for name in ("plain", "private")]
    files = [str(ROOT / "examples" / name / "digits" / path) for name in ("plain", "private")]
    return subprocess.run(["diff", "-u", *labels, *files], capture_output=True, text=True, check=False).stdout


def test_the_page_of_the_examples_shows_how_they_differ():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    assert shown == [difference("client_app.py"), difference("server_app.py")]


@pytest.mark.parametrize("name", ["__init__.py", "task.py"])
def test_the_rest_of_the_examples_is_the_same(name):
    assert difference(name) == ""


# ------------------------------------------------------------------------------------------------- whose settings count
def deployed(consortium, local_steps):
    """The digits app of nodes whose operators name the policies."""
    policies = [{"policy": str(consortium.client(name).folder / "policy.toml")} for name in consortium.names()]
    settings = [{**dealt, **policy} for dealt, policy in zip(DEALT, policies, strict=True)]
    asked: dict[str, Any] = {
        "num-server-rounds": ROUNDS,
        "local-steps": local_steps,
        "learning-rate": 0.3,
        "timeout": 600.0,
    }
    asked |= {"server-folder": str(consortium.server_folder), "registry": str(consortium.registry_file)}
    return "apps/digits", "digits_app", settings, asked


def test_an_operator_names_the_policy_in_the_configuration_of_its_node(consortium):
    said = run_in_process(*deployed(consortium, LOCAL_STEPS))
    assert said.count("4 took part · verified") == ROUNDS
    assert_everybody_paid(consortium)


def test_a_run_without_a_verified_round_fails_as_a_process_and_charges_nobody(consortium):
    ran = in_process(*deployed(consortium, 10_000))
    assert ran.returncode != 0
    assert "NoVerifiedRound" in ran.stderr.splitlines()[-1], ran.stderr
    assert [spent(consortium, name) for name in consortium.names()] == [(0, [])] * HOSPITALS


def test_a_server_cannot_tell_the_app_which_policy_counts(consortium):
    """The run configuration is the server's: whatever it says, a client without an operator's setting refuses."""
    check = """
import sys
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.questions import Hello, read_message, to_frame
from digits_app.client_app import app
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
hello = Message(to_records(to_frame(Hello(session=b"", nonce=b"", layout=b""))), 7, "query")
hello.metadata.__dict__["_message_id"] = "a"
config = {"policy": sys.argv[1], "guard": sys.argv[1], "LRDP_CONSORTIUM": sys.argv[2]}
print(read_message(from_message(app(hello, Context(1, 7, {}, RecordDict(), config, 1)))).code)
"""
    settings = {name: value for name, value in os.environ.items() if name != "LRDP_CONSORTIUM"}
    settings |= {**QUIET, "PYTHONPATH": str(ROOT / "apps" / "digits")}
    policy = consortium.client("hospital-0").folder / "policy.toml"
    command = [sys.executable, "-c", check, str(policy), str(consortium.folder)]
    ran = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "invalid"
    assert "this node has no policy" in ran.stderr
