"""Pages in a real browser: Chromium without a window, spoken to over two pipes; standard library only.

Every address that a page asks for is noted twice: by the browser, and by a proxy that answers nothing and through which
all traffic would have to go.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe"
).split()
# Whom Chromium itself calls, whatever the page; fonts and scripts for pages come from other names of that owner.
_OWN_CALLS = re.compile(
    r"\b(www|accounts|\w+\.clients|clients\d?|update|\w+-pa|\w+\.me)\.(google|googleapis|gvt1)\.com\b"
)
_PATIENCE = 60.0


class Proxy:
    """Notes the first line of what pages send through it, and hangs up."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    line = connection.recv(4096).split(b"\r\n", 1)[0].decode("latin-1")
                    # A connection that says nothing asks for nothing: Chromium opens spare ones.
                    self.asked += [] if not line or _OWN_CALLS.search(line) else [line]

    def close(self) -> None:
        # Closing alone does not wake the thread that waits in accept.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Pipe:
    """Chromium's DevTools protocol: JSON objects, each ended by a zero byte."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write, self._read, self._rest, self._number = to_browser, from_browser, b"", 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Send one command and wait for its answer; what happens meanwhile is kept in ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        data = json.dumps(message if session is None else message | {"sessionId": session}).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def wait_for(self, method: str, session: str) -> None:
        """Until an event of this name came."""
        while not any(each.get("method") == method and each.get("sessionId") == session for each in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {_PATIENCE:g} seconds")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise ConnectionError("Chromium has gone")
            self._rest += data
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page that was loaded to its end."""

    pipe: Pipe
    session: str

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        return self.pipe.ask(method, self.session, **parameters)

    def value(self, script: str) -> Any:
        """What an expression in the page's own language comes to."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def prefer(self, scheme: str, medium: str = "screen") -> None:
        """As a reader whose system is ``light`` or ``dark``, on ``screen`` or in ``print``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=medium, features=features)

    def resize(self, width: int, height: int = 900) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def pdf(self) -> bytes:
        return base64.b64decode(
            self.ask("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"]
        )

    def screenshot(self) -> bytes:
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"])

    @property
    def requests(self) -> list[str]:
        """Every address the page asked for, its own first."""
        return [each["request"]["url"] for each in self._events("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """What stands in the console as a warning or an error, and every script that failed."""
        said = [each["entry"] for each in self._events("Log.entryAdded")]
        called = [each for each in self._events("Runtime.consoleAPICalled") if each["type"] in ("error", "warning")]
        return [
            *(entry["text"] for entry in said if entry["level"] in ("error", "warning")),
            *(str(each["args"]) for each in called),
            *(str(each["exceptionDetails"]) for each in self._events("Runtime.exceptionThrown")),
        ]

    def _events(self, method: str) -> list[dict[str, Any]]:
        events = self.pipe.events
        return [each["params"] for each in events if each.get("method") == method and each["sessionId"] == self.session]


@dataclass(frozen=True, kw_only=True)
class Browser:
    """A running Chromium and the proxy it was told to use."""

    pipe: Pipe
    proxy: Proxy

    def open(self, address: str | Path) -> Page:
        """A new tab with a page, once everything it needs has come."""
        target = self.pipe.ask("Target.createTarget", url="about:blank")["targetId"]
        page = Page(
            pipe=self.pipe, session=self.pipe.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        )
        for domain in ("Network", "Log", "Runtime", "Page"):
            page.ask(f"{domain}.enable")
        page.ask("Page.navigate", url=address.as_uri() if isinstance(address, Path) else address)
        self.pipe.wait_for("Page.loadEventFired", page.session)
        return page


@contextmanager
def launched() -> Iterator[Browser]:
    """A new Chromium with an empty profile.

    Without one the test is skipped, and says so; in continuous integration it fails.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        missing = "there is no Chromium here, so no page was looked at: install the package `chromium`"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    proxy = Proxy()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # `<-loopback>` sends even requests to this machine through the proxy.
        flags = [*_FLAGS, f"--user-data-dir={profile}", f"--proxy-server=127.0.0.1:{proxy.port}"]
        # Without a page to begin with, a distribution's own start page would be asked for.
        flags += ["--proxy-bypass-list=<-loopback>", "about:blank"]
        process, to_browser, from_browser = _spawned(program, flags)
        try:
            yield Browser(pipe=Pipe(to_browser, from_browser), proxy=proxy)
        finally:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(to_browser)
            os.close(from_browser)
            proxy.close()


def _spawned(program: str, flags: list[str]) -> tuple[int, int, int]:
    """Chromium reads commands from its descriptor 3 and answers on its descriptor 4."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    # Away from 3 and 4 themselves, or moving one would close the other.
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 64) for each in (commands, answers)]
    actions = [
        (os.POSIX_SPAWN_DUP2, high[0], 3),
        (os.POSIX_SPAWN_DUP2, high[1], 4),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    process = os.posix_spawn(program, [program, *flags], dict(os.environ), file_actions=actions, setpgroup=0)
    for each in (commands, answers, *high):
        os.close(each)
    return process, to_browser, from_browser
