"""Tests the page of `dorajit report` in a real browser.

report_page_test.py --program DORAJIT --source-dir DIR --out DIR

Makes a page from the shipped H200 data and one without data, loads them in headless Chromium, and checks
the elements of the document, that the console has no message and the network no request,
that sorting and filtering work, that no column is cut at 390 pixels or on paper, and that all rows print.
Writes screenshots to the --out folder, for people to look at. Ends with 77 (skipped) if there is no Chromium.
"""

import argparse
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77

# A request of a page in the browser's network log; the browser's own requests have no origin.
_ASKED_BY_A_PAGE = re.compile(r'"initiator":"(?!not an origin).*"url":"(?!file:|data:)')

# A script at the end of the page: sorts by speed-up, filters, and writes the visible rows into the document.
_USE = """<script>
const headings = [...document.querySelectorAll(".winners > thead button")];
headings.find((one) => one.textContent === "speed-up").click();
const input = document.querySelector("input[type=search]");
input.value = "BACKWARD f16";
input.dispatchEvent(new Event("input"));
const seen = [...document.querySelectorAll(".winners > tbody > tr")].filter((row) => !row.hidden);
const result = document.createElement("pre");
result.id = "seen";
result.textContent = JSON.stringify({
  operations: [...new Set(seen.map((row) => row.cells[0].textContent))],
  gains: seen.map((row) => Number(row.querySelector(".gain").textContent.replace("x", ""))),
  status: document.querySelector("[role=status]").textContent,
  sort: document.querySelector("[aria-sort]").textContent,
});
document.body.append(result);
</script>"""

# A script at the end of a page in a frame: opens the first lists of trials, and says how far the elements reach.
_MEASURE = """<script>
for (const details of [...document.querySelectorAll("details")].slice(0, 20)) details.open = true;
const cells = [...document.querySelectorAll("h1, p, th, td, svg")].filter((one) => one.checkVisibility());
parent.postMessage(JSON.stringify({
  width: innerWidth, scroll: document.documentElement.scrollWidth,
  right: Math.max(...cells.map((one) => one.getBoundingClientRect().right)),
  rows: new Set(cells.filter((one) => one.matches(".gain")).map((one) => one.parentElement)).size,
  columns: Math.min(...[...document.querySelectorAll(".winners > tbody > tr")].map((row) => [...row.cells].filter((one) => one.checkVisibility()).length)),
}), "*");
</script>"""
_FRAME = """<!doctype html><iframe src="{name}" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener("message", ({{data}}) => {{
  const result = document.createElement("pre");
  result.id = "seen";
  result.textContent = data;
  document.body.append(result);
}});</script>"""


def expect(condition, complaint):
    if not condition:
        raise AssertionError(complaint)


class Document(html.parser.HTMLParser):
    """Counts elements, and collects references to other files."""

    def __init__(self, text):
        super().__init__()
        self.count = {}
        self.references = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "href", "action", "srcset") and not value.startswith("data:"):
                self.references.append(value)
            if name == "class":
                for one in value.split():
                    self.count["." + one] = self.count.get("." + one, 0) + 1


class Browser:
    def __init__(self, program, scratch):
        self.program = program
        self.scratch = scratch

    def run(self, page, *options):
        """The standard output. Fails if the console has a message or the page makes a network request."""
        log = self.scratch / "net.json"
        command = [self.program, "--headless", "--no-sandbox", "--disable-gpu",
                   "--disable-background-networking", "--disable-component-update",
                   "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
                   "--disable-dev-shm-usage",
                   f"--user-data-dir={self.scratch / 'profile'}", f"--log-net-log={log}",
                   "--enable-logging=stderr", "--hide-scrollbars", "--virtual-time-budget=3000",
                   *options, page.as_uri()]
        environment = {**os.environ, "HOME": str(self.scratch)}
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                                env=environment)
        expect(result.returncode == 0, f"{command} ended with {result.returncode}: {result.stderr}")
        said = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        expect(not said, f"on the console of {page.name}: {said}")
        asked = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
                 if _ASKED_BY_A_PAGE.search(line)]
        expect(not asked, f"{page.name} asked the network: {asked}")
        return result.stdout

    def document(self, page, *options):
        return self.run(page, "--dump-dom", *options)

    def screenshot(self, page, path, size, *options):
        path.unlink(missing_ok=True)
        self.run(page, f"--screenshot={path}", f"--window-size={size}", *options)
        expect(path.stat().st_size > 20000, f"{path} is no picture of a page")


