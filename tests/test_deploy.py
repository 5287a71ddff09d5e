"""The files in deploy/: valid, true to each other and to the real commands, and without a network for the guard.

No container engine, systemd or cluster is started here. A slow test runs the guard under the same restrictions.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import kubernetes_validate
import numpy as np
import pytest
import yaml

from deployed import (
    CODE,
    DATA,
    DEPLOY,
    HOME,
    METRICS,
    SOCKET,
    USERS,
    directives,
    of_compose,
    of_kubernetes,
    of_systemd,
    resources,
    settings,
    texts,
)
from images import copied, let_in
from lrdp.accounting import Budget, Training
from lrdp.commands.pilot_compose import compose_files
from lrdp.experiments.digits import records, share, stated_size
from lrdp.federation import found
from lrdp.integrity import load_identity, read_card
from lrdp.integrity.cards import card
from lrdp.ledger import read_policy
from lrdp.version import __version__

ROOT = DEPLOY.parent
BIN = Path(sys.executable).parent
ROLES = {"guard": "lrdp guard", "supernode": "flower-supernode", "superlink": "flower-superlink"}
READERS = {"compose": of_compose, "systemd": of_systemd, "kubernetes": of_kubernetes}
PARTS = [part for form, read in READERS.items() for part in read(texts(form)) if part.role in ROLES]
CONTAINERFILE, IGNORED = ((DEPLOY / f"Containerfile{end}").read_text(encoding="utf-8") for end in ("", ".dockerignore"))
each_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.form}-{part.role}")


def complaints(part):
    """What is wrong with a part; nothing, for each that is shipped."""
    guard, supernode = part.role == "guard", part.role == "supernode"
    wrong = {
        "it is not hardened": not part.hardened,
        "it does not come back": not part.restarts,
        "it is somebody else": part.user != ("lrdp" if guard else "flower"),
        "the guard has a network": guard and part.networked,
        "others have none": not guard and not part.networked,
        "the guard writes to records or code": guard and (part.writes(DATA) or part.writes(CODE)),
        "the guard lacks records, ledger or socket": guard
        and not (part.sees(DATA) and part.writes(HOME) and part.writes(SOCKET)),
        "the guard shows its metrics to nobody": guard
        and not part.writes(part.options.get("--metrics-file", "nowhere")),
        "an app sees the metrics": not guard and part.sees(METRICS),
        "the guard cannot hand over its socket": guard and "flower" not in part.groups,
        "an app sees records, code or ledger": not guard and any(map(part.sees, (DATA, CODE, f"{HOME}/hospital"))),
        "the SuperNode does not see the socket, or writes beside it": supernode
        and (not part.sees(SOCKET) or part.writes(SOCKET)),
        "an app is in the guard's group": not guard and "lrdp" in part.groups,
    }
    return [words for words, holds in wrong.items() if holds]


@each_part
def test_every_part_is_kept_apart(part):
    assert complaints(part) == []


def test_every_form_has_every_part():
    for form in READERS:
        assert {part.role for part in PARTS if part.form.startswith(form)} == set(ROLES)
    assert sum(part.form == "compose/pilot.yaml" and part.role == "guard" for part in PARTS) == 3


def mutated(form, file, old, new):
    files = texts(form)
    assert files[file].count(old) >= 1
    changed = {**files, file: files[file].replace(old, new)}
    return {words for part in READERS[form](changed) if part.role in ROLES for words in complaints(part)}


READ_ONLY = "target: /srv/lrdp/data, read_only: true"


@pytest.mark.parametrize(
    ("form", "file", "old", "new", "found"),
    [
        ("compose", "hospital.yaml", "network_mode: none", "networks: [outside]", "the guard has a network"),
        ("compose", "hospital.yaml", "network_mode: none", "network_mode: host", "the guard has a network"),
        ("compose", "hospital.yaml", READ_ONLY, "target: /srv/lrdp/data", "the guard writes to records or code"),
        ("compose", "pilot.yaml", READ_ONLY, "target: /srv/lrdp/data", "the guard writes to records or code"),
        ("compose", "hospital.yaml", "cap_drop: [ALL]", "cap_drop: []", "it is not hardened"),
        ("compose", "hospital.yaml", 'user: "10001:10001"', 'user: "0:0"', "it is somebody else"),
        ("compose", "hospital.yaml", 'group_add: ["10002"]', "group_add: []", "the guard cannot hand over its socket"),
        (
            "compose",
            "hospital.yaml",
            "source: ./supernode, target: /etc/lrdp/supernode",
            "source: ./data, target: /srv/lrdp/data",
            "an app sees records, code or ledger",
        ),
        ("systemd", "lrdp-guard.service", "PrivateNetwork=yes", "PrivateNetwork=no", "the guard has a network"),
        ("systemd", "lrdp-guard.service", "AF_UNIX\n", "AF_UNIX AF_INET\n", "the guard has a network"),
        (
            "systemd",
            "lrdp-guard.service",
            "ReadWritePaths=/run/lrdp",
            "ReadWritePaths=/run/lrdp /srv/lrdp/data",
            "the guard writes to records or code",
        ),
        ("systemd", "lrdp-supernode.service", "-/srv/lrdp\n", "\n", "an app sees records, code or ledger"),
        ("systemd", "lrdp-supernode.service", f"-{METRICS} ", "", "an app sees the metrics"),
        ("systemd", "lrdp-guard.service", f"/run/lrdp {METRICS}", "/run/lrdp", "the guard shows its metrics to nobody"),
        (
            "compose",
            "hospital.yaml",
            "source: ./supernode, target: /etc/lrdp/supernode",
            f"source: ./metrics, target: {METRICS}",
            "an app sees the metrics",
        ),
        (
            "kubernetes",
            "hospital.yaml",
            f"--metrics-file={METRICS}",
            "--log=/tmp",
            "the guard shows its metrics to nobody",
        ),
        ("systemd", "lrdp-supernode.service", "ProtectSystem=strict", "ProtectSystem=full", "it is not hardened"),
        ("kubernetes", "hospital.yaml", "egress: []", "egress: [{}]", "the guard has a network"),
        ("kubernetes", "hospital.yaml", "matchLabels: {app: supernode}}\n  p", "}\n  p", "the guard has a network"),
        (
            "kubernetes",
            "hospital.yaml",
            "automountServiceAccountToken: false",
            "automountServiceAccountToken: false\n      hostNetwork: true",
            "the guard has a network",
        ),
        ("kubernetes", "hospital.yaml", f"{DATA}, readOnly: true", DATA, "the guard writes to records or code"),
        ("kubernetes", "hospital.yaml", "readOnlyRootFilesystem: true", "privileged: true", "it is not hardened"),
    ],
)
def test_control_what_would_open_a_part_is_found(form, file, old, new, found):
    assert found in mutated(form, file, old, new)


# ------------------------------------------------------------------------------------------------------------ commands
@pytest.fixture(scope="module")
def helps():
    """What each real command says of itself, by its name."""
    asked = {}
    for command in ROLES.values():
        program, *rest = command.split()
        words = [str(BIN / program), *rest, "--help"]
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        asked[command] = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
    return asked


def unknown(part, helps):
    """Options that the command does not have, or gives up soon."""
    described = re.split(r"\n[ │*]+(?=--)", helps[ROLES[part.role]])
    current = {re.findall(r"(?m)\A--[a-z-]+", each)[0] for each in described[1:] if "eprecated" not in each}
    return sorted(part.options.keys() - current)


@each_part
def test_every_option_is_one_of_the_real_command(part, helps):
    assert " ".join(part.command).startswith(ROLES[part.role] + " ")
    assert part.options
    assert unknown(part, helps) == []


def test_control_options_that_are_not_there_or_deprecated_are_found(helps):
    text = texts("compose")["hospital.yaml"].replace("--json", "--jsonl").replace("--port=9094", "--fleet=1")
    text = text.replace("--host=127.0.0.1", "--auth-supernode-public-key=/key.pub")
    found = [
        name for part in of_compose({"hospital.yaml": text}) if part.role in ROLES for name in unknown(part, helps)
    ]
    assert sorted(found) == ["--auth-supernode-public-key", "--fleet", "--jsonl"]


@pytest.mark.parametrize("role", ROLES)
def test_the_forms_start_each_part_alike(role):
    commands = {tuple(sorted(part.command)) for part in PARTS if part.role == role}
    assert len(commands) == 1


def test_the_transport_is_encrypted_and_nodes_are_known():
    for part in PARTS:
        assert "--insecure" not in part.options
        assert "--allow-runtime-dependency-installation" not in part.options
        if part.role == "supernode":
            assert {"--root-certificates", "--auth-supernode-private-key"} <= part.options.keys()
        if part.role == "superlink":
            assert {"--enable-supernode-auth", "--ssl-certfile", "--ssl-keyfile"} <= part.options.keys()


@each_part
def test_every_path_of_a_command_is_there(part):
    values = {name: value.removeprefix('guard="').removesuffix('"') for name, value in part.options.items()}
    paths = {name: value for name, value in values.items() if value.startswith("/")}
    assert paths
    assert [name for name, path in paths.items() if not part.sees(path)] == []


# --------------------------------------------------------------------------------------------------------------- forms
def valid_compose(*files):
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_compose_files_are_of_the_specification(tmp_path):
    assert valid_compose(*(DEPLOY / "compose").iterdir()).returncode == 0
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(texts("compose")["hospital.yaml"].replace("cap_drop", "cap_dropped"), encoding="utf-8")
    assert "cap_dropped" in valid_compose(wrong).stdout


NAMES = ["hospital-0", "hospital-1", "hospital-2"]
ODD_NAMES = ["guard-0", "st.elsewhere", "a_b", "socket-0", "hospital-0", "name"]


def test_a_founded_pilot_runs_what_the_shipped_one_runs(tmp_path):
    shipped = [part for part in of_compose(texts("compose")) if part.form == "compose/pilot.yaml"]
    made = [part for part in of_compose(_yaml(compose_files(NAMES))) if part.form == "compose/pilot.yaml"]
    same = ("role", "command", "user", "groups", "networked", "hardened", "restarts")
    for ours, theirs in zip(made, shipped, strict=True):
        assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]
        assert set(theirs.places.items()) <= set(ours.places.items())


@pytest.mark.parametrize("names", [NAMES, ODD_NAMES])
def test_the_compose_files_of_a_founded_pilot_are_valid_apart_and_read_its_folders(tmp_path, names):
    files = compose_files(names)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert valid_compose(*tmp_path.glob("*.yaml")).returncode == 0
    parts = [part for part in of_compose(_yaml(files)) if part.role in ROLES]
    assert [words for part in parts for words in complaints(part)] == []
    given = yaml.safe_load(files["pilot.yaml"])
    assert {name for name in given["services"] if name.startswith("guard-")} == {f"guard-{name}" for name in names}
    sources = {}
    for name in names:
        volumes = {volume["target"]: volume for volume in given["services"][f"guard-{name}"]["volumes"]}
        assert volumes["/var/lib/lrdp/hospital"]["source"] == f"../clients/{name}"
        assert (volumes[DATA]["source"], volumes[CODE]["source"]) == (f"./{name}/data", "../code")
        sources[name] = {volumes[place]["source"] for place in (HOME, SOCKET, METRICS)}
        assert sources[name] <= given["volumes"].keys()
    assert len(set().union(*sources.values())) == 3 * len(names), "no two hospitals share a volume"
    assert "build:" not in "".join(files.values())


def test_a_founded_pilot_says_how_its_images_are_built():
    """From the source archive: the wheel that founded it does not hold what images are made of."""
    pilot = compose_files(NAMES)["pilot.yaml"]
    lines = re.findall(r"^#   docker build .*$", CONTAINERFILE, re.MULTILINE)
    assert len(lines) == 2
    assert re.findall(r"^#   docker build .*$", pilot, re.MULTILINE) == lines
    assert f"lrdp-{__version__}.tar.gz" in pilot


def _yaml(files):
    return {name: text for name, text in files.items() if name.endswith(".yaml")}


def test_in_containers_the_metrics_are_for_a_group_that_no_part_is_in():
    """An exporter of the hospital's own is: neither the SuperNode nor, which needs it as little, the guard."""
    for file, name in (("hospital.yaml", "metrics"), ("pilot.yaml", "metrics-0")):
        made = yaml.safe_load(texts("compose")[file])["volumes"][name]["driver_opts"]["o"].split(",")
        assert {"uid=10001", "gid=10003", "mode=0750"} <= set(made)
    assert 10003 not in USERS


