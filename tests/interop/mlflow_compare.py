"""What an MLflow server has of a run: mlflow_compare.py PEER [real]

The peer logs; the server is one of this script's own, with MLflow's limits and answers as a real one (3.17) gave them, which also
fails in every way: it is away, answers late or with an error, loses its answer. With `real` also a real server, if mlflow is
installed in this Python (pip install mlflow; 77 if not): the same calls, without the faults that only our own server can do.
"""
import base64
import http.server
import importlib.util
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

PEER = ""
LIMIT = 40
NAME = re.compile(r"^[/\w.\- :]*$")
ENDS = {"FINISHED", "FAILED", "KILLED"}


class Refusal(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code = status, code


def invalid(message):
    return Refusal(400, "INVALID_PARAMETER_VALUE", message)


class Store:
    """Experiments and runs. Metrics are a list, as in MLflow's files: whatever comes twice is there twice."""

    def __init__(self):
        self.experiments = {"0": "Default"}
        self.runs = {}
        self.requests = []

    def experiment(self, query):
        for number, name in self.experiments.items():
            if name == query["experiment_name"]:
                return {"experiment": {"experiment_id": number, "name": name, "lifecycle_stage": "active"}}
        raise Refusal(404, "RESOURCE_DOES_NOT_EXIST", f"Could not find experiment with name '{query['experiment_name']}'")

    def create_experiment(self, body):
        if body["name"] in self.experiments.values():
            raise Refusal(400, "RESOURCE_ALREADY_EXISTS", f"Experiment(name={body['name']}) already exists.")
        number = str(len(self.experiments))
        self.experiments[number] = body["name"]
        return {"experiment_id": number}

    def create_run(self, body):
        if body["experiment_id"] not in self.experiments:
            raise Refusal(404, "RESOURCE_DOES_NOT_EXIST", f"No Experiment with id={body['experiment_id']} exists")
        number = f"{len(self.runs):032x}"
        self.runs[number] = {"experiment": body["experiment_id"], "name": body.get("run_name"), "status": "RUNNING", "history": ["RUNNING"],
                             "tags": {tag["key"]: tag["value"] for tag in body["tags"]}, "params": {}, "metrics": [], "end_time": None}
        return {"run": {"info": {"run_id": number, "status": "RUNNING"}}}

    def search(self, body):
        key = re.fullmatch(r"tags\.`lockstep\.key` = '(\w+)'", body["filter"]).group(1)
        found = [number for number, run in self.runs.items()
                 if run["tags"].get("lockstep.key") == key and run["experiment"] in body["experiment_ids"]]
        return {"runs": [{"info": {"run_id": number}} for number in found[:body["max_results"]]]} if found else {}

    def run(self, number):
        if number not in self.runs:
            raise Refusal(404, "RESOURCE_DOES_NOT_EXIST", f"Run with id={number} not found")
        return self.runs[number]

    def update_run(self, body):
        run = self.run(body["run_id"])
        run["status"] = body["status"]
        run["history"].append(body["status"])
        run["end_time"] = body.get("end_time", run["end_time"])
        return {"run_info": {"run_id": body["run_id"], "status": body["status"]}}

    def log_batch(self, body):
        run, metrics, params = self.run(body["run_id"]), body.get("metrics", []), body.get("params", [])
        if len(metrics) > 1000 or len(params) > 100 or len(metrics) + len(params) > 1000:
            raise invalid("A batch logging request can contain at most ...")
        for entry in metrics + params:
            name = entry["key"]
            if not NAME.match(name) or os.path.normpath(name) != name or name == "." or name[:1] == "/" or name[:2] == ".." or len(name) > 250:
                raise invalid(f"Invalid value \"{name}\" for parameter")
        for entry in params:
            if run["params"].get(entry["key"], entry["value"]) != entry["value"] or len(entry["value"]) > 6000:
                raise invalid("Changing param values is not allowed.")
        run["params"].update((entry["key"], entry["value"]) for entry in params)
        run["metrics"] += [(entry["key"], entry["step"], entry["timestamp"], float(str(entry["value"]).replace("Infinity", "inf")))
                           for entry in metrics]
        return {}

    def history(self, query):
        points = [{"key": key, "value": "NaN" if math.isnan(value) else max(-sys.float_info.max, min(value, sys.float_info.max)),
                   "timestamp": stamp, "step": step} for key, step, stamp, value in self.run(query["run_id"])["metrics"] if key == query["metric_key"]]
        # Pages of three, so that there are several.
        first = int(query.get("page_token", "0"))
        page = {"metrics": points[first:first + 3]} if points[first:] else {}
        return {**page, "next_page_token": str(first + 3)} if points[first + 3:] else page


class Server:
    """Serves a store. `fault`, a function of the call, says what goes wrong: nothing (None), "lose" the answer of a request that
    is done, "error" without doing it, "late" by two seconds, or a status and the page that a proxy gives instead of the server."""

    def __init__(self, store, port=0):
        owner = self
        self.store, self.fault = store, lambda call, body: None

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, body):
                path, _, query = self.path.partition("?")
                call = path.removeprefix("/api/2.0/mlflow/")
                store.requests.append((call, body, dict(self.headers)))
                calls = {"experiments/get-by-name": store.experiment, "experiments/create": store.create_experiment, "runs/create": store.create_run,
                         "runs/search": store.search, "runs/update": store.update_run, "runs/log-batch": store.log_batch,
                         "metrics/get-history": store.history}
                fault = owner.fault(call, body)
                status, content = 200, {}
                if isinstance(fault, tuple):
                    return self.send(fault[0], fault[1].encode())
                try:
                    if fault == "error":
                        raise Refusal(503, "TEMPORARILY_UNAVAILABLE", "later")
                    content = calls[call](body if body is not None else dict(urllib.parse.parse_qsl(query)))
                except Refusal as refusal:
                    status, content = refusal.status, {"error_code": refusal.code, "message": str(refusal)}
                if fault == "late":
                    time.sleep(2)
                if fault == "lose":
                    self.close_connection = True
                    return
                self.send(status, json.dumps(content).encode())

            def send(self, status, text):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.answer(None)

            def do_POST(self):
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_):
                pass

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        # Clients are killed.
        self.server.handle_error = lambda *_: None
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Peer:
    def __init__(self, folder, uri, **variables):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_") and "proxy" not in key.lower()}
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([PEER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
                                        env={**environment, **({"MLFLOW_TRACKING_URI": uri} if uri else {}), **variables})

    def tell(self, *lines):
        answers = []
        for line in lines:
            # A peer that was told to die does not answer.
            self.process.stdin.write(line + "\n")
            answers.append(self.process.stdout.readline().strip())
        return answers

    def end(self, *lines):
        self.tell(*lines)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(LIMIT)
        with self.errors:
            self.errors.seek(0)
            return self.errors.read().decode()


def eventually(find):
    end = time.monotonic() + LIMIT
    while not (found := find()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


class Own(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "seven", "runs")
        self.store = Store()
        self.server = Server(self.store)
        self.addCleanup(lambda: self.server.close())
        self.uri = f"http://127.0.0.1:{self.server.port}"

    def peer(self, **variables):
        return Peer(self.folder, self.uri, **variables)

    def only_run(self):
        self.assertEqual(len(self.store.runs), 1)
        return next(iter(self.store.runs.values()))

    def points(self, run=None):
        return [(key, step, value) for key, step, _, value in (run or self.only_run())["metrics"]]

    def unsent(self):
        return os.path.exists(os.path.join(self.folder, "mlflow-unsent.jsonl"))

    def test_a_run_arrives(self):
        errors = self.peer(MLFLOW_EXPERIMENT_NAME="my images & more").end(
            "param lr=0.5 name=a", "log 1 train/loss=2 lr=0.5", "log 2 train/loss=nan up=inf down=-inf", "log 2 train/loss=nan eval/loss=1.5", "finish")
        self.assertEqual(errors, "")
        run = self.only_run()
        self.assertEqual(self.store.experiments[run["experiment"]], "my images & more")
        self.assertEqual((run["name"], run["params"], run["history"]), ("seven", {"lr": "0.5", "name": "a"}, ["RUNNING", "FINISHED"]))
        self.assertAlmostEqual(run["end_time"] / 1000, time.time(), delta=LIMIT)
        # The second NaN of the step is the same value.
        self.assertEqual([(key, step) for key, step, _ in self.points()],
                         [("train/loss", 1), ("lr", 1), ("train/loss", 2), ("up", 2), ("down", 2), ("eval/loss", 2)])
        self.assertEqual([value for _, _, value in self.points() if not math.isnan(value)], [2, 0.5, math.inf, -math.inf, 1.5])
        self.assertFalse(self.unsent())

    def test_limits_and_names(self):
        many = " ".join(f"v{i}={i}" for i in range(2300))
        params = " ".join(f"p{i}={i}" for i in range(250))
        errors = self.peer().end(f"param {params} long={'x' * 7000}", f"log 1 {many}", f"log 2 a(b)%é=1 //x/../y/=2 {'n' * 300}=3 .=4", "finish")
        self.assertEqual(errors, "")
        run = self.only_run()
        self.assertEqual(len(run["params"]), 251)
        self.assertEqual(run["params"]["long"], "x" * 6000)
        self.assertEqual(self.points()[:2300], [(f"v{i}", 1, float(i)) for i in range(2300)])
        self.assertEqual(self.points()[2300:], [("a_b____", 2, 1.0), ("x/__/y", 2, 2.0), ("n" * 250, 2, 3.0), ("_", 2, 4.0)])

    def test_changed_parameters_are_named_and_the_others_arrive(self):
        self.peer().end("param lr=1 seed=1", "log 1 a=1", "finish")
        errors = self.peer().end("resume 1", "param lr=2 seed=1 more=3", "finish")
        self.assertIn("MLflow refuses parameter 'lr', which is left out: HTTP status 400: Changing param values", errors)
        self.assertEqual(self.only_run()["params"], {"lr": "1", "seed": "1", "more": "3"})

    def test_authentication(self):
        self.peer(MLFLOW_TRACKING_TOKEN="secret").end("log 1 a=1", "finish")
        self.assertEqual({headers.get("Authorization") for _, _, headers in self.store.requests}, {"Bearer secret"})
        self.store.requests.clear()
        self.peer(MLFLOW_TRACKING_USERNAME="me", MLFLOW_TRACKING_PASSWORD="p:w").end("log 2 a=1", "finish")
        self.assertEqual({headers.get("Authorization") for _, _, headers in self.store.requests}, {"Basic " + base64.b64encode(b"me:p:w").decode()})

    def test_a_resumed_run_goes_on(self):
        self.peer().end("param lr=1", *[f"log {i} loss={i} time={i}" for i in range(1, 6)], "drop")
        self.assertEqual(self.only_run()["history"], ["RUNNING", "FAILED"])
        # Steps 4 and 5 are repeated: the same losses, other times.
        self.peer().end("resume 3", "param lr=1", *[f"log {i} loss={i} time={i + 100}" for i in range(4, 8)], "finish")
        self.assertEqual(self.only_run()["history"], ["RUNNING", "FAILED", "RUNNING", "FINISHED"])
        self.assertEqual([(step, value) for key, step, value in self.points() if key == "loss"], [(i, i) for i in range(1, 8)])
        self.assertEqual([(step, value) for key, step, value in self.points() if key == "time"],
                         [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (4, 104), (5, 105), (6, 106), (7, 107)])

    def test_a_training_from_the_beginning_is_another_run(self):
        self.peer().end("log 1 loss=1", "finish")
        peer = self.peer()
        peer.tell("resume 0", "log 1 loss=2")
        self.assertTrue(eventually(lambda: len(self.store.runs) == 2 and self.points(list(self.store.runs.values())[1])))
        peer.tell("die")
        peer.end()
        self.peer().end("resume 0", "log 1 loss=3", "finish")
        self.assertEqual([run["history"] for run in self.store.runs.values()],
                         [["RUNNING", "FINISHED"], ["RUNNING", "KILLED"], ["RUNNING", "FINISHED"]])
        self.assertEqual([self.points(run) for run in self.store.runs.values()], [[("loss", 1, float(i))] for i in (1, 2, 3)])

    def test_a_named_run_is_continued(self):
        self.peer().end("log 1 loss=1", "finish")
        number = next(iter(self.store.runs))
        other = self.folder + "-other"
        Peer(other, self.uri, MLFLOW_RUN_ID=number).end("log 1 loss=1", "log 2 loss=2", "finish")
        self.assertEqual(self.points(), [("loss", 1, 1), ("loss", 2, 2)])
        self.assertEqual(self.only_run()["history"], ["RUNNING", "FINISHED", "RUNNING", "FINISHED"])

    def test_a_server_that_is_away_holds_up_nobody(self):
        self.server.close()
        peer = self.peer()
        begin = time.monotonic()
        peer.tell("param lr=1", *[f"log {i} loss={i}" for i in range(1, 400)])
        self.assertLess(time.monotonic() - begin, 5)
        self.assertTrue(self.unsent())
        self.server = Server(self.store, self.server.port)
        self.assertTrue(eventually(lambda: self.store.runs and len(self.points()) == 399))
        errors = peer.end("log 400 loss=400", "finish")
        self.assertEqual(errors.count("cannot take the run's values"), 1)
        self.assertEqual(errors.count("answers again"), 1)
        self.assertEqual(self.points(), [("loss", i, float(i)) for i in range(1, 401)])
        self.assertFalse(self.unsent())

    def test_a_page_of_a_proxy_is_no_answer(self):
        pages = ((404, "404 page not found"), (200, "<html>Log in</html>"), (302, ""), (404, '{"detail": "Not Found"}'))
        calls = ("experiments/get-by-name", "runs/create", "runs/log-batch", "runs/update")
        left = dict(zip(calls, pages))
        self.server.fault = lambda call, body: left.pop(call, None)
        errors = self.peer().end("param lr=1", "log 1 a=1", "log 2 a=2", "finish")
        self.assertEqual((left, errors.count("cannot take the run's values") > 0, errors.count("answers again") > 0), ({}, True, True))
        self.assertEqual((self.points(), self.only_run()["params"]), ([("a", 1, 1), ("a", 2, 2)], {"lr": "1"}))
        self.assertEqual(self.only_run()["status"], "FINISHED")

    def test_what_a_gateway_refuses_is_sent_in_parts(self):
        self.server.fault = lambda call, body: ((413, 400)[len(self.store.requests) % 2], "<html>") if len(json.dumps(body)) > 2000 else None
        errors = self.peer().end(f"log 1 {' '.join(f'v{i}={i}' for i in range(100))}", "finish")
        self.assertEqual((errors, self.points()), ("", [(f"v{i}", 1, float(i)) for i in range(100)]))

    def test_what_was_not_sent_is_sent_by_the_next_process(self):
        self.server.close()
        errors = self.peer().end("param lr=1", *[f"log {i} loss={i}" for i in range(1, 6)], "finish")
        self.assertIn("sent by the next training that uses this folder", errors)
        self.server = Server(self.store, self.server.port)
        # Of these, steps after 3 are no longer part of the run.
        self.peer().end("resume 3", "log 4 loss=44", "finish")
        self.assertEqual(self.points(), [("loss", 1, 1), ("loss", 2, 2), ("loss", 3, 3), ("loss", 4, 44)])
        self.assertEqual((self.only_run()["params"], self.only_run()["status"]), ({"lr": "1"}, "FINISHED"))
        self.assertFalse(self.unsent())

    def test_a_killed_process_loses_nothing_and_repeats_nothing(self):
        for kill in range(1, 4):
            # The request is done, and the process is killed before it knows.
            self.server.fault = lambda call, body: "late" if call == "runs/log-batch" else None
            peer = self.peer()
            peer.tell(*[f"log {step} loss={step} nan=nan up=inf" for step in range(10 * kill, 10 * kill + 10)])
            self.assertTrue(eventually(lambda: self.store.runs and len(self.points()) == 30 * kill))
            peer.process.kill()
            peer.end()
        self.server.fault = lambda call, body: None
        self.peer().end("log 50 loss=50", "finish")
        for name in ("loss", "nan", "up"):
            self.assertEqual([step for key, step, _ in self.points() if key == name], [*range(10, 40)] + [50] * (name == "loss"), name)

    def test_faults_of_every_call(self):
        calls = ("experiments/get-by-name", "experiments/create", "runs/create", "runs/update", "params", "metrics")
        for fault, times in (("lose", 1), ("error", 2)):
            for call in calls:
                with self.subTest(fault=fault, call=call):
                    self.setUp()
                    left = [times]

                    def some(asked, body, fault=fault, call=call, left=left):
                        if left[0] == 0 or (asked != call and not (asked == "runs/log-batch" and call in body)):
                            return None
                        left[0] -= 1
                        return fault

                    self.server.fault = some
                    errors = self.peer(MLFLOW_EXPERIMENT_NAME="images").end("param lr=1", "log 1 a=1 b=nan", "log 2 a=2", "finish")
                    self.assertEqual(left, [0])
                    self.assertIn("answers again", errors)
                    self.assertEqual([(key, step) for key, step, _ in self.points()], [("a", 1), ("b", 1), ("a", 2)])
                    self.assertEqual((self.only_run()["status"], self.only_run()["params"]), ("FINISHED", {"lr": "1"}))
                    self.assertEqual(self.store.experiments, {"0": "Default", "1": "images"})

    def test_no_server_is_named(self):
        for uri, words in ((None, "it is not set"), ("file:///tmp/x", "it is 'file:///tmp/x'")):
            peer = Peer(self.folder, uri)
            self.assertIn("MLFLOW_TRACKING_URI, such as http://localhost:5000 ('mlflow server' starts one); " + words, peer.tell("log 1 a=1")[0])
            peer.end()


class Real(unittest.TestCase):
    """The same with a real server; what it has is read with its own client."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri",
             f"sqlite:///{self.folder}/runs.db", "--default-artifact-root", f"{self.folder}/artifacts"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)
        self.addCleanup(self.stop)

        def healthy():
            try:
                return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self.uri + "/health", timeout=5).status == 200
            except OSError:
                return False

        global LIMIT
        LIMIT = 120
        self.assertTrue(eventually(healthy))

    def stop(self):
        os.killpg(self.process.pid, 15)
        self.process.wait(LIMIT)

    def test_a_run_that_was_killed_and_resumed(self):
        from mlflow.tracking import MlflowClient
        runs = os.path.join(self.folder, "digits", "runs")
        params = " ".join(f"p{i}={i}" for i in range(150))
        values = " ".join(f"v{i}={i}" for i in range(1500))
        peer = Peer(runs, self.uri, MLFLOW_EXPERIMENT_NAME="lockstep's")
        peer.tell(f"param {params} long={'x' * 7000}", f"log 1 {values}", *[f"log {i} train/loss={1 / i} bad=nan up=inf down=-inf" for i in range(2, 6)])
        client = MlflowClient(self.uri)

        def run_of():
            experiment = client.get_experiment_by_name("lockstep's")
            found = client.search_runs([experiment.experiment_id]) if experiment else []
            return found[0] if found else None

        def points(name):
            return [(point.step, point.value) for point in client.get_metric_history(run_of().info.run_id, name)]

        self.assertTrue(eventually(lambda: run_of() and len(points("train/loss")) == 4))
        peer.process.kill()
        peer.end()
        errors = Peer(runs, self.uri, MLFLOW_EXPERIMENT_NAME="lockstep's").end(
            "resume 3", *[f"log {i} train/loss={1 / i} bad=nan up=inf down=-inf" for i in range(4, 8)], "finish")
        self.assertEqual(errors, "")
        run = run_of()
        self.assertEqual((run.info.run_name, run.info.status), ("digits", "FINISHED"))
        self.assertEqual({key: value for key, value in run.data.params.items() if key != "long"}, {f"p{i}": str(i) for i in range(150)})
        self.assertEqual(len(run.data.params["long"]), 6000)
        self.assertEqual({f"v{i}": float(i) for i in range(1500)}, {key: value for key, value in run.data.metrics.items() if key[0] == "v"})
        self.assertEqual(points("train/loss"), [(i, 1 / i) for i in range(2, 8)])
        self.assertEqual([step for step, value in points("bad") if math.isnan(value)], [*range(2, 8)])
        self.assertEqual(points("up"), [(i, sys.float_info.max) for i in range(2, 8)])
        self.assertEqual(points("down"), [(i, -sys.float_info.max) for i in range(2, 8)])


if __name__ == "__main__":
    PEER = os.path.abspath(sys.argv[1])
    if sys.argv[2:] == ["real"]:
        if importlib.util.find_spec("mlflow") is None:
            print("skipped: mlflow is not installed")
            sys.exit(77)
        del Own
    else:
        del Real
    unittest.main(argv=sys.argv[:1], verbosity=2)
