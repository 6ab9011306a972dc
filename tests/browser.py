"""A headless Chromium that shows pages as a desktop or a phone does, light or dark."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = 1280, 390
"""Widths in pixels."""

_TEXTS = """
const channels = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => [r, g, b]
  .map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let place = element; place; place = place.parentElement) {
    const color = channels(getComputedStyle(place).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const found = new Map();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const text = walker.currentNode.textContent.trim();
  if (!text || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
  if (!element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const isSvg = element.namespaceURI.endsWith("svg");
  if (isSvg && element.classList.contains("fill-paper")) continue;  // on a mark, not on the page
  const front = isSvg ? style.fill : style.color;
  const [a, b] = [light(channels(front)), light(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const size = parseFloat(style.fontSize), isBold = Number(style.fontWeight) >= 600;
  const least = size >= 24 || (isBold && size >= 18.66) ? 3 : 4.5;
  const said = `${ratio.toFixed(2)}: ${text.slice(0, 40)}`;
  if (ratio < least) found.set(`${front} ${behind(element)}`, said);
}
return [...found.values()];
"""


class Browser:
    """Shows one page at a time."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(
        self, page: Path, width: int = DESKTOP, scheme: str = "light", place: str = ""
    ) -> None:
        """Open a page anew, at a width, in a colour scheme, at a place in it."""
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")
        self.log("browser"), self.log("performance")  # what was before
        self.driver.get(f"{page.resolve().as_uri()}{place}")

    def run(self, script: str, *given: Any) -> Any:
        """What a script gives."""
        return self.driver.execute_script(script, *given)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since it was asked last."""
        return list(self.driver.get_log(kind))

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        messages = (json.loads(entry["message"])["message"] for entry in self.log("performance"))
        asked = (
            m["params"]["request"]["url"]
            for m in messages
            if "requestWillBeSent" in m["method"] and "request" in m["params"]
        )
        return [url for url in asked if url != "about:blank"]

    def overflow(self) -> int:
        """Pixels by which the page is wider than the screen."""
        page = "document.documentElement"
        return int(self.run(f"return {page}.scrollWidth - {page}.clientWidth"))

    def faint(self) -> list[str]:
        """Texts that stand out less than the guidelines ask for (WCAG 2.2, AA)."""
        return list(self.run(_TEXTS))


@contextmanager
def opened(folder: Path, *, has_script: bool = True) -> Iterator[Browser]:
    """Start one with an empty profile in a folder; a test is skipped where there is none."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if not has_script:
        no = {"profile.managed_default_content_settings.javascript": 2}
        options.add_experimental_option("prefs", no)
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()
