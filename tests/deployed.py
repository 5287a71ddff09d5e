"""The files in deploy/, of whichever form, read into one: what runs, as whom, and what it sees, writes and reaches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
USERS = {10001: "lrdp", 10002: "flower"}
"""As the Containerfile makes them; a test compares."""
DATA, CODE, HOME, SOCKET = "/srv/lrdp/data", "/srv/lrdp/code", "/var/lib/lrdp", "/run/lrdp"
METRICS = "/var/lib/lrdp-metrics"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of the field. ``places`` has each path that it sees, and whether it may write there."""

    form: str
    role: str
    command: tuple[str, ...]
    user: str
    groups: frozenset[str]
    networked: bool
    places: Mapping[str, bool]
    hardened: bool
    restarts: bool

    def sees(self, path: str) -> bool:
        return self._place(path) is not None

    def writes(self, path: str) -> bool:
        place = self._place(path)
        return place is not None and self.places[place]

    def _place(self, path: str) -> str | None:
        around = [place for place in self.places if Path(path).is_relative_to(place)]
        return max(around, key=len, default=None)

    @property
    def options(self) -> dict[str, str]:
        """Those of the command line, settings filled in."""
        pairs = [word.partition("=") for word in self.command if word.startswith("--")]
        return {name: value for name, _, value in pairs}


def settings(name: str = "hospital.env") -> dict[str, str]:
    lines = (DEPLOY / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def texts(form: str) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((DEPLOY / form).iterdir())}


# ------------------------------------------------------------------------------------------------------------- compose
def of_compose(files: Mapping[str, str]) -> list[Part]:
    documents = {name: yaml.safe_load(text) for name, text in files.items()}
    return [
        _service(f"compose/{file}", name.split("-")[0], _extended(documents, file, name))
        for file, document in documents.items()
        for name in document["services"]
    ]


def _extended(documents: Mapping[str, Any], file: str, name: str) -> dict[str, Any]:
    """As compose merges: volumes by target, other lists one after the other, the rest replaced."""
    given = dict(documents[file]["services"][name])
    if "extends" not in given:
        return given
    named = given.pop("extends")
    merged = _extended(documents, named["file"], named["service"])
    for key, value in given.items():
        merged[key] = _merged(key, merged.get(key), value)
    return merged


def _merged(key: str, before: Any, value: Any) -> Any:
    if key == "volumes":
        targets = {volume["target"] for volume in value}
        return [volume for volume in before or [] if volume["target"] not in targets] + value
    return (before or []) + value if isinstance(value, list) and key != "command" else value


def _service(form: str, role: str, given: Mapping[str, Any]) -> Part:
    user, group = (USERS.get(int(number), number) for number in given["user"].split(":"))
    places = {volume["target"]: not volume.get("read_only", False) for volume in given["volumes"]}
    return Part(
        form=form,
        role=role,
        command=tuple(_filled(word) for word in given["command"]),
        user=user,
        groups=frozenset({group, *(USERS[int(number)] for number in given.get("group_add", []))}),
        networked=given.get("network_mode") != "none" or "networks" in given or "ports" in given,
        places={**places, **{mount.split(":")[0]: True for mount in given.get("tmpfs", [])}},
        hardened=(
            given.get("read_only") is True
            and given.get("cap_drop") == ["ALL"]
            and not given.get("cap_add")
            and not given.get("privileged")
            and "no-new-privileges:true" in given.get("security_opt", [])
        ),
        restarts=given.get("restart") == "always",
    )


def _filled(word: str) -> str:
    return re.sub(r"\$\{(\w+)[^}]*\}|\$\((\w+)\)", lambda found: settings()[found[1] or found[2]], word)


# ------------------------------------------------------------------------------------------------------------- systemd
def directives(text: str) -> dict[str, list[str]]:
    """Of all sections; one that is given several times has several values, and an empty one is an empty text."""
    found: dict[str, list[str]] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def of_systemd(files: Mapping[str, str]) -> list[Part]:
    units = {name: directives(text) for name, text in files.items() if name.endswith(".service")}
    return [_unit(name, given) for name, given in units.items()]


