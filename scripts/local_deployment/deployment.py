"""A SuperLink, and for each hospital a guard and a SuperNode: started, killed, and started again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local_deployment.certificates import make_certificates, make_node_key
from local_deployment.parties import APP, CODE, Hospital, Parties
from local_deployment.processes import DeploymentFailed, Processes, free_ports, listens

RUN: Final = "flwr-run"
_CONNECTION: Final = "consortium"
_SERVER_APP: Final = "flwr-serverapp"
_STARTING_SECONDS: Final = 90.0
_STARTED_RUN: Final = re.compile(r"Successfully started run (\d+)")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the server asks for."""

    rounds: int
    local_steps: int
    timeout: float


class Deployment:
    """With certificates, everything is encrypted and every SuperNode shows a registered key; without, nothing is."""

    def __init__(self, parties: Parties, processes: Processes, *, port: int, secure: bool) -> None:
        self._parties, self._processes, self._port = parties, processes, port
        self._certificates = make_certificates(parties.server / "tls") if secure else None
        self._ports = dict(zip(parties.hospitals, free_ports(len(parties.hospitals)), strict=True))

    def start(self) -> None:
        """Everybody; returns when the SuperLink answers and all guards listen."""
        self.start_superlink()
        for hospital in self._parties.hospitals:
            if self._certificates is not None:
                self._register(hospital)
            self.start_guard(hospital)
        for hospital in self._parties.hospitals:
            self.await_guard(hospital)
            self.start_supernode(hospital)

    def start_superlink(self) -> None:
        """Returns when it answers; with the nodes and runs that it had before, if it was killed."""
        server, certificates = self._parties.server, self._certificates
        at = ("--host", "127.0.0.1", "--port", str(self._port), "--database", str(server / "flower.db"))
        protected = ["--insecure"]
        connection = f'[superlink.{_CONNECTION}]\naddress = "127.0.0.1:{self._port}"\n'
        if certificates is not None:
            protected = ["--ssl-ca-certfile", str(certificates.root), "--ssl-certfile", str(certificates.certificate)]
            protected += ["--ssl-keyfile", str(certificates.key), "--enable-supernode-auth"]
            connection += f'root-certificates = "{certificates.root}"\n'
        else:
            connection += "insecure = true\n"
        home = server / "flower"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(connection, encoding="utf-8")
        command = ["flower-superlink", *protected, *at, "--disable-runtime-dependency-installation"]
        self._processes.start("superlink", command, self._home(server))
        self._processes.until(lambda: listens(self._port), _STARTING_SECONDS, "the SuperLink did not answer")

    def _register(self, hospital: Hospital) -> None:
        """The server is told which key this hospital's SuperNode has."""
        public = make_node_key(hospital.node_key)
        command = ["flwr", "supernode", "register", str(public), _CONNECTION]
        self._processes.run("register", command, self._home(self._parties.server))

    def start_guard(self, hospital: Hospital) -> None:
        command = ["lrdp", "guard", "--policy", str(hospital.policy), "--data", str(hospital.data)]
        command += ["--socket", str(socket_of(hospital)), "--code", str(CODE)]
        # One thread: the guards of all hospitals share this machine.
        self._processes.start(f"{hospital.name}-guard", command, {"OMP_NUM_THREADS": "1"})

    def await_guard(self, hospital: Hospital) -> None:
        """A guard listens when it has checked policy, keys, ledger, model and records."""
        self._processes.until(
            socket_of(hospital).is_socket, _STARTING_SECONDS, f"the guard of {hospital.name} did not listen"
        )

    def start_supernode(self, hospital: Hospital) -> None:
        command = ["flower-supernode", "--superlink", f"127.0.0.1:{self._port}", "--host", "127.0.0.1"]
        command += ["--port", str(self._ports[hospital]), "--node-config", f'guard="{socket_of(hospital)}"']
        if self._certificates is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._certificates.root)]
            command += ["--auth-supernode-private-key", str(hospital.node_key)]
        self._processes.start(f"{hospital.name}-supernode", command, self._home(hospital.folder))

    def kill_server_app(self) -> None:
        """SIGKILL for the app that makes rounds, and for the `flwr run` that shows what it says."""
        home = f"FLWR_HOME={self._home(self._parties.server)['FLWR_HOME']}"
        self._processes.kill_all(home, _SERVER_APP)
        self._processes.kill(RUN)

    def kill_server(self) -> None:
        """The same for all that runs on the server's machine."""
        self._processes.kill_all(f"FLWR_HOME={self._home(self._parties.server)['FLWR_HOME']}")

    def kill(self, hospital: Hospital) -> None:
        """SIGKILL for a hospital's SuperNode, its app and its guard."""
        for part in ("supernode", "guard"):
            self._processes.kill(f"{hospital.name}-{part}")

    def restart(self, hospital: Hospital) -> None:
        """On another port: a killed process may leave the old one busy for a while."""
        self._ports[hospital] = free_ports(1)[0]
        self.start_guard(hospital)
        self.start_supernode(hospital)

    def begin(self, run: Run) -> None:
        """`flwr run`, which goes on until the run is over."""
        asked = {
            "num-server-rounds": run.rounds,
            "local-steps": run.local_steps,
            "timeout": run.timeout,
            "server-folder": f'"{self._parties.server}"',
            "registry": f'"{self._parties.registry}"',
        }
        settings = " ".join(f"{key}={value}" for key, value in asked.items())
        command = ["flwr", "run", str(APP), _CONNECTION, "--stream", "--run-config", settings]
        self._processes.start(RUN, command, self._home(self._parties.server))

    def finish(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for the run; what was reported of each of its rounds."""
        self._processes.wait(RUN, seconds)
        return self.reports()

    def reports(self) -> list[dict[str, Any]]:
        """Of the rounds so far."""
        started = _STARTED_RUN.search(self._processes.log(RUN).read_text(encoding="utf-8", errors="replace"))
        path = self._parties.server / f"rounds-{started[1] if started else None}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def receipts(self) -> Path:
        """Those of the run, in one file."""
        found = list(self._parties.server.glob("receipts-*.txt"))
        if len(found) != 1:
            raise DeploymentFailed(f"one run leaves one file of receipts, found {len(found)}.")
        return found[0]

    def _home(self, folder: Path) -> dict[str, str]:
        """Flower keeps apps and connections in a folder of its own for each party."""
        return {"FLWR_HOME": str(folder / "flower")}


def socket_of(hospital: Hospital) -> Path:
    """Where the guard listens."""
    return hospital.folder / "guard.sock"
