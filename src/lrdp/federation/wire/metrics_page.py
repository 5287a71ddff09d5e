"""Prometheus' text on loopback: what a guard or a server shows of itself on this machine, and nowhere else.

Every user of the machine can read it, so it holds only what its owner may show them: budgets, counts and times. Whoever
writes a page hands over its text; a reader is given that text, and reaches nothing else.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

from lrdp.errors import InvalidInput
from lrdp.figures import Figure

_PATH: Final = "/metrics"
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE_SECONDS: Final = 5.0
_STOPPING_SECONDS: Final = 2.0
_COUNTED: Final = "_total"
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = tuple[tuple[str, str], ...]
"""As in ``(("word", "budget"),)``."""
BARE: Final[Labels] = ()


@dataclass(frozen=True, kw_only=True)
class Family:
    """One metric with its values by their labels; a counter if its name says that it is a total."""

    name: str
    about: str
    values: Mapping[Labels, float] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        """As Prometheus reads it."""
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} {'counter' if self.name.endswith(_COUNTED) else 'gauge'}"
        for labels, value in sorted(self.values.items()):
            inside = ",".join(f'{name}="{given.translate(_ESCAPED)}"' for name, given in labels)
            yield f"{self.name}{{{inside}}} {_number(value)}" if inside else f"{self.name} {_number(value)}"


def exposition(families: Iterable[Family]) -> str:
    """The text of a page."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _number(value: float) -> str:
    """In full, so that no rounding can mislead; a figure that is not known is infinite, on the side where it warns."""
    if math.isnan(value) and isinstance(value, Figure):
        value = value.sign * math.inf
    return repr(float(value)) if math.isfinite(value) else format(float(value), "+").replace("inf", "Inf")


def loopback(address: str) -> tuple[str, int]:
    """Host and port of an address that only this machine reaches; raises InvalidInput for every other."""
    with suppress(ValueError):
        parts = urlsplit(f"//{address}")
        if (
            parts.port is not None
            and parts.netloc == address
            and "@" not in address
            and _is_loopback(parts.hostname or "")
        ):
            return str(parts.hostname), parts.port
    raise InvalidInput(
        f"metrics are shown at a loopback address alone, as in 127.0.0.1:9464 or [::1]:9464, got {address!r}: whoever "
        f"reaches the page reads what was spent; nothing was opened."
    )


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


class MetricsPage:
    """``GET /metrics`` at a loopback address, until it is closed; ``text`` is what is shown."""

    def __init__(self, address: str) -> None:
        host, port = loopback(address)
        page = self
        self.text = ""

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_SECONDS

            def do_GET(self) -> None:
                # A web page whose own domain was made to point here would send that name, not this machine's.
                known = self.path == _PATH and _named_here(self.headers.get("Host", ""))
                body = page.text.encode() if known else b""
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def version_string(self) -> str:
                return "lrdp"

            def log_message(self, *_: object) -> None:
                """Nobody's log."""

        class Server(TCPServer):
            """One reader at a time: whoever floods the page keeps others from it, and slows nothing else down."""

            address_family = AF_INET6 if ":" in host else AF_INET
            allow_reuse_address = True

            def handle_error(self, *_: object) -> None:
                """A reader that left."""

        try:
            self._server = Server((host, port), Handler)
        except OSError as problem:
            raise InvalidInput(
                f"metrics cannot be shown at {address}: {problem.strerror}; choose another port. Nothing was opened."
            ) from None
        self.port: int = self._server.server_address[1]
        Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening; a reader that keeps its connection, byte by byte, is not waited for."""
        stopping = Thread(target=self._server.shutdown, daemon=True)
        stopping.start()
        stopping.join(_STOPPING_SECONDS)
        self._server.server_close()


def _named_here(host: str) -> bool:
    """Whether a request was sent to this machine by its own name."""
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or _is_loopback(name)
    return False
