"""Pages in a real browser: widths, colours, scripts on and off, and that nothing is loaded."""

from pathlib import Path

import pytest

from evokernel.cli import main
from evokernel.report import write_campaign_report, write_report
from tests.browser import DESKTOP, PHONE, Browser, opened
from tests.known_samples import FAILED, NOW, SINCE, WRONG, known_memory
from tests.report_samples import HOSTILE, KINDS, campaign, run

OPEN = "for (const fold of document.querySelectorAll('details')) fold.open = true;"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        "run": write_report(run(folder, *KINDS)).page,
        "campaign": write_campaign_report(campaign(folder / "c")).page,
        "memory": memory_page(folder / "m"),
    }


def memory_page(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        place = known_memory(folder)
        patch.setattr("time.time", lambda: NOW)
        assert main(["memory", "report", "--memory", str(place), "--since", SINCE]) == 0
    return place / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("name", ["run", "campaign", "memory"])
def test_page_fits_is_legible_and_loads_nothing(browser, pages, name, width, scheme):
    browser.show(pages[name], width, scheme)
    browser.run(OPEN)
    assert browser.overflow() == 0
    assert browser.faint() == []
    assert [entry["message"] for entry in browser.log("browser")] == []
    assert browser.requests() == [pages[name].resolve().as_uri()]
    assert browser.run("return document.images.length") == 0


def test_schemes_differ(browser, pages):
    colors = []
    for scheme in ("light", "dark"):
        browser.show(pages["run"], scheme=scheme)
        colors.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert colors == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]


def test_numbers_on_marks_are_legible(browser, pages):
    """White, or dark, on the colours of a lineage."""
    script = """
    const style = getComputedStyle(document.documentElement);
    return ["paper", "passed", "failed", "spoiled"].map((n) => style.getPropertyValue(`--${n}`));
    """
    for scheme in ("light", "dark"):
        browser.show(pages["run"], scheme=scheme)
        paper, *marks = (_light(color.strip()) for color in browser.run(script))
        for mark in marks:
            high, low = max(paper, mark), min(paper, mark)
            assert (high + 0.05) / (low + 0.05) >= 4.5


def _light(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(c * weight for c, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def rows(browser: Browser) -> list[str]:
    """First cells of the rows of the attempts' table that are to be seen."""
    script = """
    return [...document.querySelectorAll("#attempts table[data-searched] tbody tr")]
      .filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
    """
    return browser.run(script)


def test_attempts_are_filtered_by_words_and_status(browser, pages):
    browser.show(pages["run"])
    assert rows(browser) == ["1", "2", "3", "4", "5", "6"]
    box = browser.driver.find_element("css selector", "#attempts .controls input")
    box.send_keys("confirmed not")
    assert rows(browser) == ["6"]
    assert "1 of 6" in browser.driver.find_element("css selector", "#attempts .controls").text
    box.clear()
    box.send_keys(" ")
    choose = browser.driver.find_element("css selector", "#attempts select[aria-label=status]")
    choose.send_keys("wrong_values")
    assert rows(browser) == ["2"]


def test_attempts_are_sorted_by_a_column(browser, pages):
    browser.show(pages["run"])
    heads = "#attempts table[data-searched] th"
    (ratio,) = (
        each
        for each in browser.driver.find_elements("css selector", heads)
        if each.text == "over eager"
    )
    ratio.find_element("css selector", "button").click()
    assert rows(browser) == ["6", "5", "1", "4", "3", "2"]  # what has no time stays last
    ratio.find_element("css selector", "button").click()
    assert rows(browser) == ["3", "1", "4", "5", "6", "2"]


def test_link_opens_the_attempt_that_it_leads_to(browser, pages):
    browser.show(pages["run"], place="#attempt-3")
    is_open = "return document.getElementById(arguments[0]).open"
    assert browser.run(is_open, "attempt-3")
    assert not browser.run(is_open, "attempt-2")
    browser.driver.find_element("css selector", "#attempts td a[href='#attempt-2']").click()
    assert browser.run(is_open, "attempt-2")


def test_marks_of_plots_say_what_they_stand_for(browser, pages):
    browser.show(pages["run"], place="#speed")
    mark = browser.driver.find_element("css selector", "#speed a[href='#attempt-1']")
    browser.run("arguments[0].focus()", mark)
    tip = browser.driver.find_element("css selector", ".tip")
    assert tip.text.startswith("attempt 1, draft: fusion\n5.00x [4.95, 5.05] as fast as eager")


def test_experiences_are_filtered_by_status_and_lead_to_their_card(browser, pages):
    browser.show(pages["memory"])
    shown = "#experiences tbody tr:not([hidden])"
    assert len(browser.driver.find_elements("css selector", shown)) == 7
    choose = browser.driver.find_element("css selector", "#experiences select[aria-label=status]")
    choose.send_keys("tombstone")
    (row,) = browser.driver.find_elements("css selector", shown)
    row.find_element("css selector", "a").click()
    place = browser.run("return location.hash.slice(1)")
    card = browser.driver.find_element("id", place)
    assert WRONG.id in card.text
    assert "it reads past the end" in card.text


def test_experiences_are_found_by_the_words_of_their_cards(browser, pages):
    browser.show(pages["memory"])
    box = browser.driver.find_element("css selector", "#each .controls input")
    box.send_keys(f"lesson too much {FAILED.family}")
    (card,) = browser.driver.find_elements("css selector", "#each details[data-item]:not([hidden])")
    assert FAILED.summary in card.text


def test_gain_leads_to_its_technique(browser, pages):
    browser.show(pages["memory"])
    link = browser.driver.find_element("css selector", "#techniques svg a")
    place = browser.run("return arguments[0].getAttribute('href').slice(1)", link)
    row = browser.driver.find_element("id", place)
    assert row.text.startswith("vectorized-loads")


def test_page_is_whole_without_scripts(tmp_path, pages):
    with opened(tmp_path, has_script=False) as browser:
        browser.show(pages["run"], PHONE)
        assert browser.driver.find_elements("css selector", ".controls, th button") == []
        fold = browser.driver.find_element("css selector", "#attempt-2")
        assert "What is wrong" not in fold.text
        fold.find_element("css selector", "summary").click()
        source = fold.find_elements("css selector", "summary")[-1]
        source.click()
        assert HOSTILE in fold.text
        assert browser.overflow() == 0