def test_compose_names_no_volume_or_network_that_it_does_not_make():
    for text in texts("compose").values():
        given = yaml.safe_load(text)
        used = [volume for service in given["services"].values() for volume in service.get("volumes", [])]
        assert {volume["source"] for volume in used if volume["type"] == "volume"} <= given["volumes"].keys()


def test_kubernetes_manifests_are_of_its_schema_without_a_field_too_many():
    found = resources(texts("kubernetes"))
    for resource in found:
        kubernetes_validate.validate(resource, "1.32", strict=True)
    (guard,) = [each for each in found if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "guard"]
    context = guard["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    context["readOnlyRootFileSystem"] = context.pop("readOnlyRootFilesystem")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(guard, "1.32", strict=True)


def test_the_pods_of_a_hospital_meet_on_one_node_and_keys_keep_their_modes():
    pods = {each["metadata"]["name"]: each for each in resources(texts("kubernetes")) if each["kind"] == "Deployment"}
    spec = pods["supernode"]["spec"]["template"]["spec"]
    (near,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert near == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "guard"}}}
    text = texts("kubernetes")["hospital.yaml"]
    assert text.count("fsGroup: ") == text.count("fsGroupChangePolicy: OnRootMismatch") == 2


def test_a_hospitals_volumes_are_filled_by_the_guards_own_user_without_a_network():
    (setup,) = [part for part in of_kubernetes(texts("kubernetes")) if part.role == "setup"]
    assert (setup.user, setup.hardened, setup.networked) == ("lrdp", True, False)
    assert all(map(setup.writes, (HOME, DATA, CODE)))


