"""A real deployment: SuperLink, SuperNodes and guards as processes of this machine, one of them killed as it trains."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from local_deployment import parties
from local_deployment.deployment import Deployment, Run
from local_deployment.parties import TASK, Hospital, Parties, demand_digits, verified, write_records
from local_deployment.processes import DeploymentFailed, Processes, free_ports, refuse_taken

from lrdp.accounting import Budget, Training
from lrdp.experiments.digits import stated_size
from lrdp.federation import Consortium, found
from lrdp.federation.client.home import ClientHome
from lrdp.federation.local.consortium import enrol, pinned
from lrdp.integrity import RoundReceipt, new_identity, read_registry
from lrdp.integrity.keys import load_identity, save_identity
from lrdp.ledger import FIXED_SIZE, Holder, draft

SCRIPTS = Path(__file__).parents[2] / "scripts"
HOSPITALS = 4
ROUNDS = 2
LOCAL_STEPS = 150  # so that training takes long enough to be interrupted
KILLED_IN = 0


@pytest.fixture
def folder():
    """With a short name: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lrdp-") as made:
        yield Path(made).resolve()


def training_of(count, rounds, local_steps):
    """Of hospitals that share the digits among ``count``."""
    budget = Budget(epsilon=8.0, delta=1e-4)
    size = stated_size(count)
    return Training(dataset_size=size, batch_size=32, rounds=rounds, local_steps=local_steps, budget=budget)


def founded(folder, training, count, shares):
    """A consortium that is set up in this process, which is quicker; the script types the commands of each party."""
    consortium = found(folder, {f"hospital-{number}": training for number in range(count)}, min_roster=3)
    homes = [consortium.client(name).folder for name in consortium.names()]
    hospitals = [Hospital(folder=home, number=number, count=shares) for number, home in enumerate(homes)]
    for hospital in hospitals:
        furnish(hospital)
    parties = Parties(folder=folder, hospitals=tuple(hospitals))
    consortium.registry_file.rename(parties.registry)
    return parties


def furnish(hospital):
    """Its records, and its own code in its policy."""
    write_records(hospital)
    hospital.policy.write_text(
        hospital.policy.read_text(encoding="utf-8") + f'\n[task]\nmodule = "{TASK}"\n', encoding="utf-8"
    )


def peopled(folder, count):
    """With records left over for one that joins later."""
    return founded(folder, training_of(count + 1, 20, 2), count, count + 1)


def joining(parties, number):
    """A hospital that comes later, with keys of its own; the server is not told of it here."""
    consortium, name = Consortium(folder=parties.folder), f"hospital-{number}"
    home, holder = consortium.client(name), Holder(client=name, unit="record", max_rows_per_unit=1)
    first = read_registry(parties.registry.read_text(encoding="utf-8"))
    enrol(home, draft(holder, training_of(number + 1, 20, 2), pinned(consortium, first, 3), FIXED_SIZE))
    save_identity(new_identity(name), home.identity_file)
    hospital = Hospital(folder=home.folder, number=number, count=number + 1)
    furnish(hospital)
    return hospital


