"""Prometheus' text: what its own parser makes of it, and who can reach the page."""

from __future__ import annotations

import http.client
import math
import socket
import time
from contextlib import suppress
from threading import Event, Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lrdp.errors import InvalidInput
from lrdp.federation.wire.metrics_page import BARE, Family, MetricsPage, exposition, loopback
from lrdp.figures import AtLeast, AtMost

EPSILON = 0.1 + 0.2  # has seventeen digits
HOSTILE = 'a"b\\c\nlrdp_left 8'


def test_prometheus_reads_every_value_whole_and_a_label_cannot_write_lines() -> None:
    text = exposition(
        [
            Family(name="lrdp_spent", about="ε, rounded nowhere", values={BARE: AtMost(EPSILON)}),
            Family(name="lrdp_refusals_total", about="By word.", values={(("word", HOSTILE),): 3}),
            Family(name="lrdp_unknown", about="Figures that are not known warn.", values={BARE: AtMost(math.nan)}),
            Family(name="lrdp_left", about="On the other side.", values={BARE: AtLeast(math.nan)}),
            Family(name="lrdp_none", about="Nothing yet."),
        ]
    )
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["lrdp_spent"].samples[0].value == EPSILON
    assert families["lrdp_refusals"].type == "counter"
    (refused,) = families["lrdp_refusals"].samples
    assert (refused.labels, refused.value) == ({"word": HOSTILE}, 3)
    assert families["lrdp_unknown"].samples[0].value == math.inf
    assert [sample.value for sample in families["lrdp_left"].samples] == [-math.inf]
    assert families["lrdp_none"].samples == []


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "127.8.9.1:80", "[::1]:9464"])
def test_this_machine_alone_is_an_address(address: str) -> None:
    host, port = loopback(address)
    assert f"{host}:{port}" == address.replace("[", "").replace("]", "")


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0:9464", "192.168.1.7:9464", "[::]:9464", "[fe80::1]:9464", "localhost:9464", "example.org:80"),
        *("127.0.0.1", "9464", ":9464", "", "127.0.0.1:99999", "127.0.0.1:x", "a@127.0.0.1:80", "127.0.0.1:80/x"),
        *("127.1:80", "0x7f000001:80", "[::ffff:192.168.1.7]:80"),
    ],
)
def test_every_other_address_is_refused_in_a_sentence(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"at a loopback address alone.*nothing was opened"):
        MetricsPage(address)


def asked(page: MetricsPage, path: str, host: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_only_the_page_is_served_and_only_under_this_machines_name() -> None:
    page = MetricsPage("127.0.0.1:0")
    try:
        page.text = "lrdp_left 8.0\n"
        here = f"127.0.0.1:{page.port}"
        assert asked(page, "/metrics", here) == (200, page.text)
        assert asked(page, "/metrics", "localhost") == (200, page.text)
        for path, host in (("/", here), ("/metrics/../etc/passwd", here), ("/metrics", "evil.example")):
            assert asked(page, path, host) == (404, "")
        assert asked(page, "/metrics", here, "POST")[0] == 501
        with pytest.raises(InvalidInput, match=r"choose another port\. Nothing was opened"):
            MetricsPage(here)
    finally:
        page.close()


def test_a_reader_that_never_ends_its_question_keeps_no_guard_from_stopping() -> None:
    page, enough = MetricsPage("127.0.0.1:0"), Event()
    with socket.create_connection(("127.0.0.1", page.port)) as asking:

        def drip() -> None:
            with suppress(OSError):
                while not enough.wait(0.2):
                    asking.send(b"G")

        dripping, closing = Thread(target=drip), Thread(target=page.close, daemon=True)
        dripping.start()
        time.sleep(1.0)  # it is being read by now
        closing.start()
        closing.join(30)
        closed = not closing.is_alive()
        enough.set()
        dripping.join()
    assert closed
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port))
