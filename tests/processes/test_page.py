"""The page of a run in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    FirstNewEffect,
    Replayed,
    StandbyActivated,
)
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.user_metrics import MetricKind, UserMetric
from clonos_py.observe.events import Detected, Event, Progress, TaskFailed
from clonos_py.settings.kinds import ListenAddress
from tests.unit.runtime.served_runs import JOB, SECOND, TOKEN, Served, active, serving
from tests.unit.task.plans import DOWN, MIDDLE, UP
from tests.waiting import WAIT_S_MAX, wait_until

CHROMIUM = shutil.which("chromium")
_SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")
expect.set_options(timeout=WAIT_S_MAX * 1_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_SWITCHES)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page without errors that asks no other host."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda asked: problems.append(asked.url) if "://127.0.0.1:" not in asked.url else None)
    yield page
    context.close()
    assert problems == []


def running(run: Served) -> None:
    run.deployed()
    run.measured(2 * SECOND, (UP, 0, active(rows_in=1_000)), (MIDDLE, 1, active()), (DOWN, 2, active()))


def test_the_page_shows_a_failure_and_its_recovery_as_they_happen(page: Page) -> None:
    with serving() as run:
        running(run)
        page.goto(run.url)
        expect(page.locator("#job")).to_have_text(JOB)
        expect(page.locator("#summary")).to_contain_text("running")
        for vertex in ("up", "middle", "down"):
            expect(page.locator("#graph")).to_contain_text(f"{vertex} ×1")
        expect(page.locator("#tasks tr")).to_have_count(3)
        run.listen(3 * SECOND, CheckpointCompleted(7, 120.0, 5_000))
        expect(page.locator("#checkpoint-summary")).to_have_text(
            "1 completed, 0 aborted, 0 skipped; the last took 120 ms and 5.0 kB"
        )
        run.listen(4 * SECOND, TaskFailed(task=UP, how="its process died"))
        expect(page.locator("#recoveries")).to_contain_text("up[0] failed: its process died — recovering")
        steps: list[Event] = [Detected(UP), StandbyActivated(UP, Attempt(1, 2)), Replayed(UP, 500), FirstNewEffect(UP)]
        for number, event in enumerate(steps, 1):
            run.listen(4 * SECOND + number * 20_000, event)
        expect(page.locator("#recoveries summary")).to_contain_text("new results after 80 ms")
        expect(page.locator("#recoveries dl")).to_contain_text("500 rows")
        expect(page.locator("#events li").first).to_contain_text("up[0]: first new result 80 ms after the failure")
        page.locator("#recoveries summary").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#recoveries dl")).to_be_hidden()


def test_the_page_shows_what_functions_have_measured(page: Page) -> None:
    counter, histogram = UserMetric(MetricKind.COUNTER, 2_000), UserMetric(MetricKind.HISTOGRAM, 9.5, (1.0,), (1, 1))
    metrics = {
        "shop.orders_seen": {0: counter, 1: counter},
        "shop.euros": {0: histogram},
        "shop.depth": {0: UserMetric(MetricKind.GAUGE, 3), 1: UserMetric(MetricKind.GAUGE, 0.5)},
    }
    with serving() as run:
        running(run)
        run.listen(3 * SECOND, Progress(vertices=(), in_flight_bytes=0, counts={"o.late_rows": 3}, metrics=metrics))
        page.goto(run.url)
        expect(page.locator("#counts dt")).to_have_text(["o.late rows", "shop.depth", "shop.euros", "shop.orders seen"])
        expect(page.locator("#counts dd")).to_have_text(["3", "0.5 to 3", "4.75 on average of 2", "4,000"])


def test_the_page_goes_on_after_a_restart_of_the_driver(page: Page) -> None:
    with serving() as run:
        running(run)
        address = run.url
        page.goto(address)
        expect(page.locator("#summary")).to_contain_text("running")
    expect(page.locator("#summary")).to_contain_text("does not answer")
    host, port = address.removeprefix("http://").split(":")
    with serving(web=ListenAddress(host, int(port))) as run:
        running(run)
        run.listen(3 * SECOND, CheckpointCompleted(8, 120.0, 5_000))
        expect(page.locator("#summary")).to_contain_text("running")
        expect(page.locator("#events li")).to_contain_text(["checkpoint 8 completed", "tasks run"])


def test_the_page_asks_for_the_token_and_changes_the_job(page: Page, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with serving(web_token_file=str(tmp_path / "token")) as run:
        running(run)
        page.goto(run.url)
        expect(page.locator("#main")).to_be_hidden()
        page.locator("#token").fill("f" * 16)
        page.keyboard.press("Enter")
        expect(page.locator("#refused")).to_have_text("That is not the token of this job.")
        page.locator("#token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#tasks tr")).to_have_count(3)
        said: list[str] = []
        answers = iter(["before upgrade", None, None, "4, down=2 up=1", "5"])

        def answered(dialog: Dialog) -> None:
            said.append(dialog.message)
            dialog.accept(next(answers, None) or "")

        def awaits(seen: Callable[[], bool]) -> None:
            wait_until(lambda: bool(page.evaluate("true")) and seen())  # Playwright tells of dialogs while it is called

        page.on("dialog", answered)
        page.locator("#savepoint").click()
        awaits(lambda: "Savepoint before upgrade is checkpoint 7." in said)
        assert run.kept == ["before upgrade"]
        page.locator("#rescale").click()  # the question is left empty
        page.locator("#rescale").click()
        awaits(lambda: run.rescaled == [(4, {"down": 2, "up": 1})])
        run.refusal = SettingError("the run is being rescaled already")
        page.locator("#rescale").focus()
        page.keyboard.press("Enter")
        awaits(lambda: "the run is being rescaled already\n" in said)
        page.locator("#stop").click()
        awaits(lambda: run.stop.requested)


def test_the_page_shows_hundreds_of_processes(page: Page) -> None:
    with serving() as run:
        run.deployed()
        tasks = [TaskId("middle", index) for index in range(200)]
        run.measured(2 * SECOND, *((task, number, active(rows_in=number)) for number, task in enumerate(tasks)))
        page.goto(run.url)
        expect(page.locator("#tasks tr")).to_have_count(200)
        run.measured(3 * SECOND, *((task, number, active(rows_in=7)) for number, task in enumerate(tasks)))
        expect(page.locator("#tasks tr").last).to_contain_text("7")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_its_window(browser: Browser, scheme: str, width: int) -> None:
    """Only what may scroll does: wide tables and graphs have regions of their own."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    with serving() as run:
        running(run)
        page.goto(run.url)
        expect(page.locator("#tasks tr")).to_have_count(3)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    context.close()