def _unit(name: str, given: Mapping[str, list[str]]) -> Part:
    def words(key: str) -> list[str]:
        return " ".join(given.get(key, [])).split()

    def says(key: str, value: str) -> bool:
        return given.get(key) == [value]

    (started,) = given["ExecStart"]
    program, *rest = (_filled(word) for word in shlex.split(started))
    hidden = {path.lstrip("-") for path in words("InaccessiblePaths")}
    strict = says("ProtectSystem", "strict")
    known = (DATA, CODE, HOME, METRICS, "/var/lib/flower", SOCKET, "/etc/lrdp")
    places = {path: not strict for path in known if path not in hidden}
    places = {path: may for path, may in places.items() if not any(Path(path).is_relative_to(each) for each in hidden)}
    own = {f"/var/lib/{name}" for name in words("StateDirectory")} | set(words("ReadWritePaths"))
    return Part(
        form=f"systemd/{name}",
        role=name.removeprefix("lrdp-").removesuffix(".service"),
        command=(Path(program).name, *rest),
        user=given["User"][0],
        groups=frozenset({*given["Group"], *words("SupplementaryGroups")}),
        networked=not (says("PrivateNetwork", "yes") and says("RestrictAddressFamilies", "AF_UNIX")),
        places={**places, **dict.fromkeys(own, True)},
        hardened=strict and says("NoNewPrivileges", "yes") and says("CapabilityBoundingSet", ""),
        restarts=says("Restart", "always"),
    )


# ---------------------------------------------------------------------------------------------------------- Kubernetes
def resources(files: Mapping[str, str]) -> list[dict[str, Any]]:
    return [resource for text in files.values() for resource in yaml.safe_load_all(text)]


def of_kubernetes(files: Mapping[str, str]) -> list[Part]:
    known = resources(files)
    policies = [resource for resource in known if resource["kind"] == "NetworkPolicy"]
    pods = [resource for resource in known if resource["kind"] in ("StatefulSet", "Deployment", "Pod")]
    return [part for pod in pods for part in _pod(pod, policies)]


def _pod(workload: Mapping[str, Any], policies: list[dict[str, Any]]) -> Iterator[Part]:
    template = workload if workload["kind"] == "Pod" else workload["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    own = [policy["spec"] for policy in policies if _selects(policy, workload["metadata"]["namespace"], labels)]
    context = pod["securityContext"]
    for container in pod["containers"]:
        inner = container["securityContext"]
        yield Part(
            form=f"kubernetes/{workload['metadata']['namespace']}",
            role=container["name"],
            command=tuple(_filled(word) for word in [*container["command"], *container.get("args", [])]),
            user=USERS[context["runAsUser"]],
            groups=frozenset({USERS[context["runAsGroup"]], USERS[context["fsGroup"]]}),
            networked=_is_networked(pod, own),
            places={mount["mountPath"]: not mount.get("readOnly", False) for mount in container["volumeMounts"]},
            hardened=(
                context.get("runAsNonRoot") is True
                and context.get("seccompProfile") == {"type": "RuntimeDefault"}
                and inner.get("readOnlyRootFilesystem") is True
                and inner.get("allowPrivilegeEscalation") is False
                and inner.get("capabilities") == {"drop": ["ALL"]}
                and pod.get("automountServiceAccountToken") is False
            ),
            restarts=pod.get("restartPolicy", "Always") == "Always",
        )


def _selects(policy: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> bool:
    wanted = policy["spec"]["podSelector"].get("matchLabels", {})
    return policy["metadata"]["namespace"] == namespace and wanted.items() <= labels.items()


def _is_networked(pod: Mapping[str, Any], policies: list[dict[str, Any]]) -> bool:
    """Policies add up: one that denies is needed, and none may allow. Containers of a pod share its network."""
    denied = any({"Ingress", "Egress"} <= set(policy["policyTypes"]) for policy in policies)
    allowed = any(policy.get("egress") or policy.get("ingress") for policy in policies)
    return not denied or allowed or bool(pod.get("hostNetwork")) or len(pod["containers"]) > 1