def entries(hospital):
    """The ledger's lines as they are in the file: no code of the library reads them here."""
    with closing(sqlite3.connect(f"file:{hospital.folder}/ledger.db?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT seq, line FROM entries ORDER BY seq").fetchall()
    return [(number, line.decode().split("\t")) for number, line in rows]


def charged(hospital):
    """Of each charge, the round and how far it got."""
    rounds, reached = {}, {}
    for number, (kind, *fields) in entries(hospital):
        if kind == "RESERVED":
            rounds[number], reached[number] = int(fields[3]), "RESERVED"
        elif kind in ("READY", "SENT"):
            reached[int(fields[1])] = kind
    return [(rounds[number], reached[number]) for number in rounds]


def left_behind(folder):
    """Processes that name the folder in their command line or environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in text and int(path.name) != os.getpid():
            found.append(path.name)
    return found


def stays_behind(folder):
    """What is still there after a while: an app that Flower began at the last moment ends when it misses its parent."""
    deadline = time.monotonic() + 30
    while (found := left_behind(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def kill_as_it_trains(deployment, processes, victim):
    training = (KILLED_IN, "RESERVED")
    deadline = time.monotonic() + 600
    while training not in charged(victim):
        assert time.monotonic() < deadline, processes.tail("flwr-run")
        time.sleep(0.01)
    deployment.kill(victim)
    assert charged(victim)[-1] == training, "it had trained before it was killed: make LOCAL_STEPS larger"


@pytest.mark.timeout(1500)
def test_a_hospital_killed_as_it_trains_comes_back_and_every_charge_is_accounted_for(folder):
    parties = founded(folder, training_of(HOSPITALS, 2 * ROUNDS, LOCAL_STEPS), HOSPITALS, HOSPITALS)
    victim = parties.hospitals[2]
    pin = json.loads(parties.registry.read_text(encoding="utf-8"))["digest"]
    with Processes(folder / "logs") as processes:
        deployment = Deployment(parties, processes, port=free_ports(1)[0], secure=False)
        deployment.start()
        deployment.begin(Run(rounds=ROUNDS, local_steps=LOCAL_STEPS, timeout=480.0))
        kill_as_it_trains(deployment, processes, victim)
        deployment.restart(victim)
        reports = deployment.finish(800)
        audit = verified(deployment.receipts(), pin, processes)

    # Every round was proved, the one in which a hospital died by those who remained.
    assert [report["model"] for report in reports] == list(range(ROUNDS))
    assert all(report["verified"] for report in reports)
    assert victim.name not in reports[KILLED_IN]["participants"]
    assert victim.name in reports[-1]["participants"]
    assert audit["rounds"] == ROUNDS

    # What the receipts prove was received is what was charged, once each; the kill left the only other charge.
    _session, *lines = deployment.receipts().read_text(encoding="ascii").split()
    received = [RoundReceipt.decode(bytes.fromhex(line)).header.names for line in lines]
    for hospital in parties.hospitals:
        admitted = [(number, "SENT") for number, names in enumerate(received) if hospital.name in names]
        lost = [(KILLED_IN, "RESERVED")] if hospital is victim else []
        assert sorted(charged(hospital)) == sorted(admitted + lost)
        assert audit["participants"][hospital.name] == len(admitted)
    assert stays_behind(folder) == []


def kill_the_app(deployment):
    deployment.kill_server_app()


def kill_the_machine(deployment):
    """And start what starts with it; SuperNodes find it again."""
    deployment.kill_server()
    deployment.start_superlink()


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("die", [kill_the_app, kill_the_machine])
def test_the_same_flwr_run_again_goes_on_in_the_same_session_once_the_server_has_died(folder, die):
    rounds, steps = 3, 2
    parties = founded(folder, training_of(HOSPITALS, 2 * rounds, steps), HOSPITALS, HOSPITALS)
    pin = json.loads(parties.registry.read_text(encoding="utf-8"))["digest"]
    log, run = parties.server / "rounds.jsonl", Run(rounds=rounds, local_steps=steps, timeout=600.0)
    with Processes(folder / "logs") as processes:
        deployment = Deployment(parties, processes, port=free_ports(1)[0], secure=False)
        deployment.start()
        deployment.begin(run)
        processes.until(log.exists, 800, "no round was made", but="flwr-run")
        die(deployment)
        before = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        deployment.begin(run)
        deployment.finish(1200)
        audit = verified(deployment.receipts(), pin, processes)  # which is one file

    reports = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert 0 < len(before) < rounds, "it died too late, or made its rounds all the same"
    assert [report["model"] for report in reports] == list(range(rounds))
    assert all(report["verified"] for report in reports)
    assert len({report["session"] for report in reports}) == 1
    assert (audit["rounds"], set(audit["participants"].values())) == (rounds, {rounds})
    for hospital in parties.hospitals:  # what was trained for the server that died was sent again, and paid for once
        assert charged(hospital) == [(number, "SENT") for number in range(rounds)]
    assert stays_behind(folder) == []


def test_a_port_that_is_taken_is_refused_in_one_sentence():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeploymentFailed, match=f"port {port} cannot be used.*--port") as refused:
            refuse_taken(port)
    assert "\n" not in str(refused.value)


def test_a_demonstration_without_its_digits_is_refused_in_one_sentence(monkeypatch):
    demand_digits()
    monkeypatch.setattr(parties, "find_spec", lambda _: None)
    with pytest.raises(DeploymentFailed, match=r"lrdp\[flower,experiments\]'; nothing was set up") as refused:
        demand_digits()
    assert "\n" not in str(refused.value)


def test_a_deployment_that_fails_leaves_no_process(tmp_path):
    sleeper = ["python", "-c", f"import time; time.sleep(600)  # {tmp_path}"]
    apart = "[*sys.argv[1:-1], sys.argv[-1] + '/child'], start_new_session=True"  # whose own line names nobody else
    parting = f"import subprocess, sys; subprocess.Popen({apart})"

    def failing():
        with Processes(tmp_path / "logs") as processes:
            processes.start("plain", sleeper)
            processes.start("parent", ["python", "-c", parting, sys.executable, *sleeper[1:]])
            processes.until(lambda: left_behind(tmp_path / "child") != [], 30, "no child", but="parent")
            raise DeploymentFailed("of its own accord")

    with pytest.raises(DeploymentFailed, match="of its own accord"):
        failing()
    assert left_behind(tmp_path) == []


def test_the_page_on_deployment_sets_up_a_hospital_that_can_be_guarded(tmp_path):
    """Its commands as they stand there, in their order."""
    page = (SCRIPTS.parent / "docs" / "deployment.md").read_text(encoding="utf-8")
    keys, server, registry, policy, budget, copy = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def typed(commands):
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    typed("".join(keys.replace("hospital-0", f"hospital-{number}") for number in range(4)) + server + registry)
    (digest,) = re.findall(r"digest +([0-9a-f]{64})", typed(policy))
    typed(budget + copy)

    home = ClientHome(folder=tmp_path / "hospital-0")
    with closing(home.ledger()) as ledger:
        assert ledger.books.charges.states == {}
    peers, known = home.policy().peers, load_identity(tmp_path / "server" / "identity.pem")
    assert (peers.registry_sha256, peers.min_roster) == (digest, 3)
    assert peers.server_keys == (known.member.signing_key.hex(),)
    assert home.policy().task == "digits_task:task"
    assert home.identity().name == home.policy().identity.client == "hospital-0"
    assert (tmp_path / "server" / "identity.pem").stat().st_mode & 0o077 == 0


def script(folder, *options):
    command = [sys.executable, str(SCRIPTS / "deploy_local.py"), "--folder", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_script_deploys_with_tls_and_node_keys(folder):
    ran = script(folder / "c", "--rounds", "2")
    out, err = ran.communicate(timeout=800)
    assert (ran.returncode, err) == (0, "")
    assert out.count("verified") == 2
    assert out.count("2 sent") == 4
    assert "`lrdp verify`: 2 rounds hold" in out
    assert stays_behind(folder) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_script_can_be_stopped_at_any_time(folder, number):
    ran = script(folder / "c", "--insecure")
    deadline = time.monotonic() + 600
    while not (folder / "c" / "logs" / "hospital-1-supernode.log").exists():
        assert ran.poll() is None, ran.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ran.send_signal(number)
    _, err = ran.communicate(timeout=120)
    assert ran.returncode == 130
    assert err == "Stopped: no process is left.\n"
    assert stays_behind(folder) == []
