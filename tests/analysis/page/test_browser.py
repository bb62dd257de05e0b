"""The report page in headless Chromium, opened from disk as a reader opens it."""

import json
import os
import shutil
from pathlib import Path

import pytest

import analysis
from analysis.report import write_report, write_search_report
from tests import drawing, fake_results

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_url(tmp_path_factory):
    """Page of methods side by side, so that every kind of section is there; two trials missing."""
    out = tmp_path_factory.mktemp("report")
    kinds = ("base", "variant", "variant", "variant")
    fake_results.write(out, seeds=6, kinds=kinds)
    for name in ("2-1", "3-4"):
        (out / "trials" / f"{name}.parquet").unlink()
    with drawing.figures(*drawing.FORMATS):
        write_report(out)
    return (out / "report.html").as_uri()


@pytest.fixture(scope="module")
def driver():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("no chromium with its chromedriver; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(chromedriver))
    yield started
    started.quit()


@pytest.fixture
def opened(driver, page_url):
    """The page at desktop width, with nothing in the logs but what its opening left there."""
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    set_width(driver, 1280)
    driver.get("about:blank")
    driver.get(page_url)
    return driver


def set_width(driver, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def one(driver, selector):
    return driver.find_element("css selector", selector)


def column(driver, table, place):
    """Texts of a column in the rows that are shown."""
    script = """
        const rows = [...document.querySelectorAll(`#${arguments[0]} tbody tr`)];
        return rows.filter(r => !r.hidden).map(r => r.cells[arguments[1]].textContent);
    """
    return driver.execute_script(script, table, place)


def head(driver, table, text):
    """Place and button of the column whose head starts with a text."""
    for place, button in enumerate(driver.find_elements("css selector", f"#{table} thead button")):
        if button.text.startswith(text):
            return place, button
    raise AssertionError(f"{table} has no column {text}")


def test_opening_the_page_makes_no_request_and_no_error(opened, page_url):
    assert opened.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"].endswith("BeSent")]
    assert page_url in asked
    assert {url for url in asked if not url.startswith(("data:", "about:"))} == {page_url}


def test_every_figure_is_drawn(opened):
    pictures = opened.find_elements("css selector", "figure img")
    assert pictures
    for picture in pictures:
        assert picture.rect["width"] > 100
        assert picture.rect["height"] > 100
        assert opened.execute_script("return arguments[0].naturalWidth", picture) > 100


def test_a_column_head_sorts_up_then_down_then_restores_the_order(opened):
    place, button = head(opened, "ladder", "ECE")
    assert column(opened, "ladder", 0) == ["vanilla", "+ one", "+ two", "control"]
    before = column(opened, "ladder", place)
    states = []
    for _ in range(3):
        button.click()
        state = button.find_element("xpath", "..").get_attribute("aria-sort")
        states.append((state, column(opened, "ladder", place)))
    numbers = sorted(before, key=lambda text: float(text.split()[0]))
    assert states == [("ascending", numbers), ("descending", numbers[::-1]), ("none", before)]


def test_words_and_lists_filter_together_and_the_count_is_shown(opened):
    assert one(opened, "#trial-rows output").text == "24 rows"
    field = one(opened, "#trial-rows input")
    field.send_keys("CONTROL")
    assert set(column(opened, "trial-rows", 0)) == {"control"}
    assert one(opened, "#trial-rows output").text == "6 of 24 rows"
    one(opened, "#trial-rows select[data-column='3'] option:nth-child(3)").click()
    assert column(opened, "trial-rows", 3) == ["missing"]
    field.clear()
    field.send_keys("no such row")
    assert column(opened, "trial-rows", 0) == []
    assert one(opened, "#trial-rows output").text == "0 of 24 rows"
    assert opened.get_log("browser") == []


def see(driver, width, scheme):
    """The page at a width, in light or dark."""
    set_width(driver, width)
    wanted = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})


@pytest.fixture(params=[(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")], ids=str)
def seen(request, opened):
    see(opened, *request.param)
    yield opened, *request.param
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_pages_do_not_scroll_sideways(seen):
    driver, *_ = seen
    script = "return [document.documentElement.clientWidth, document.documentElement.scrollWidth]"
    inner, outer = driver.execute_script(script)
    assert outer <= inner


@pytest.fixture
def search_page(driver, tmp_path, every_format):
    """The report of the real search that ships with the package."""
    example = Path(analysis.__file__).parent / "example" / "search"
    write_search_report(Path(shutil.copytree(example, tmp_path / "search")))
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    driver.get((tmp_path / "search" / "report.html").as_uri())
    return driver


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_of_a_search_sorts_filters_and_complains_of_nothing(search_page, width):
    set_width(search_page, width)
    test_every_figure_is_drawn(search_page)
    table = one(search_page, "#suggestions .table").get_attribute("id")
    place, button = head(search_page, table, "ECE")
    button.click()
    numbers = [
        float(text.split()[0]) for text in column(search_page, table, place) if text[0] != "-"
    ]
    assert numbers == sorted(numbers)
    assert len(numbers) > 10
    one(search_page, f"#{table} input").send_keys("no such row")
    assert column(search_page, table, 0) == []
    seen, widest = search_page.execute_script(
        "return [document.documentElement.clientWidth, document.documentElement.scrollWidth]"
    )
    assert widest <= seen
    assert search_page.get_log("browser") == []
