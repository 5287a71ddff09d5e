"""Compose files for a pilot that was founded: those of deploy/compose, with the parts of each hospital by its name.

Only deploy/ says what runs, as whom and with what. Here a hospital's three services of ``pilot.yaml`` are written once
for each hospital, and read the folders that `lrdp found` made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import Final

from lrdp.version import __version__

_FIRST, _SECOND, _AFTER = "  guard-0:\n", "  guard-1:\n", "networks:\n"
_BUILD: Final = re.compile(r"^ +build: .*\n", re.MULTILINE)
_NUMBERED: Final = re.compile(r"^  (?:hospital|socket|metrics)-\d+: .*\n", re.MULTILINE)
_HOME: Final = "      - {type: volume, source: hospital-0, target: /var/lib/lrdp}\n"
_FOUNDED: Final = (
    "      - {type: bind, source: ../clients/NAME, target: /var/lib/lrdp/hospital, bind: {create_host_path: false}}\n"
)
_SERVER: Final = "    extends: {file: server.yaml, service: superlink}\n"
_SERVER_FOLDERS: Final = """\
    volumes:
      - {type: bind, source: ../server, target: /var/lib/lrdp-server, bind: {create_host_path: false}}
      - type: bind
        source: ../registry.json
        target: /etc/lrdp/registry.json
        read_only: true
        bind: {create_host_path: false}
      - {type: bind, source: ../code, target: /srv/lrdp/app, read_only: true, bind: {create_host_path: false}}
"""
_HEAD: Final = f"""\
# This pilot on one machine, made by `lrdp found` from lrdp's deploy/compose/pilot.yaml: one person holds all keys here.
# Before it starts, beside this file: tls/ (ca.crt, server.crt, server.key) for the server, public/ for setup, and for
# each hospital NAME/data and NAME/supernode (key, ca.crt); docs/deployment.md says how to fill them. Then
#   chown -R 10001:10001 ../clients && chown -R 10002:10002 ../server
#   docker compose --env-file pilot.env --file pilot.yaml up --detach
#   flwr run ../app CONNECTION --stream --run-config \\
#     'server-folder="/var/lib/lrdp-server" registry="/etc/lrdp/registry.json" code="/srv/lrdp/app"'
# The server's certificate is for DNS:superlink and IP:127.0.0.1. The images are built in the folder that the source
# archive of this release, lrdp-{__version__}.tar.gz, unpacks to; a task may need packages beyond those of GUARD_EXTRAS:
#   docker build --file deploy/Containerfile --target guard --tag lrdp-guard:0.1 .
#   docker build --file deploy/Containerfile --target flower --tag lrdp-flower:0.1 .
"""


def compose_files(names: Sequence[str]) -> dict[str, str]:
    """The text of each file, by its name."""
    shipped = {name: _BUILD.sub("", _shipped(name)) for name in ("hospital.yaml", "server.yaml", "pilot.yaml")}
    return {**shipped, "pilot.yaml": _pilot(shipped["pilot.yaml"], names), "pilot.env": _shipped("pilot.env")}


def _pilot(text: str, names: Sequence[str]) -> str:
    before, rest = text.split(_FIRST)
    first, others = rest.split(_SECOND)
    after = _NUMBERED.sub("", others[others.index(_AFTER) :])
    block = (_FIRST + first).replace(_HOME, _HOME + _FOUNDED).replace("./hospital-0/code", "../code")
    before = before[before.index("name: ") :].replace(_SERVER, _SERVER + _SERVER_FOLDERS)
    volumes = "".join(
        f"  hospital-{number}: {{}}\n  socket-{number}: *socket\n  metrics-{number}: *metrics\n"
        for number, _ in enumerate(names)
    )
    services = "".join(_of_hospital(block, number, name) for number, name in enumerate(names))
    return f"{_HEAD}{before}{services}{after}{volumes}"


def _of_hospital(block: str, number: int, name: str) -> str:
    """Volumes are numbered, so that no two names of hospitals can be one volume; folders have the hospital's name."""
    block = block.replace("./hospital-0/", f"./{name}/").replace("/NAME", f"/{name}")
    block = re.sub(r"^  (guard|supernode|setup)-0:$", rf"  \1-{name}:", block, flags=re.MULTILINE)
    return re.sub(r"source: (hospital|socket|metrics)-0,", rf"source: \1-{number},", block)


def _shipped(name: str) -> str:
    """As it came with the package; in a checkout it lies in its folder ``deploy``."""
    installed = Path(str(resources("lrdp.commands"))) / "deploy" / name
    checkout = Path(__file__).parents[3] / "deploy"
    places = (installed, checkout / "compose" / name, checkout / name)
    return next(path for path in places if path.exists()).read_text(encoding="utf-8")