def test_the_documented_commands_fill_them(tmp_path):
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    block = next(part for part in text.split("```") if "\nsetup sh -c" in part).replace("\\\n", "")
    home, public = tmp_path / "home", tmp_path / "tmp"
    for place in (home, public, tmp_path / "srv/lrdp/code", tmp_path / "srv/lrdp/data"):
        place.mkdir(parents=True)
    training = Training(dataset_size=100, batch_size=8, rounds=2, local_steps=2, budget=Budget(epsilon=8.0, delta=1e-3))
    made = found(tmp_path / "pilot", {f"hospital-{number}": training for number in range(3)})
    shutil.copy(made.registry_file, tmp_path / "registry.json")
    (tmp_path / "digits_task.py").write_text("task = None\n", encoding="utf-8")
    (tmp_path / "records.npz").write_bytes(b"records")
    show = [BIN / "lrdp", "keys", "show", tmp_path / "pilot/server/identity.pem", "--json"]
    (tmp_path / "server.json").write_bytes(subprocess.run(show, capture_output=True, check=True).stdout)
    lines = [line for line in block.splitlines() if line and not line.startswith("kubectl")]
    assert all(line.lstrip("(").startswith(("setup ", "umask 077; setup ")) for line in lines)
    function = f'setup() {{ (cd {home} && "$@"); }}'
    placed = "\n".join(lines).replace("/tmp/", f"{public}/").replace("/srv/", f"{tmp_path}/srv/")
    script = "\n".join(["set -e", function, placed])
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert read_policy(home / "hospital/policy.toml").task == "digits_task:task"
    assert (home / "hospital").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "administrator.pem").stat().st_mode & 0o777 == 0o600
    assert not (home / "hospital/keys/administrator.pem").exists()
    assert (tmp_path / "srv/lrdp/data/records.npz").read_bytes() == b"records"