def make_page(program, path, scratch, *arguments):
    environment = {**os.environ, "DORAJIT_CACHE_DIR": str(scratch / "cache"),
                   "DORAJIT_DATABASES": "none"}
    subprocess.run([program, "report", "--html", path, *arguments], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    return path


def check_browser(browser, scratch):
    """Checks that the browser reports console messages and network requests."""
    page = scratch / "bad.html"
    for text, complaint in (("<script>console.log(1)</script>", "on the console"),
                            ("<img src=http://127.0.0.1:9/x.png>", "asked the network")):
        page.write_text("<!doctype html>" + text, encoding="utf-8")
        try:
            browser.document(page)
        except AssertionError as failure:
            expect(complaint in str(failure), f"wrong message for {text}: {failure}")
        else:
            expect(False, f"the browser does not report {text}")


def problems_of(database):
    """The keys of the problems for which `database` has trials."""
    lines = map(json.loads, database.read_text(encoding="utf-8").splitlines())
    return {line["problem"] for line in lines if "problem" in line}


def check_h200(browser, page, problems):
    count_of_problems = len(problems)
    dom = browser.document(page)
    found = Document(dom)
    for what, wanted in {"tr": count_of_problems, ".gain": count_of_problems, "details": 100,
                         "caption": 1, "h1": 1, "h2": 1, "h3": 2}.items():
        count = found.count.get(what, 0)
        expect(count >= wanted, f"the page has {count} of {what}, not {wanted}")
    expect(found.count["circle"] >= count_of_problems, "the roofline lacks points")
    expect("<noscript>" in page.read_text(encoding="utf-8"), "without scripts the page says nothing")
    expect(not found.references, f"the page refers to {found.references}")
    expect('data-ready="1"' in dom, "the script did not finish")
    expect(f"{count_of_problems} problems</span>" in dom, "the page has no filter")


def check_use(browser, page, problems, scratch):
    used = scratch / "used.html"
    used.write_text(page.read_text(encoding="utf-8").replace("</body>", _USE + "</body>"),
                    encoding="utf-8")
    dom = browser.document(used)
    seen = json.loads(re.search(r'<pre id="seen">(.*?)</pre>', dom)[1])
    gains = seen["gains"]
    expect(set(seen["operations"]) == {"backward", "residual_backward"}, f"the filter leaves {seen['operations']}")
    expect(0 < len(gains) < len(problems), f"the filter leaves {len(gains)} rows")
    expect(seen["status"] == f"{len(gains)} of {len(problems)} problems", seen["status"])
    expect(gains == sorted(gains, reverse=True) and gains[0] > gains[-1], "rows are not sorted")
    expect(seen["sort"] == "speed-up", seen["sort"])


def check_widths(browser, page, problems, scratch):
    """On a narrow screen, and on paper: landscape A4 without its margins."""
    text = page.read_text(encoding="utf-8").replace("</body>", _MEASURE + "</body>")
    on_paper = text.replace("@media screen and (max-width", "@media not all and (max-width").replace("@media print", "@media all")
    expect(on_paper.count("@media all") == 1 and on_paper.count("@media not all") == 1, "the page has other styles")
    for name, width, content in (("narrow", 390, text), ("paper", 1040, on_paper)):
        (scratch / f"{name}.html").write_text(content, encoding="utf-8")
        frame = scratch / f"{name}_frame.html"
        frame.write_text(_FRAME.format(name=f"{name}.html", width=width), encoding="utf-8")
        seen = json.loads(re.search(r'<pre id="seen">(.*?)</pre>', browser.document(frame))[1])
        expect(seen["width"] == width, f"{name}: the frame has {seen['width']} pixels")
        expect(max(seen["scroll"], seen["right"]) <= width, f"{name}: columns are cut: {seen}")
        expect(seen["rows"] == len(problems), f"{name}: {seen['rows']} of {len(problems)} rows are visible")
        expect(seen["columns"] == 13, f"{name}: {seen['columns']} of 13 columns are visible")


def check_print(browser, page, problems, out):
    """Rows take at least 2 mm of a page of 190 mm, so all of them take many pages."""
    browser.run(page, f"--print-to-pdf={out}", "--no-pdf-header-footer")
    pages = len(re.findall(rb"/Type\s*/Page\b", out.read_bytes()))
    expect(pages > len(problems) / 95, f"{len(problems)} rows were printed on {pages} pages")


def check(browser, arguments, scratch):
    check_browser(browser, scratch)
    database = arguments.source_dir / "databases" / "nvidia_h200.jsonl"
    page = make_page(arguments.program, scratch / "h200.html", scratch, "--from", database)
    problems = problems_of(database)
    check_h200(browser, page, problems)
    check_use(browser, page, problems, scratch)
    check_widths(browser, page, problems, scratch)
    check_print(browser, page, problems, arguments.out / "report_h200.pdf")
    empty = make_page(arguments.program, scratch / "empty.html", scratch)
    expect("Nothing was measured yet" in browser.document(empty), "the empty page does not say that it is empty")
    pictures = {"h200": (page, "1400,2600", ()),
                "h200_narrow": (page, "500,2600", ()),
                "h200_dark": (page, "1400,2600", ("--blink-settings=preferredColorScheme=0",)),
                "empty": (empty, "1400,700", ())}
    for name, (shown, size, options) in pictures.items():
        picture = arguments.out / f"report_{name}.png"
        browser.screenshot(shown, picture, size, *options)
        print(f"look at {picture}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--source-dir", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        print("SKIPPED: no Chromium is on PATH (apt-get install chromium), so the page of "
              "`dorajit report` is not tested")
        return SKIPPED
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dorajit-page-") as scratch:
        try:
            check(Browser(program, pathlib.Path(scratch)), arguments, pathlib.Path(scratch))
        except AssertionError as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
