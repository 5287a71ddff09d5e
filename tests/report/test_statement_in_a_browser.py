"""The HTML statement as its readers see it: in Chromium, light and dark, wide and narrow, on screen and on paper."""

import re
from pathlib import Path

import pytest

from browser import Browser, Page
from ledger.worlds import World, policy, request, round_trip
from lrdp.ledger.summary import summarize
from lrdp.report.statement import Statement
from lrdp.report.statement_pages import html

HOSTILE = '"</title><script>document.title=1</script><img src=http://tracker.example/a onerror=throw>"'


def written(folder: Path, client: str) -> tuple[Path, Statement]:
    world = World(folder=folder, rules=policy(client=client))
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
        statement = Statement(summary=summarize(ledger.books), head=ledger.head())
    path = folder / "statement.html"
    path.write_text(html(statement), encoding="utf-8")
    return path, statement


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Page:
    return browser.open(written(tmp_path, '"hospital-a"')[0])


def rgb(text: str) -> list[float]:
    return [int(number) / 255 for number in re.findall(r"\d+", text)[:3]]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""
    light = sorted(
        sum(
            weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for weight, part in zip((0.2126, 0.7152, 0.0722), rgb(colour), strict=True)
        )
        for colour in (one, other)
    )
    return (light[1] + 0.05) / (light[0] + 0.05)


def colours(page: Page, selector: str) -> tuple[str, str]:
    paper = page.value("getComputedStyle(document.body).backgroundColor")
    return paper, page.value(f"getComputedStyle(document.querySelector('{selector}')).color")


def test_every_point_is_on_the_page_as_it_is_in_the_books(browser: Browser, tmp_path: Path) -> None:
    path, statement = written(tmp_path, '"hospital-a"')
    page = browser.open(path)
    seen = page.value("document.body.innerText").replace("\n", " ")
    assert all(" ".join(point.text.split()) in " ".join(seen.split()) for point in statement.points)
    assert page.value("document.title") == "Privacy statement of hospital-a"
    used = page.value("document.querySelector('meter').value")
    assert used == pytest.approx(statement.summary.guaranteed.epsilon, abs=1e-6)
    assert page.value("document.querySelector('meter').labels[0].innerText").startswith("ε used: ")


def test_the_page_asks_for_nothing_and_nothing_goes_wrong(browser: Browser, tmp_path: Path) -> None:
    path, _ = written(tmp_path, '"hospital-a"')
    page = browser.open(path)
    page.pdf()
    assert page.requests == [path.as_uri()]
    assert page.complaints == []
    assert not [line for line in browser.proxy.asked if "tracker.example" not in line]


def test_control_a_page_that_asks_and_fails_is_caught(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "control.html"
    path.write_text('<img src="http://tracker.example/a.png"><script>console.error("7"); throw 3</script>')
    page = browser.open(path)
    assert page.requests == [path.as_uri(), "http://tracker.example/a.png"]
    assert "GET http://tracker.example/a.png HTTP/1.1" in browser.proxy.asked
    assert len(page.complaints) == 3


def test_a_hostile_name_is_text_to_a_browser_too(browser: Browser, tmp_path: Path) -> None:
    path, statement = written(tmp_path, HOSTILE)
    page = browser.open(path)
    assert page.value("document.querySelector('h1').textContent") == f"Privacy statement of {statement.summary.client}"
    assert page.value("document.querySelectorAll('script, img').length") == 0
    assert (page.requests, page.complaints) == ([path.as_uri()], [])


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_it_is_readable_in_light_and_in_dark(page: Page, scheme: str, dark: bool) -> None:
    page.prefer(scheme)
    for selector in ("h1", ".under", ".plainly", "th", "td", "label"):
        paper, ink = colours(page, selector)
        assert (sum(rgb(paper)) < 1.5) is dark
        assert contrast(paper, ink) >= 4.5, selector
    assert page.screenshot().startswith(b"\x89PNG")


def test_the_contrast_control_fails_for_grey_on_grey() -> None:
    assert contrast("rgb(120, 120, 120)", "rgb(150, 150, 150)") < 2
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)


@pytest.mark.parametrize("width", [320, 768, 1440])
def test_it_fits_every_width(page: Page, width: int) -> None:
    page.resize(width)
    assert page.value("document.documentElement.scrollWidth") <= width
    narrowest = page.value("Math.min(...[...document.querySelectorAll('td')].map(cell => cell.clientWidth))")
    assert narrowest >= 0.55 * min(width, 832), "a column of a few letters cannot be read"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_black_on_white_on_few_pages(page: Page, scheme: str) -> None:
    page.prefer(scheme, "print")
    paper, ink = colours(page, "td")
    assert (paper, ink) == ("rgb(255, 255, 255)", "rgb(0, 0, 0)")
    printed = page.pdf()
    assert printed.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type /Page\b", printed)) <= 3
    assert re.search(rb"/MediaBox \[0 0 59[56]\S* 84[12]\S*\]", printed), "A4"
