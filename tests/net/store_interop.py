"""PyTorch's own TCPStore client against our server, beside the same calls against PyTorch's own server.

Usage: store_interop.py STORE_SERVER STORE_TALK      run it with a Python that has torch
"""

import datetime
import socket
import subprocess
import sys
import threading
import time
import unittest

import torch.distributed as dist

SHORT = datetime.timedelta(milliseconds=100)
LONG = datetime.timedelta(seconds=30)


class OurServer:
    """A store of ours in a process of its own."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([STORE_SERVER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=30)


def client(port, libuv=True, timeout=LONG, **options):
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout, use_libuv=libuv,
                         wait_for_workers=options.pop("wait_for_workers", False), **options)


def outcome(call):
    """What a call returns, or the kind of its failure: its text names addresses and differs."""
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def talk(store, queues):
    """Every method of a store, and what each gave."""
    said = [
        outcome(lambda: store.set("a", "v1")), outcome(lambda: store.get("a")),
        outcome(lambda: store.set("empty", "")), outcome(lambda: store.get("empty")),
        outcome(lambda: store.set("zeros", "x\0y")), outcome(lambda: store.get("zeros")),
        outcome(lambda: store.add("n", 5)), outcome(lambda: store.add("n", -7)), outcome(lambda: store.get("n")),
        outcome(lambda: store.add("max", 2**63 - 1)),
        outcome(lambda: store.compare_set("cs", "", "x")), outcome(lambda: store.compare_set("cs", "x", "y")),
        outcome(lambda: store.compare_set("cs", "zz", "w")), outcome(lambda: store.compare_set("cs", "", "q")),
        outcome(lambda: store.compare_set("other", "expected", "w")), outcome(lambda: store.check(["other"])),
        outcome(lambda: store.check(["a", "n"])), outcome(lambda: store.check(["a", "no"])),
        outcome(lambda: store.check([])),
        outcome(lambda: store.wait(["a", "n"], SHORT)), outcome(lambda: store.wait(["a", "no", "nor"], SHORT)),
        outcome(lambda: store.wait([], SHORT)),
        outcome(lambda: store.append("ap", "123")), outcome(lambda: store.append("ap", "45")),
        outcome(lambda: store.get("ap")),
        outcome(lambda: store.multi_set(["m1", "m2"], ["x", "yy"])), outcome(lambda: store.multi_get(["m1", "m2"])),
        outcome(lambda: store.multi_get([])),
        outcome(lambda: store.num_keys()), outcome(lambda: sorted(store.list_keys())),
        outcome(lambda: store.delete_key("cs")), outcome(lambda: store.delete_key("cs")),
        outcome(lambda: store.has_extended_api()),
    ]
    if queues:
        said += talk_of_queues(store)
    store.set_timeout(SHORT)
    said += [outcome(lambda: store.get("absent")), outcome(lambda: store.multi_get(["m1", "absent"]))]
    store.set_timeout(LONG)
    prefixed = dist.PrefixStore("one/two", store)
    prefixed.set("key", "inner")
    said += [outcome(lambda: prefixed.get("key")), outcome(lambda: store.get("one/two/key")),
             outcome(lambda: prefixed.add("count", 3)), outcome(lambda: prefixed.check(["no"])),
             outcome(lambda: store.add("ap_text", 1)),
             outcome(lambda: store.set("spaced", " +4 words")), outcome(lambda: store.add("spaced", 1)),
             outcome(lambda: store.set("word", "text")),
             # A word is no number: the server closes the connection.
             outcome(lambda: store.add("word", 1)), outcome(lambda: store.get("a"))]
    return said


def talk_of_queues(store):
    said = [outcome(lambda: store.queue_push("q", "one")), outcome(lambda: store.queue_push("q", "two")),
            outcome(lambda: store.queue_len("q")), outcome(lambda: store.queue_len("none")),
            outcome(lambda: store.check(["q"])), outcome(lambda: store.num_keys()),
            outcome(lambda: sorted(store.list_keys())), outcome(lambda: store.wait(["q"], SHORT)),
            outcome(lambda: store.delete_key("q")), outcome(lambda: store.queue_len("q")),
            outcome(lambda: store.queue_pop("q")), outcome(lambda: store.queue_pop("q", False)),
            outcome(lambda: store.queue_pop("q", False)), outcome(lambda: store.check(["q"]))]
    store.set_timeout(SHORT)
    said.append(outcome(lambda: store.queue_pop("q", True)))
    store.set_timeout(LONG)
    return said


class Interop(unittest.TestCase):
    def setUp(self):
        self.server = OurServer()

    def tearDown(self):
        self.assertEqual(self.server.end(), 0)

    def compare(self, libuv):
        theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=libuv)
        expected = talk(client(theirs.port, libuv), queues=libuv)
        # Their server's own client counts as nothing here; both tables hold what the talk put there.
        self.assertEqual(talk(client(self.server.port, libuv), queues=libuv), expected)

    def test_every_method_as_their_libuv_server(self):
        self.compare(libuv=True)

    def test_every_method_as_their_legacy_server(self):
        self.compare(libuv=False)

    def test_clients_that_wait_for_all_count_themselves(self):
        store = client(self.server.port, world_size=2, wait_for_workers=True)
        self.assertEqual(store.num_keys(), 1)

    def test_a_wait_ends_when_another_client_sets_the_key(self):
        for method, call in (("set", lambda s, k: s.set(k, "1")), ("add", lambda s, k: s.add(k, 1)),
                             ("append", lambda s, k: s.append(k, "1")), ("multi_set", lambda s, k: s.multi_set([k], ["1"])),
                             ("compare_set", lambda s, k: s.compare_set(k, "", "1"))):
            waiting, setting = client(self.server.port), client(self.server.port)
            thread = threading.Thread(target=waiting.wait, args=(["late/" + method, "later/" + method], LONG))
            thread.start()
            call(setting, "late/" + method)
            time.sleep(0.02)
            self.assertTrue(thread.is_alive(), method)
            call(setting, "later/" + method)
            thread.join(30)
            self.assertFalse(thread.is_alive(), method)

    def test_one_push_ends_one_pop(self):
        script = ("import sys, datetime, torch.distributed as d\n"
                  "s = d.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=False, wait_for_workers=False)\n"
                  "s.add('waiting', 1)\n"
                  "print(s.queue_pop('jobs').decode())\n")
        poppers = [subprocess.Popen([sys.executable, "-c", script, str(self.server.port)], stdout=subprocess.PIPE,
                                    text=True) for _ in range(2)]
        store = client(self.server.port)
        for _ in range(3000):
            if store.add("waiting", 0) == 2:
                break
            time.sleep(0.01)
        time.sleep(0.1)
        store.queue_push("jobs", "first")
        time.sleep(0.3)
        self.assertEqual(sorted(popper.poll() is None for popper in poppers)[-1], True)
        store.queue_push("jobs", "second")
        self.assertEqual(sorted(popper.communicate(timeout=30)[0].strip() for popper in poppers), ["first", "second"])

    def test_eight_mebibytes_there_and_back(self):
        for libuv in (True, False):
            store = client(self.server.port, libuv)
            value = bytes(range(256)) * (8 * 1024 * 4)
            store.set("large", value.decode("latin-1").encode("utf-8")[:8 << 20])
            kept = store.get("large")
            self.assertEqual(len(kept), 8 << 20)
            self.assertEqual(kept, value.decode("latin-1").encode("utf-8")[:8 << 20])
            store.multi_set(["l1", "l2"], [kept, kept])
            self.assertEqual(store.multi_get(["l1", "l2"]), [kept, kept])

    def test_beyond_eight_mebibytes_the_connection_is_closed(self):
        store = client(self.server.port)
        with self.assertRaises(Exception):
            store.set("large", b"x" * ((8 << 20) + 1))
            store.get("large")

    def test_fifty_clients_at_once(self):
        failures = []

        def work(number):
            try:
                store = client(self.server.port, libuv=number % 2 == 0)
                for round_number in range(20):
                    store.set(f"{number}/{round_number}", f"value {number}")
                    store.add("sum", 1)
                store.wait([f"{other}/19" for other in range(50)], LONG)
                for other in range(50):
                    if store.get(f"{other}/7") != f"value {other}".encode():
                        raise AssertionError(f"{number} read another value of {other}")
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual(failures, [])
        self.assertEqual(client(self.server.port).add("sum", 0), 1000)

    def test_a_clone_is_another_client(self):
        store = client(self.server.port)
        store.clone().set("from", "the clone")
        self.assertEqual(store.get("from"), b"the clone")

    def test_a_process_group_meets_over_it(self):
        script = ("import sys, torch, torch.distributed as d\n"
                  "s = d.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=False, wait_for_workers=False)\n"
                  "d.init_process_group('gloo', store=s, rank=int(sys.argv[2]), world_size=2)\n"
                  "t = torch.ones(3) * (1 + d.get_rank())\n"
                  "d.all_reduce(t)\n"
                  "print(t.tolist())\n"
                  "d.barrier(); d.destroy_process_group()\n")
        ranks = [subprocess.Popen([sys.executable, "-c", script, str(self.server.port), str(rank)],
                                  stdout=subprocess.PIPE, text=True) for rank in range(2)]
        for rank in ranks:
            self.assertEqual(rank.communicate(timeout=120)[0].strip(), "[3.0, 3.0, 3.0]")

    def test_one_byte_at_a_time(self):
        number = (4).to_bytes(8, "little")
        request = (b"\0\xce\xf7\x85\x3c" + b"\x0dping" + b"\x01" + number + b"/key" + number + b"slow" +
                   b"\x03" + number + b"/key")
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in request:
                connection.sendall(bytes([byte]))
                time.sleep(0.001)
            expected = b"ping" + number + b"slow"
            got = b""
            while len(got) < len(expected):
                got += connection.recv(100)
        self.assertEqual(got, expected)


class OurClient(unittest.TestCase):
    """Our client says the same at every server."""

    def talk(self, port, *arguments):
        return subprocess.run([STORE_TALK, str(port), *arguments], stdout=subprocess.PIPE, text=True, check=True,
                              timeout=60).stdout

    def test_at_their_servers_as_at_ours(self):
        for libuv, arguments in ((True, ["queues"]), (False, [])):
            theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=libuv)
            ours = OurServer()
            expected = self.talk(theirs.port, *arguments)
            self.assertGreater(len(expected.splitlines()), 20)
            self.assertEqual(self.talk(ours.port, *arguments), expected)
            self.assertEqual(ours.end(), 0)

    def test_with_a_secret_their_servers_are_plain_stores(self):
        for libuv in (True, False):
            theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=libuv)
            said = self.talk(theirs.port, "secret=of the job")
            self.assertIn("proven 0", said)
            self.assertIn("control plain_store", said)

    def test_with_a_secret_our_server_proves_it(self):
        ours = OurServer("64", "of the job")
        said = self.talk(ours.port, "queues", "secret=of the job")
        self.assertIn("proven 1", said)
        self.assertIn("control connected", said)
        self.assertEqual(ours.end(), 0)

    def test_reads_what_python_wrote(self):
        theirs = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        theirs.set("from/python", "hello")
        theirs.add("count", 41)
        self.assertIn("from python: hello 42", self.talk(theirs.port, "python"))
        self.assertEqual(theirs.get("from/lockstep"), b"hello back")


if __name__ == "__main__":
    STORE_SERVER, STORE_TALK = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
