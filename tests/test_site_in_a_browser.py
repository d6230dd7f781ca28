"""The built site in a browser: nothing is wider than its column on a screen of 1,300 pixels.

It needs Chromium and a site that was built (``make -C docs html``), which ``.ci/run`` does before.
"""

from __future__ import annotations

import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
BROWSER = BROWSER or shutil.which("google-chrome")
WIDTH = 1300
# Loads every page into a frame, and writes what it finds into the document as JSON.
HARNESS = """<!doctype html><body style="margin:0">
<iframe id="frame" style="width:{width}px;height:900px;border:0"></iframe><script id="pages"
type="application/json">{pages}</script><script>
const frame = document.getElementById("frame"), found = {{}};
const pages = JSON.parse(document.getElementById("pages").textContent);
function measure(page) {{
  const inside = frame.contentDocument, wide = [];
  for (const box of inside.querySelectorAll(
       ".bd-article pre, .bd-article .pst-scrollable-table-container, .bd-article table")) {{
    const over = box.scrollWidth - box.clientWidth;
    const beyond = box.getBoundingClientRect().right
      - inside.querySelector(".bd-article").getBoundingClientRect().right;
    if ((over > 1 && box.tagName != "TABLE") || beyond > 1)
      wide.push(box.tagName + ": " + box.textContent.trim().slice(0, 60));
  }}
  const article = inside.querySelector(".bd-article-container");
  const sidebar = inside.querySelector(".bd-sidebar-primary");
  found[page] = {{wide, article: article ? article.clientWidth : 0,
                 sidebar: sidebar ? sidebar.clientWidth : 0}};
}}
(async () => {{
  for (const page of pages) {{
    await new Promise(done => {{ frame.onload = done; frame.src = page; }});
    measure(page);
  }}
  const out = document.createElement("pre");
  out.id = "found"; out.textContent = JSON.stringify(found);
  document.body.append(out);
}})();
</script></body>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and the page that looks at it."""

    pages: tuple[str, ...] = ()

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=str(SITE))

    def do_GET(self):
        if self.path != "/harness":
            return super().do_GET()
        body = HARNESS.format(width=WIDTH, pages=json.dumps(self.pages)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, *arguments):
        pass


def look(pages, profile):
    """Widths and what is too wide, of every page."""
    handler = type("Pages", (Handler,), {"pages": tuple(pages)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu",
            f"--user-data-dir={profile}", f"--window-size={WIDTH + 100},1000",
            "--virtual-time-budget=600000", "--dump-dom",
            f"http://127.0.0.1:{server.server_address[1]}/harness",
        ]  # fmt: skip
        shown = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
        server.shutdown()
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown.stdout)[1]))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    if BROWSER is None or not (SITE / "index.html").exists():
        pytest.skip("needs Chromium, and the site built by make -C docs html")
    names = [str(path.relative_to(SITE)) for path in SITE.rglob("*.html")]
    # The pages of single names are made by one template: those of two classes stand for them.
    shown = ("api/generated/olsq.RecursiveLeastSquares.html", "api/generated/olsq.nn.Mesa.html")
    left_out = ("_", "genindex", "search", "api/generated/")
    pages = sorted(name for name in names if name in shown or not name.startswith(left_out))
    return look(pages, tmp_path_factory.mktemp("profile"))


def test_no_table_and_no_code_is_wider_than_its_column(found):
    assert len(found) > 50
    assert not {page: seen["wide"] for page, seen in found.items() if seen["wide"]}


def test_the_article_has_760_pixels_and_the_sidebar_at_most_15_rem(found):
    articles = {page: seen for page, seen in found.items() if seen["article"]}
    assert not {page: seen for page, seen in articles.items() if seen["article"] < 760}
    assert not {page: seen for page, seen in articles.items() if seen["sidebar"] > 15 * 16}
