"""The page in headless Chromium: no error on the console, nothing wider than the screen, on a phone and a desk."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ablate.report.build import build_report
from tests.simulated_study import simulate_study

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
LONG = "-normalized_concentration_corrected_token_weighted_weight"

#: A page around the report that measures it at a given width and writes what it found into itself.
PROBE = """<!doctype html><title>probe</title><link rel="icon" href="data:,">
<iframe id="page" style="width:{width}px;height:800px;border:0" srcdoc="{page}"></iframe>
<script>
document.getElementById("page").addEventListener("load", () => {{
  const inner = document.getElementById("page").contentDocument;
  const size = element => parseFloat(getComputedStyle(element).fontSize);
  document.title = JSON.stringify({{
    width: inner.documentElement.scrollWidth,
    small: [...inner.querySelectorAll("p, li, td, small")].filter(element => size(element) < 11).length,
    broken_images: [...inner.images].filter(image => !image.naturalWidth).length,
  }});
}});
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def chromium(page: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """The DOM after loading, and the lines of the console."""
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
        "--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom", *options, page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    study = simulate_study(effects={"baseline": 0.0, LONG: 0.05, "aa-1": 0.0}, diagnostics=1, steps=3, path=run)
    return build_report(study, run / "report")


def test_the_console_is_silent_and_a_link_opens_its_arm(page: Path, tmp_path: Path) -> None:
    dom, console = chromium(page, tmp_path / "profile", "--window-size=1280,900")
    assert console == []
    assert "<h1>which-terms-matter</h1>" in dom
    probe = tmp_path / "link.html"
    probe.write_text(page.read_text().replace("<script>", "<script>location.hash = 'arm-1';", 1))
    dom, console = chromium(probe, tmp_path / "profile-2")
    assert console == []
    assert re.search(r'<details id="arm-1" open', dom)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(page: Path, tmp_path: Path, width: int) -> None:
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(width=width, page=html.escape(page.read_text())))
    dom, console = chromium(probe, tmp_path / "profile", f"--window-size={width + 40},900")
    found = re.search(r"<title>(\{.*?\})</title>", dom)
    assert found, dom[:300]
    assert json.loads(html.unescape(found[1])) == {"width": width, "small": 0, "broken_images": 0}
    assert console == []
