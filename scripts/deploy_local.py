"""Deploy a consortium on this machine, run it, and check what came of it: TLS, node keys, guards, receipts.

    python scripts/deploy_local.py --hospitals 4 --rounds 3

Every party is a folder and a process of its own: a SuperLink for the server, a guard and a SuperNode for each hospital.
docs/deployment.md says whose command each of these is in a real consortium.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NoReturn

from local_deployment.deployment import Deployment, Run
from local_deployment.parties import Budgeting, Parties, demand_digits, ledger_of, parties_in, set_up, verified
from local_deployment.processes import DeploymentFailed, Processes, free_ports, refuse_taken

from lrdp.figures import AtMost

_FEWEST: Final = 3
_ROUND_SECONDS: Final = 480.0
_INTERRUPTED: Final = 130


def main() -> int:
    """Deploy; 0 if every round was verified."""
    given = _arguments()
    signal.signal(signal.SIGTERM, _stop)
    try:
        demand_digits()
        if given.port is not None:
            refuse_taken(given.port)
        if given.folder is not None:
            return deploy(given.folder, given)
        with tempfile.TemporaryDirectory(prefix="lrdp-") as folder:
            return deploy(Path(folder), given)
    except DeploymentFailed as problem:
        _complain(f"Error: {problem}")
        return 1
    except KeyboardInterrupt:
        _complain("Stopped: no process is left.")
        return _INTERRUPTED


def deploy(folder: Path, given: argparse.Namespace) -> int:
    """Set up, start, run, check; whatever happens, every process ends."""
    parties = parties_in(folder.resolve(), given.hospitals)
    with Processes(parties.folder / "logs") as processes:
        _say(f"Setting up {given.hospitals} hospitals, a server and a consortium's office in {folder}.")
        budgeting = Budgeting(rounds=2 * given.rounds, local_steps=given.local_steps, epsilon=given.epsilon)
        digest = set_up(parties, budgeting, processes)
        port = given.port or free_ports(1)[0]
        deployment = Deployment(parties, processes, port=port, secure=not given.insecure)
        _say(f"Starting a SuperLink on port {port} {_protection(given)}, guards and SuperNodes.")
        deployment.start()
        _say(f"Running {given.rounds} rounds.")
        deployment.begin(Run(rounds=given.rounds, local_steps=given.local_steps, timeout=_ROUND_SECONDS))
        reports = deployment.finish(_ROUND_SECONDS * (1 + given.rounds))
        audit = verified(deployment.receipts(), digest, processes)
        _print_rounds(reports)
        _print_books(parties, processes)
        _say(f"`lrdp verify`: {audit['rounds']} rounds hold, registry {digest[:16]}… as pinned.")
    return 0 if all(report["verified"] for report in reports) else 1


def _protection(given: argparse.Namespace) -> str:
    return "without TLS" if given.insecure else "with TLS and registered node keys"


def _print_rounds(reports: list[dict[str, Any]]) -> None:
    _say(f"\n{'round':>5}  {'took part':>9}  {'declined':>8}  outcome")
    for report in reports:
        outcome = "verified" if report["verified"] else f"NOT VERIFIED: {report['problem']}"
        took_part, declined = len(report["participants"]), len(report["declined"])
        _say(f"{report['model'] + 1:>5}  {took_part:>9}  {declined:>8}  {outcome}")


def _print_books(parties: Parties, processes: Processes) -> None:
    _say(f"\n{'hospital':<12}  {'ε spent':>8}  {'of':>5}  charges")
    for hospital in parties.hospitals:
        books = ledger_of(hospital, processes)
        charges = ", ".join(f"{count} {state}" for state, count in books["charges"].items() if count)
        spent, budget = books["guaranteed"]["epsilon"], books["budget"]["epsilon"]
        _say(f"{hospital.name:<12}  {AtMost(spent):>8.4f}  {budget:>5}  {charges}")
    _say("")


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--hospitals", type=int, default=4)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--local-steps", type=int, default=10)
    options.add_argument("--epsilon", type=float, default=8.0, help="each hospital's budget, for twice the rounds")
    options.add_argument("--port", type=int, help="the SuperLink's (default: one that is free)")
    options.add_argument("--folder", type=Path, help="keep everything in this new folder (default: a temporary one)")
    options.add_argument("--insecure", action="store_true", help="without TLS and without node keys")
    given = options.parse_args()
    if given.hospitals < _FEWEST:
        options.error(f"--hospitals must be at least {_FEWEST}, got {given.hospitals}: fewer could not hide in a sum.")
    if given.folder is not None and given.folder.exists() and any(given.folder.iterdir()):
        options.error(f"--folder must be new or empty, {given.folder} is not: keys and ledgers are never overwritten.")
    return given


def _stop(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(sentence: str) -> None:
    print(sentence, flush=True)  # noqa: T201 — it talks to whoever runs it


def _complain(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
