"""The page in a real browser: Debian's Chromium, driven by Playwright. Skipped where there is none."""

import shutil
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import uvicorn

from .conftest import INVITE, Site, laptops_like

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: install choicegp[test]")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 800}
# Chromium itself reports that a page was refused; the page says so in words.
EXPECTED = "Failed to load resource: the server responded with a status of 4"


class Live:
    """A page on a port of this machine."""

    def __init__(self, folder):
        self.site = Site(laptops_like(), folder, sets=10)
        config = uvicorn.Config(self.site.app, port=0, log_level="error", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.join = f"{self.url}/join/{INVITE}"
        self.owner = f"{self.url}/owner/enter/{self.site.store.owner_token}"

    def close(self):
        self._server.should_exit = True
        self._thread.join(10)
        self.site.store.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> Iterator[Live]:
    made = Live(tmp_path_factory.mktemp("live"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser, live):
    """Return a function that opens a page; at the end no request has left loopback and the console is clean."""
    contexts, requests, console = [], [], []

    def opened(viewport=None, **options):
        context = browser.new_context(viewport=viewport or DESKTOP, locale="en-GB", **options)
        context.set_default_timeout(20_000)
        context.on("request", lambda request: requests.append(request.url))
        context.on("console", lambda message: console.append(message.text))
        context.on("weberror", lambda error: console.append(str(error.error)))
        contexts.append(context)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()
    assert {urlsplit(url).hostname for url in requests if not url.startswith("data:")} <= {"127.0.0.1"}
    assert [line for line in console if not line.startswith(EXPECTED)] == []


def begin(page, live) -> int:
    """Join and return the participant's number."""
    page.goto(live.join)
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/p/*")
    return max(one.id for one in live.site.store.participants())


def at(page, number):
    """Wait until a page shows this question."""
    page.get_by_text(f"Question {number} of 10").wait_for()


def keep(page, *places):
    for place in places:
        page.locator(f"#c{place}").check()
    page.locator("button.primary").click()


def test_a_whole_session_of_ten_answers(visit, live):
    page = visit()
    number = begin(page, live)
    keep(page, 0, 2)
    at(page, 2)
    page.get_by_role("button", name="None of these").click()
    at(page, 3)
    page.get_by_role("button", name="Can't say").click()
    at(page, 4)
    # The whole card can be clicked, and the button says how many are ticked.
    page.locator(".card").nth(1).click(position={"x": 20, "y": 60})
    assert page.locator("#c1").is_checked()
    assert page.locator("button.primary").inner_text() == "Keep 1 ticked"
    page.reload()
    at(page, 4)
    shown = page.locator(".card label").all_inner_texts()
    keep(page, 1)
    at(page, 5)
    page.get_by_role("button", name="Undo my last answer").click()
    at(page, 4)
    assert page.locator(".card label").all_inner_texts() == shown
    assert page.locator("#c1").is_checked()
    assert page.get_by_role("alert").is_visible()
    keep(page, 3)
    at(page, 5)
    # Back to an old page, and an answer from there.
    page.go_back()
    page.locator("#count").wait_for()
    page.goto(page.url.partition("?")[0])
    at(page, 5)
    page.locator("#c0").check()
    page.locator("button.primary").dblclick()
    at(page, 6)
    page.locator("button.primary").click()
    assert "Nothing was ticked" in page.get_by_role("alert").inner_text()
    for number_of_question in range(6, 11):
        at(page, number_of_question)
        keep(page, 0)
    page.get_by_role("heading", name="Thank you!").wait_for()
    page.get_by_role("heading", name="Your short list").wait_for()
    assert page.locator("img.plot").evaluate("picture => picture.complete && picture.naturalWidth > 0")
    chosen = [len(one.chosen) for one in live.site.store.answers(number)]
    assert chosen == [2, 0, 2, 1, 1, 1, 1, 1, 1]


def test_a_result_appears_when_it_is_ready(visit, live):
    page = visit()
    live.site.stub.knows = False
    try:
        begin(page, live)
        keep(page, 0)
        at(page, 2)
        page.get_by_role("button", name="Stop here").click()
        page.get_by_role("status").wait_for()
    finally:
        live.site.stub.knows = True
    page.get_by_role("heading", name="Your short list").wait_for()


def test_the_keyboard_alone_is_enough(visit, live):
    page = visit()
    page.goto(live.join)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Start"
    page.keyboard.press("Enter")
    page.wait_for_url("**/p/*")
    for place in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == f"c{place}"
        if place in (1, 3):
            page.keyboard.press("Space")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Keep 2 ticked"
    page.keyboard.press("Enter")
    at(page, 2)
    for name in ("Keep the ones I ticked", "None of these", "Can't say"):
        while page.evaluate("document.activeElement.textContent") != name:
            page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    at(page, 3)


def test_without_javascript_on_a_phone(visit, live):
    page = visit(PHONE, java_script_enabled=False, is_mobile=True, has_touch=True)
    number = begin(page, live)
    for question in range(1, 4):
        at(page, question)
        keep(page, 1)
    at(page, 4)
    page.get_by_role("button", name="None of these").click()
    at(page, 5)
    page.get_by_role("button", name="Undo my last answer").click()
    at(page, 4)
    page.get_by_role("button", name="Stop here").click()
    page.get_by_role("heading", name="Your short list").wait_for()
    assert len(live.site.store.answers(number)) == 3


def test_two_people_at_once(visit, live):
    anna, bert = visit(), visit()
    first, second = begin(anna, live), begin(bert, live)
    for question in range(1, 3):
        at(anna, question)
        keep(anna, 0)
        at(bert, question)
        keep(bert, 1)
    at(bert, 3)
    keep(bert, 1)
    at(anna, 3)
    at(bert, 4)
    assert [len(live.site.store.answers(one)) for one in (first, second)] == [2, 3]
    bert.goto(live.join)
    bert.get_by_role("link", name="Continue where I was").click()
    at(bert, 4)


def test_the_owner_watches_and_decides(visit, live):
    owner, anna = visit(), visit()
    owner.goto(live.owner)
    number = begin(anna, live)
    row = owner.get_by_role("row", name=f"participant-{number}")
    row.wait_for()  # the table is renewed by itself
    keep(anna, 0)
    at(anna, 2)
    owner.get_by_role("button", name="Pause").click()
    owner.locator(".state.paused").wait_for()
    anna.reload()
    anna.get_by_role("heading", name="The study is paused").wait_for()
    owner.get_by_role("button", name="Open again").click()
    owner.locator(".state.open").wait_for()
    anna.reload()
    at(anna, 2)
    owner.get_by_label("Name").fill("Zoë")
    owner.get_by_role("button", name="Make a link").click()
    link = owner.locator("#link").input_value()
    owner.reload()  # a page, not a form that would be sent again
    assert owner.locator("#link").input_value() == link
    anna.goto(link)
    assert anna.get_by_role("button", name="Start").is_visible()
    owner.goto(f"{live.url}/owner/people/{number}")
    assert owner.locator("img.plot").first.evaluate("picture => picture.complete && picture.naturalWidth > 0")
    with owner.expect_download() as download:
        owner.get_by_role("link", name="Model").click()
    assert download.value.suggested_filename == f"model-{number}.cgp"
    owner.get_by_text("Delete this participant").click()
    owner.locator("#sure").check()
    owner.get_by_role("button", name="Delete").click()
    owner.wait_for_url("**/owner")
    assert not row.is_visible()


def test_forms_of_another_site_do_nothing(visit, live):
    page = visit()
    begin(page, live)
    before, target = len(live.site.store.events()), page.url + "/stop"
    stranger = visit()
    stranger.goto("data:text/html," + f'<form method="post" action="{target}"><button>Go</button></form>')
    stranger.get_by_role("button").click()
    stranger.wait_for_url("**/stop")
    assert "could not understand" in stranger.locator("main").inner_text()
    assert len(live.site.store.events()) == before


def test_nothing_stands_in_the_way_of_anybody(visit, live):
    from axe_playwright_python.sync_playwright import Axe

    axe, page = Axe(), visit(PHONE)

    def check(name):
        for viewport in (DESKTOP, PHONE):
            page.set_viewport_size(viewport)
            found = axe.run(page)
            assert found.violations_count == 0, f"{name}: {found.generate_report()}"
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"

    page.goto(live.join)
    check("welcome")
    number = begin(page, live)
    page.locator("#c0").check()
    check("question")
    page.locator("button.primary").click()
    at(page, 2)
    page.locator("button.primary").click()
    page.get_by_role("alert").wait_for()
    check("a question with a note")
    page.get_by_role("button", name="Stop here").click()
    page.get_by_role("heading", name="Your short list").wait_for()
    check("the end")
    page.goto(f"{live.url}/nowhere")
    check("a wrong link")
    page.goto(live.owner)
    check("the owner's page")
    page.goto(f"{live.url}/owner/people/{number}")
    page.get_by_text("Delete this participant").click()
    check("a participant")
    page.goto(f"{live.url}/owner/population")
    check("everyone")
    page.goto(f"{live.url}/owner/segments")
    check("shares and segments")