def run_of_compose(service, folder, places):
    """The documented lines for a service, run here with its paths in ``folder``."""
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if re.match(rf"\(?[a-z0-7; ]*\w+ run --rm .*\b{service} ", line)]
    functions = (f'{name}() {{ while [ "$1" != {service} ]; do shift; done; shift; "$@"; }}' for name in SHORT)
    script = "\n".join(["set -e", *functions, *lines])
    for place, here in places.items():
        script = script.replace(place, here)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, check=True)


SHORT = ("hospital", "server")
"""What the page calls the two compose files."""


def test_the_documented_commands_make_the_servers_keys(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "registry.json").write_text("{}", encoding="utf-8")
    run_of_compose("superlink", tmp_path, {"/var/lib/lrdp-server": "kept"})
    assert load_identity(tmp_path / "kept/identity.pem").member == read_card((tmp_path / "server.json").read_text())
    assert (tmp_path / "kept/registry.json").read_text() == "{}"
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert set(re.findall(r'="(/var/[^"]+)"', text)) == {"/var/lib/lrdp-server", "/var/lib/lrdp-server/registry.json"}


def test_the_documented_commands_set_a_hospital_up_in_compose(tmp_path):
    training = Training(dataset_size=100, batch_size=8, rounds=2, local_steps=2, budget=Budget(epsilon=8.0, delta=1e-3))
    made = found(tmp_path / "pilot", {f"hospital-{number}": training for number in range(3)})
    public = tmp_path / "public"
    public.mkdir()
    shutil.copy(made.registry_file, public)
    (public / "server.json").write_text(json.dumps(card(made.server_identity().member)), encoding="utf-8")
    run_of_compose("setup", tmp_path, {"/etc/lrdp/public": "public"})
    assert read_policy(tmp_path / "hospital/policy.toml").peers.registry_sha256 == made.registry().digest.hex()
    assert read_card((tmp_path / "hospital-0.json").read_text()).name == "hospital-0"
    assert (tmp_path / "administrator.pem").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "hospital/keys/administrator.pem").exists()


