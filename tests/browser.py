"""Pages in a browser: headless Chromium opens them and tells what is wrong with them.

``check_page(browser, path)`` lists all complaints about a page; the fixture ``browser``, known to
all tests, is one Chromium for each worker, or a reason to skip.
"""

import json
import shutil
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

# The Debian packages chromium and chromium-driver; other systems have other names.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")
FLAGS = (
    "headless=new no-sandbox disable-gpu disable-dev-shm-usage disable-background-networking"
    " hide-scrollbars"
)
PHONE, DESK = 390, 1000

# What has no area although it is meant to be seen; hidden parts of a page have no boxes at all.
_FLAT = """
return [...document.querySelectorAll("img, svg")].filter((picture) => {
  const hidden = picture.closest("[hidden], details:not([open])") || picture.closest("svg svg");
  if (hidden || getComputedStyle(picture).display === "none") return false;
  const box = picture.getBoundingClientRect();
  const broken = picture.tagName === "IMG" && picture.naturalWidth === 0;
  return box.width < 1 || box.height < 1 || broken;
}).map((picture) => picture.outerHTML.slice(0, 120));
"""
_WIDER = """
const width = document.documentElement.clientWidth;
const scrolls = (element) => element && element !== document.documentElement && (
  !["visible", "clip"].includes(getComputedStyle(element).overflowX) && element !== document.body
    || scrolls(element.parentElement));
const wide = [...document.body.querySelectorAll("*")].filter((element) =>
  element.getBoundingClientRect().right > width + 1 && !scrolls(element));
return [document.documentElement.scrollWidth, width, wide.slice(0, 3).map(
  (element) => element.outerHTML.slice(0, 80))];
"""


class Browser:
    """One Chromium; ``driver`` is selenium's."""

    def __init__(self, driver):
        self.driver = driver
        self.page = None

    def open(self, path, width=DESK, scripts=True):
        """Load a file afresh in a window of that width; what was logged before is forgotten."""
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.page = Path(path).resolve()
        self.driver.get(self.page.as_uri())

    def find(self, selector):
        (found,) = self.find_all(selector)
        return found

    def find_all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses that were asked for, beside the page itself and files that lie with it."""
        sent = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                sent.append(message["params"]["request"]["url"])
        return [url for url in sent if not self._is_at_home(url)]

    def overflow(self):
        """By how many pixels the page is wider than the window, and what makes it so."""
        scroll, width, wide = self.driver.execute_script(_WIDER)
        return max(0, scroll - width), wide

    def _is_at_home(self, url):
        parts = urlparse(url)
        if parts.scheme != "file":
            return parts.scheme in ("data", "about", "blob")
        return Path(unquote(parts.path)).is_relative_to(self.page.parent)


def check_page(browser, path, width=PHONE):
    """Complaints about a page: console, requests, pictures, and whether it fits the window."""
    browser.open(path, width)
    complaints = [f"console: {message}" for message in browser.console()]
    complaints += [f"request: {url}" for url in browser.requests()]
    complaints += [f"picture without size: {each}" for each in browser.driver.execute_script(_FLAT)]
    pixels, wide = browser.overflow()
    if pixels:
        complaints.append(f"{pixels} pixels too wide for {width}: {'; '.join(wide)}")
    return complaints


@pytest.fixture(scope="session", name="browser")
def chromium():
    """One Chromium for all tests of a worker; conftest.py makes it known to all of them.

    It has a fresh profile of its own, which is gone afterwards.
    """
    binary, of_driver = (
        next(filter(None, map(shutil.which, names)), None) for names in (BROWSERS, DRIVERS)
    )
    if binary is None or of_driver is None:
        pytest.skip("Chromium and its driver are not installed (make browser)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = binary
        for flag in (*FLAGS.split(), f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Both paths are given, so that selenium has nothing to look for or to download.
        driver = webdriver.Chrome(options=options, service=Service(of_driver))
        try:
            driver.execute_cdp_cmd("Network.enable", {})
            yield Browser(driver)
        finally:
            driver.quit()
