"""Takes pictures of a run in TensorBoard.

`python scripts/screenshot_tensorboard.py runs/my-run --output pictures` starts TensorBoard on a run directory
and a browser without a window, waits until the charts are drawn, and saves `scalars.png` and `text.png`. It
needs tensorboard and selenium (`pip install tensorboard selenium`), and Chromium with its driver (on Debian:
`apt-get install chromium chromium-driver`).
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import WebDriverException

_SECONDS = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# The dashboards are built of nested shadow roots, which ordinary selectors do not look into.
_FIND_ALL = """
const found = (root, selector) => [root, ...root.querySelectorAll("*")].flatMap(
    element => element.shadowRoot ? found(element.shadowRoot, selector) : []
).concat([...root.querySelectorAll(selector)]);
"""
# A card that can be seen is drawn when its chart has its data and shows a line or, for one point, a symbol.
_CHARTS_DRAWN = (
    _FIND_ALL
    + """
const cards = found(document, "tf-scalar-card").filter(card => card.getBoundingClientRect().height > 0);
return cards.length > 0 && cards.every(card => found(card, "vz-line-chart2[data-loaded-once]").length > 0
    && found(card, "path.line, path.symbol").some(path => path.getAttribute("d")));
"""
)
_TEXTS_SHOWN = (
    _FIND_ALL
    + """
const texts = found(document, "tf-markdown-view");
return texts.some(text => text.getBoundingClientRect().height > 0 && found(text, "p, pre").length > 0);
"""
)
# TensorBoard would cut off the highest and lowest values, often the whole beginning of a loss.
_SHOW_OUTLIERS = 'localStorage.setItem("_ignoreYOutliers", "false");'


def main() -> None:
    """Reads the command line and saves the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="run directory, the folder that holds tensorboard/")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the pictures (default: this one)")
    parser.add_argument("--browser", help="Chromium's program (default: the one found)")
    parser.add_argument("--driver", help="chromedriver's program (default: the one found)")
    arguments = parser.parse_args()
    events = arguments.run / "tensorboard"
    if not events.is_dir():
        parser.error(f"{events} is no folder; name a run directory, which holds the folder tensorboard.")
    browser_program: str | None = arguments.browser or shutil.which("chromium") or shutil.which("google-chrome")
    driver_program: str | None = arguments.driver or shutil.which("chromedriver")
    if browser_program is None or driver_program is None:
        parser.error("Chromium or chromedriver is not installed; on Debian: apt-get install chromium chromium-driver")
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tensorboard(events) as address, browser(browser_program, driver_program) as driver:
        wait_for(lambda: loaded(address, "scalars"), "TensorBoard to load points of the run")
        driver.get(address)
        driver.execute_script(_SHOW_OUTLIERS)
        for name, ready in (("scalars", _CHARTS_DRAWN), ("text", _TEXTS_SHOWN)):
            if not loaded(address, name):
                print(f"{events} holds no {name}, so there is no picture of them")
                continue
            # The empty page in between makes the browser load the dashboard anew, not only jump in it.
            driver.get("about:blank")
            driver.get(f"{address}/#{name}")
            wait_for(lambda script=ready: bool(driver.execute_script(script)), f"the {name} dashboard to be drawn")
            time.sleep(1.0)  # lines fade in
            picture = arguments.output / f"{name}.png"
            if not driver.save_screenshot(str(picture)):
                raise SystemExit(f"{picture} could not be written")
            print(picture)


@contextlib.contextmanager
def tensorboard(events: Path) -> Iterator[str]:
    """Runs TensorBoard and gives its address."""
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(events),
        "--host=127.0.0.1",
        "--port=0",
    ]
    command += ["--samples_per_plugin=scalars=100000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said: list[str] = []
        for line in process.stderr or ():
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                break
        else:
            raise SystemExit(f"TensorBoard did not start:\n{''.join(said)}")
    finally:
        process.terminate()
        process.communicate()


@contextlib.contextmanager
def browser(program: str, driver_program: str) -> Iterator[webdriver.Chrome]:
    """Runs a browser that has no window and no memory of earlier runs."""
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*_FLAGS, "--window-size=1500,1100", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
        try:
            yield driver
        finally:
            driver.quit()


def loaded(address: str, plugin: str) -> bool:
    """Tells whether TensorBoard has loaded anything for a dashboard."""
    with urllib.request.urlopen(f"{address}/data/plugin/{plugin}/tags") as answer:
        return any(json.loads(answer.read()).values())


def wait_for(ready: Callable[[], bool], what: str) -> None:
    """Asks until it is true; gives up after a minute."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(WebDriverException, urllib.error.URLError):
            if ready():
                return
        time.sleep(0.25)
    raise SystemExit(f"Waited {_SECONDS:.0f} seconds for {what}, in vain.")


if __name__ == "__main__":
    main()