def test_no_network_is_said_where_there_is_none_and_not_where_an_address_answers(tmp_path):
    script = DEPLOY / "no_network.py"
    alone = subprocess.run(["unshare", "-rn", sys.executable, script], capture_output=True, text=True, check=False)
    if "unshare" in alone.stderr:
        pytest.skip("this machine lets nobody leave its network")
    assert alone.stdout.splitlines()[-1] == "no network"
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        host, port = cluster.getsockname()
        settings = {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there IS a network" in done.stderr


def analysed(folder, *words):
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_knows_every_line_of_the_units(tmp_path):
    for name, text in texts("systemd").items():
        if name.endswith(".service"):
            (tmp_path / name).write_text(text.replace("/opt/lrdp/bin/", f"{BIN}/"), encoding="utf-8")
    units = sorted(f"./{path.name}" for path in tmp_path.iterdir())
    assert analysed(tmp_path, "verify", "--man=no", *units).stderr == ""
    for unit in units:
        assert analysed(tmp_path, "security", "--offline=true", "--threshold=20", unit).returncode == 0
    wrong = tmp_path / "lrdp-guard.service"
    wrong.write_text(wrong.read_text(encoding="utf-8").replace("PrivateNetwork", "PrivateNet"), encoding="utf-8")
    assert "PrivateNet" in analysed(tmp_path, "verify", "--man=no", "./lrdp-guard.service").stderr


def test_systemd_makes_the_users_that_the_units_name():
    made = re.findall(r"^u (\w+)", texts("systemd")["lrdp.sysusers"], re.MULTILINE)
    assert set(made) == {name for text in texts("systemd").values() for name in directives(text).get("User", [])}
    assert "m lrdp flower\n" in texts("systemd")["lrdp.sysusers"]
    assert "m flower lrdp" not in texts("systemd")["lrdp.sysusers"]
    assert f"d {SOCKET} 0750 lrdp flower -" in texts("systemd")["lrdp.tmpfiles"]
    assert f"d {METRICS} 0750 lrdp lrdp-metrics -" in texts("systemd")["lrdp.tmpfiles"]
    assert "g lrdp-metrics -\n" in texts("systemd")["lrdp.sysusers"]
    assert "m flower lrdp-metrics" not in texts("systemd")["lrdp.sysusers"]


def test_systemd_makes_every_folder_without_which_the_guard_does_not_start():
    made = re.findall(r"^d (\S+) ", texts("systemd")["lrdp.tmpfiles"], re.MULTILINE)
    needed = directives(texts("systemd")["lrdp-guard.service"])
    paths = " ".join([*needed["ReadOnlyPaths"], *needed["ReadWritePaths"], *needed["RequiresMountsFor"]]).split()
    assert {"/srv/lrdp", SOCKET} <= set(paths)
    assert [path for path in paths if not any(f"{folder}/".startswith(f"{path}/") for folder in made)] == []


# -------------------------------------------------------------------------------------------------------------- images
def faults(text):
    """Of a Containerfile: the few that matter here."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    bases = [line for line in lines if line.startswith("FROM") and line.split()[1] not in stages]
    installs = [line for line in lines if "pip install" in line and line.startswith("RUN")]
    bodies = {body.split("\n")[0]: body for body in re.split(r"^FROM .* AS ", text, flags=re.MULTILINE)}
    users = {stage: re.findall(r"^USER (.*)$", bodies[stage], re.MULTILINE) for stage in ("guard", "flower")}
    return [
        *(line for line in bases if not re.search(r":\d+\.\d+\.\d+-[a-z-]+ ", line)),
        *(line for line in lines if line.startswith("ADD")),
        *(line for line in lines if re.match(r"(?i)(ARG|ENV) .*(secret|token|passw|private)", line)),
        *(line for line in lines if line.startswith("RUN") and re.search(r"\bsudo\b|chmod 777|curl|wget", line)),
        *(line for line in installs if not {"--no-cache-dir", "--constraint"} <= set(line.split())),
        *(stage for stage, named in users.items() if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", (named or [""])[-1])),
    ]


def test_images_are_pinned_without_secrets_and_not_run_as_root():
    assert faults(CONTAINERFILE) == []
    made = {int(number): name for number, name in re.findall(r"--uid (\d+) --gid .* (\w+) \\?\n?", CONTAINERFILE)}
    assert made == USERS
    assert {int(number): name for number, name in re.findall(r"--gid (\d+) (\w+)", CONTAINERFILE)} == USERS


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("python:3.11.14-slim-bookworm", "python:latest"),
        ("USER 10001:10001", "USER 0:0"),
        ("USER 10002:10002\n", ""),
        ("ARG PIP_EXTRA_INDEX_URL", "ARG INDEX_TOKEN"),
        ("--constraint constraints.txt", ""),
        ("COPY src src", "ADD src src"),
    ],
)
def test_control_a_careless_image_is_found(old, new):
    assert old in CONTAINERFILE
    assert faults(CONTAINERFILE.replace(old, new)) != []


def test_images_are_made_of_files_and_extras_that_are_there():
    sources = {name for names, _ in copied(CONTAINERFILE) for name in names}
    kept = {line[1:] for line in IGNORED.splitlines() if line[:1] == "!"}
    assert sources == kept
    assert all((ROOT / name).exists() for name in sources)
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = given["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"]} <= {"src/lrdp", *sources}
    named = re.findall(r"_EXTRAS=(\S+)", CONTAINERFILE)
    assert named
    assert {extra for words in named for extra in words.split(",")} <= given["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize(
    ("path", "within"),
    [
        ("src/lrdp/cli.py", True),
        ("deploy/compose/pilot.yaml", True),
        ("deploy/pilot.env", True),
        ("deploy/hospital.env", False),
        ("src/lrdp/__pycache__/cli.pyc", False),
        ("hospital-0/keys/identity.pem", False),
        ("ledger.db", False),
    ],
)
def test_no_key_and_no_ledger_that_lies_about_gets_into_a_build(path, within):
    assert let_in(PurePosixPath(path), IGNORED) is within


def test_images_have_one_name_and_the_release_of_the_package():
    (version,) = re.findall(r'"(\d+\.\d+)', (ROOT / "src/lrdp/version.py").read_text(encoding="utf-8"))
    named = [
        name
        for form in ("compose", "kubernetes")
        for text in texts(form).values()
        for name in re.findall(r"image: (\S+)", text)
    ]
    assert set(named) == {f"lrdp-guard:{version}", f"lrdp-flower:{version}"}
    assert set(re.findall(r"--tag (\S+)", CONTAINERFILE)) == set(named)


def test_the_kubernetes_settings_are_those_of_the_other_forms():
    (given,) = [each["data"] for each in resources(texts("kubernetes")) if each["kind"] == "ConfigMap"]
    assert given == settings()
    assert settings("pilot.env").keys() == {*settings(), "LRDP_LISTEN"}


# ------------------------------------------------------------------------------------------------------------ for real
JAIL = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 none /var/lib
mount -t tmpfs -o mode=755 none /srv
mkdir -p /var/lib/lrdp /var/lib/lrdp-metrics /srv/lrdp/data /srv/lrdp/code
mount --bind "$1/home" /var/lib/lrdp
mount --bind "$1/metrics" /var/lib/lrdp-metrics
mount --bind "$1/data" /srv/lrdp/data
mount --bind "$1/code" /srv/lrdp/code
mount --bind "$1/group" /etc/group
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/lrdp /run/scratch
mount --bind "$1/run" /run/lrdp
mount -t tmpfs -o mode=1777,noexec,nosuid,nodev none /run/scratch
for place in / /var/lib /srv /run /srv/lrdp/data /srv/lrdp/code; do mount -o remount,bind,ro "$place"; done
mount -t proc -o hidepid=invisible proc /proc
export HOME=/run/scratch TMPDIR=/run/scratch PYTHONDONTWRITEBYTECODE=1
shift
exec setpriv --reuid 10001 --regid 10001 --groups 10001,10002 --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
"""The restrictions of the three forms, by hand: no network, and nothing to write to but ledger, socket and scratch."""


def prepared(folder):
    """A hospital as the page on deployment sets it up, whose files belong to the guard's user."""
    places = [folder / name for name in ("home", "run", "data", "code", "metrics")]
    for place in places:
        place.mkdir()
    training = Training(
        dataset_size=stated_size(4), batch_size=32, rounds=2, local_steps=1, budget=Budget(epsilon=8.0, delta=1e-4)
    )
    made = found(folder / "consortium", {f"hospital-{number}": training for number in range(4)}).client("hospital-0")
    home, run, data, code, metrics = places
    shutil.copytree(made.folder, home / "hospital")
    (home / "hospital").chmod(0o700)
    policy = home / "hospital" / "policy.toml"
    policy.write_text(policy.read_text(encoding="utf-8") + '\n[task]\nmodule = "digits_task:task"\n', encoding="utf-8")
    shutil.copy(ROOT / "apps/digits/hospital/digits_task.py", code)
    dealt = records({"partition-id": 0, "num-partitions": 4})
    images, labels = dealt.columns_at(np.arange(share(4)))
    np.savez(data / "records.npz", images=images.numpy(), labels=labels.numpy())
    (folder / "group").write_text("root:x:0:\nlrdp:x:10001:\nflower:x:10002:lrdp\n", encoding="utf-8")
    for path in [home, *home.rglob("*")]:
        os.chown(path, 10001, 10001)
    os.chown(metrics, 10001, 10003)
    metrics.chmod(0o750)
    os.chown(run, 10001, 10002)
    run.chmod(0o750)
    home.chmod(0o700)


def listens_by(test, table):
    """What the health check of a form says of a table of sockets."""
    *words, pattern, _table = test
    assert words == ["grep", "-q"]
    return subprocess.run([*words, pattern.replace("$$", "$")], input=table, text=True, check=False).returncode == 0


def probes():
    """How each form finds out whether its guard listens."""
    compose = yaml.safe_load(texts("compose")["hospital.yaml"])["services"]["guard"]["healthcheck"]["test"]
    (pod,) = [each for each in resources(texts("kubernetes")) if each["metadata"]["name"] == "guard"]
    return compose[1:], pod["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]


@contextmanager
def jailed(folder):
    """The guard in there, and its number out here, after it has said that it guards."""
    (part,) = [part for part in PARTS if (part.form, part.role) == ("compose/hospital.yaml", "guard")]
    apart = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c", JAIL, "sh", folder]
    words = [*map(str, apart), sys.executable, "-m", *part.command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        (inner,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        try:
            assert '"guarding hospital-0' in said
            yield Path("/proc") / inner
        finally:
            os.kill(int(inner), signal.SIGTERM)
    assert process.returncode == 0
    assert (folder / "errors").read_text() == "Stopped: nothing is open.\n"


@pytest.fixture
def jail():
    with tempfile.TemporaryDirectory(prefix="lrdp-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a process its network and its file systems")
def test_the_guard_runs_with_all_that_is_taken_from_it(jail):
    prepared(jail)
    door = jail / "run" / "guard.sock"
    with jailed(jail) as process:
        sockets, devices, status = ((process / name).read_text() for name in ("net/unix", "net/dev", "status"))
        made = door.stat()
        let_in, kept_out = (
            subprocess.run(
                ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", PYTHON, "-c", KNOCK, str(door)],
                capture_output=True,
                check=False,
            ).returncode
            for user in (10002, 10003)
        )
    for probe in probes():
        assert listens_by(probe, sockets)
        assert not listens_by(probe, sockets.replace(" 00010000 ", " 00000000 "))
    assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"]
    assert re.search(r"^CapBnd:\s0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s1$", status, re.MULTILINE)
    assert (made.st_uid, made.st_gid, made.st_mode & 0o777) == (10001, 10002, 0o660)
    assert let_in == 0
    assert kept_out != 0
    assert "lrdp_guard_rounds_left 2" in (jail / "metrics" / "guard.prom").read_text()


PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or "python3"
KNOCK = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1])"
