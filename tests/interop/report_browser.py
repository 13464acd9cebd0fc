"""The pages of lockstep report in a browser: report_browser.py LAUNCHER

A real training on digits (recorded), a training with names and values that nobody expects, one with next to nothing, and ten
trainings beside each other. At a zoom of 80, 100 and 150 %, on a phone, in the dark and in print: the console is silent, nothing scrolls
sideways, no text leaves its box or lies on another one, every plot has a size, and all texts and curves stand out. Ends with 77
where there is no browser (Debian: chromium).
"""
import json
import math
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PHONE = 360
SCREEN = 1280
PAPER = 718  # A4 with the usual margins.
PATIENCE = 120  # Seconds without an answer of the browser.
# Title, zoom, dark, medium, widths.
SETTINGS = (("80 %", 0.8, False, "", [round(SCREEN / 0.8)]), ("100 %", 1, False, "", [SCREEN, PHONE]), ("150 %", 1.5, False, "", [round(SCREEN / 1.5)]),
            ("100 %, dark", 1, True, "", [SCREEN, PHONE]), ("print", 1, True, "print", [PAPER]))

# Runs in the page around the reports, which hold no script themselves.
CHECKER = r"""
const problems = [], seen = {svgs: 0, texts: 0, strips: 0};
const rgb = text => text.match(/[\d.]+/g).map(Number);
const light = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
                     return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]); };
const contrast = (one, other) => { const [a, b] = [light(rgb(one)), light(rgb(other))].sort((x, y) => y - x); return (a + .05) / (b + .05); };
function behind(element) {
  for (let e = element; e; e = e.parentElement) {
    const color = e.ownerDocument.defaultView.getComputedStyle(e).backgroundColor;
    if (color !== "rgba(0, 0, 0, 0)") return color;
  }
  return "rgb(255, 255, 255)";
}
function check(name, frame) {
  const doc = frame.contentDocument, view = frame.contentWindow, style = e => view.getComputedStyle(e);
  const complain = (what, e) => problems.push(`${name}: ${what}: ${(e ? e.outerHTML : "").slice(0, 160)}`);
  const shown = e => e.checkVisibility();
  if (doc.documentElement.scrollWidth > view.innerWidth) complain(`scrolls sideways, ${doc.documentElement.scrollWidth} > ${view.innerWidth}`);
  for (const e of doc.querySelectorAll("script, [src], [href], link, iframe, object, embed")) complain("loads or runs something", e);
  for (const e of doc.body.querySelectorAll(":not(svg *)")) {
    if (e.matches("svg") || !shown(e) || style(e).display.startsWith("inline")) continue;
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && style(e).overflowX === "visible") complain(`overflows, ${e.scrollWidth} > ${e.clientWidth}`, e);
  }
  for (const e of doc.querySelectorAll("p, td, th, h1, h2, h3, li, dt, dd, b, span, small, figcaption, .bar-name, footer")) {
    if (shown(e) && e.textContent && contrast(style(e).color, behind(e)) < 4.5) complain(`is hard to read, ${contrast(style(e).color, behind(e))}`, e);
  }
  for (const figure of doc.querySelectorAll("figure")) {
    const plots = [...figure.querySelectorAll("svg.plot")].filter(shown);
    if (plots.length !== 1) complain(`shows ${plots.length} plots`, figure);
  }
  for (const svg of [...doc.querySelectorAll("svg")].filter(shown)) {
    const box = svg.getBoundingClientRect();
    ++seen.svgs;
    if (!(box.width > 0 && box.height > 0)) complain("has no size", svg);
    const boxes = [], back = behind(svg);
    for (const text of svg.querySelectorAll("text")) {
      const b = text.getBoundingClientRect();
      ++seen.texts;
      if (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1) complain("leaves its picture", text);
      if (b.height < 9) complain(`is too small, ${b.height}`, text);
      if (contrast(style(text).fill, back) < 4.5) complain("is hard to read", text);
      for (const o of boxes) if (b.left < o.right - 1 && o.left < b.right - 1 && b.top < o.bottom - 3 && o.top < b.bottom - 3) complain("lies on another text", text);
      boxes.push(b);
    }
    for (const curve of svg.querySelectorAll("path.curve")) {
      if (contrast(style(curve).stroke, back) < 2.9) complain(`hardly stands out, ${contrast(style(curve).stroke, back)}`, curve);
      if (svg.classList.contains("plot") && /NaN|inf|[^\d\s.MLC-]/i.test(curve.getAttribute("d").replace(/[ML]/g, ""))) complain("has a place that is no number", curve);
    }
    seen.strips += svg.querySelectorAll(".strip title").length;
  }
  return light(rgb(behind(doc.body)));
}
async function main(pages) {
  const results = [];
  for (const [name, width] of pages) {
    const frame = document.createElement("iframe");
    frame.style = `border:0;height:800px;width:${width}px`;
    frame.srcdoc = PAGES[name];
    const loaded = new Promise(resolve => frame.onload = resolve);
    document.body.append(frame);
    await loaded;
    results.push(check(`${name} at ${width} px`, frame));
    frame.remove();
  }
  return {problems, seen, backs: results};
}
"""


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def training(folder, steps, rate, names=(), seed=0):
    """Writes metrics.jsonl of a made-up training, with more values of the given names."""
    noise = random.Random(seed)
    lines = [{"step": 0, "time": 1.79e9, "hyperparameters": {"learning_rate": rate, "seed": seed}}]
    for step in range(1, steps + 1):
        loss = 2.5 * math.exp(-step * rate) + 0.05 + 0.2 * noise.random()
        line = {"step": step * 10, "time": 1.79e9 + step * (1 + 0.2 * noise.random()), "train/loss": loss, "train/grad_norm": loss * noise.random() * 4,
                "train/learning_rate": rate * (1 - step / steps), "memory/peak_rss_mib": 2048 + step}
        line.update({name: noise.gauss(0, 1) for name in names})
        lines.append(line)
        if step % max(1, steps // 12) == 0:
            lines.append({"step": step * 10, "time": line["time"] + 0.1, "eval/loss": loss * 1.1, "eval/accuracy": 1 - loss / 4, "eval/runtime": 1.5})
    write(folder, "runs/metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def hostile(folder):
    nasty = "<script>alert('x')</script>&\"'<img src=x onerror=alert(1)>"
    long = "a_name_of_a_value_that_does_not_end_" * 6
    training(folder, 300, 1e-5, [nasty, long, "größe/大小", "train/gradient.0.weight"])
    with open(os.path.join(folder, "runs", "metrics.jsonl"), "a") as file:
        for step in range(3010, 3100, 10):
            file.write(json.dumps({"step": step, "time": 1.79e9, "train/loss": [math.nan, math.inf, 1e300, -1e-300, 0][step // 10 % 5]}) + "\n")
        file.write("{\"step\": 1, half of a li")
    write(folder, "checkpoint-7/training_args.json", json.dumps({nasty: nasty, "long": long * 5, "list": list(range(100))}))
    error = {"message": {"message": nasty + long, "extraInfo": {"timestamp": "1790000100"}}}
    write(folder, "logs/x/attempt_0/0/error.json", json.dumps(error))
    write(folder, "trainer_state.json", "{\"global_step\": NaN")


def make_pages(launcher, folder):
    """(name, HTML) of each report."""
    runs = os.path.join(folder, "runs")
    shutil.copytree(os.path.join(HERE, "report_runs", "digits"), os.path.join(runs, "digits"))
    hostile(os.path.join(runs, "<b>hostile</b> & a_folder_with_a_long_name_" + "x" * 120))
    write(os.path.join(runs, "nothing"), "trainer_state.json", json.dumps({"global_step": 1, "log_history": [{"loss": 1.0, "step": 1}]}))
    for i in range(10):
        training(os.path.join(runs, f"sweep-{i}-learning_rate-and-other-things-in-its-name"), 40 + 120 * i, 0.002 * (i + 1), seed=i)
    names = sorted(os.listdir(runs))
    jobs = {name[:9]: [name] for name in names if not name.startswith("sweep")}
    jobs["ten"] = [name for name in names if name.startswith("sweep")]
    jobs["ten by time"] = jobs["ten"] + ["--x-axis", "time"]
    for job, words in jobs.items():
        output = os.path.join(folder, "report.html")
        done = subprocess.run([launcher, "report", *words, "--output", output], cwd=runs, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with open(output, encoding="utf-8") as file:
            yield job, file.read()


class Browser:
    """One headless browser, which is told what to do by DevTools' protocol: JSON with a zero byte behind it, through two pipes."""

    def __init__(self, program, folder):
        (its, self.commands), (self.answers, its_answers) = os.pipe(), os.pipe()
        words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile",
                 "--remote-debugging-pipe", "about:blank"]
        self.log = open(os.path.join(folder, "browser.log"), "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(["sh", "-c", f'exec "$0" "$@" 3<&{its} 4>&{its_answers}', *words], pass_fds=(its, its_answers),
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        os.close(its)
        os.close(its_answers)
        self.number, self.rest, self.said, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method, **words):
        self.number += 1
        message = {"id": self.number, "method": method, "params": words} | ({"sessionId": self.session} if self.session else {})
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self.commands, left):]
        while (answer := self.read()).get("id") != self.number:
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(answer["params"])[:400])
        if "error" in answer:
            raise SystemExit(f"the browser refuses {method}: {answer['error']}")
        return answer["result"]

    def read(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 20) if select.select([self.answers], [], [], PATIENCE)[0] else b""
            if not more:
                self.log.seek(0)
                raise SystemExit(f"the browser gave no answer (status {self.process.poll()}): {self.log.read()[-2000:]}")
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def check(self, place, pages, zoom, dark, medium):
        """What the checker finds on these (name, width)."""
        self.call("Emulation.setDeviceMetricsOverride", width=int(SCREEN * 1.5), height=1000, deviceScaleFactor=zoom, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=f"file://{place}")
        for _ in range(PATIENCE * 20):
            if self.evaluate('document.readyState === "complete" && typeof main === "function"'):
                break
            time.sleep(0.05)
        result = self.evaluate(f"main({json.dumps(pages)})")
        result["problems"] += self.said
        self.said = []
        return result

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            return {"problems": [json.dumps(answer["exceptionDetails"])[:2000]]}
        return answer["result"].get("value")

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def problems_of(title, found, dark):
    print(f"{title}: {found.get('seen')}", flush=True)
    problems = [f"{title}: {problem}" for problem in found["problems"]]
    if not found.get("seen", {}).get("strips"):
        problems.append(f"{title}: no plot shows values below the pointer")
    return problems + [f"{title}: a page is {'light' if dark else 'dark'}" for back in found.get("backs", []) if (back < 0.1) != dark]


def main():
    launcher = os.path.abspath(sys.argv[1])
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("skipped: there is no browser (Debian: apt-get install chromium)")
        sys.exit(77)
    problems = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pages = list(make_pages(launcher, folder))
        data = json.dumps(dict(pages)).replace("</", "<\\/")
        write(folder, "check.html", f"<!DOCTYPE html><meta charset=utf-8><body><script>const PAGES = {data};{CHECKER}</script></body>")
        browser = Browser(program, folder)
        try:
            for title, zoom, dark, medium, widths in SETTINGS:
                found = browser.check(os.path.join(folder, "check.html"), [(name, width) for width in widths for name, _ in pages], zoom, dark, medium)
                problems += problems_of(title, found, dark and medium != "print")  # Paper is white.
        finally:
            browser.end()
    for problem in problems[:40]:
        print(problem)
    print(f"{len(problems)} problems on {len(pages)} pages")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
