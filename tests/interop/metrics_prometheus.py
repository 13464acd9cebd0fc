"""The launcher's metrics in a real Prometheus: metrics_prometheus.py LAUNCHER BEATING_RANK

promtool finds nothing to mend in the page, and a Prometheus that scrapes two nodes of one job each second has their ranks. Ends
with 77 where Prometheus is not installed (Debian: prometheus).
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

LIMIT = 60


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def eventually(what, find):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            found = find()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"within {LIMIT} s: {what}")


def read(url):
    # Without a proxy of the environment.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return answer.read().decode()


class Node:
    """A launcher of one node of the job, with one rank."""

    def __init__(self, launcher, program, endpoint, folder, number):
        self.errors = os.path.join(folder, f"node{number}.err")
        self.process = subprocess.Popen(
            [launcher, "run", "--nnodes=2", f"--node-rank={number}", "--nproc-per-node=1", "--rdzv-backend=c10d",
             f"--rdzv-endpoint={endpoint}", "--rdzv-id=job", "--no-job-secret", "--metrics-port=0", "--shutdown-timeout=1", program, "0", folder],
            stdout=subprocess.DEVNULL, stderr=open(self.errors, "w"))

    def address(self):
        found = re.search(r"metrics are at http://([\d.:]+)/metrics", open(self.errors).read())
        return found and found.group(1)


def query(server, text):
    answer = json.loads(read(f"http://{server}/api/v1/query?query={urllib.parse.quote(text)}"))
    return {(one["metric"].get("node"), one["metric"].get("rank")): float(one["value"][1]) for one in answer["data"]["result"]}


def check(launcher, program, folder, started):
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [Node(launcher, program, endpoint, folder, number) for number in range(2)]
    started.extend(node.process for node in nodes)
    addresses = [eventually("no address of metrics", node.address) for node in nodes]
    for rank in "01":
        eventually("no rank started", lambda: os.path.exists(os.path.join(folder, rank)))
    pages = [eventually("no rank on the page", lambda: (page := read(f"http://{one}/metrics")) and "lockstep_rank_up{" in page and page)
             for one in addresses]
    for page in pages:
        linted = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True, timeout=LIMIT)
        if linted.returncode != 0 or linted.stdout or linted.stderr:
            sys.exit(f"promtool: {linted.stdout}{linted.stderr}\n{page}")
    configuration = os.path.join(folder, "prometheus.yml")
    with open(configuration, "w") as file:
        json.dump({"scrape_configs": [{"job_name": "lockstep", "scrape_interval": "1s", "static_configs": [{"targets": addresses}]}]}, file)
    server = f"127.0.0.1:{free_port()}"
    started.append(subprocess.Popen(
        ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={server}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    both = {("0", "0"): 1.0, ("1", "1"): 1.0}
    eventually("Prometheus has not both ranks", lambda: query(server, "lockstep_rank_up") == both)
    eventually("Prometheus has not both nodes", lambda: query(server, "lockstep_world_size") == {("0", None): 2.0, ("1", None): 2.0})
    # Rank 0 works and never comes; rank 1 waits for it.
    eventually("rank 1 does not wait", lambda: query(server, "lockstep_rank_waiting_seconds > 2").keys() == {("1", "1")})
    eventually("both are silent", lambda: query(server, "lockstep_rank_heartbeat_age_seconds > 2").keys() == both.keys())
    eventually("no failed scrape", lambda: list(query(server, "min(up)").values()) == [1.0])


def main():
    launcher, program = sys.argv[1:]
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        print("Prometheus is not installed")
        sys.exit(77)
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(launcher, program, folder, started)
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


if __name__ == "__main__":
    main()
