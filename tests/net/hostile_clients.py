"""Hostile clients against our store server: its memory stays bounded, and legitimate clients are answered meanwhile.

Usage: hostile_clients.py STORE_SERVER      needs no torch
"""

import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

MAGIC = b"\0\xce\xf7\x85\x3c"
GREETING = MAGIC + b"\x0dping"
MEBIBYTE = 1 << 20
CAP = 64
SET, COMPARE_SET, GET, ADD, CHECK, WAIT, DELETE, APPEND, MULTI_GET, MULTI_SET, PUSH, LIST = 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 14, 17


def number(value):
    return struct.pack("<Q", value & (1 << 64) - 1)


def text(value):
    return number(len(value)) + value


class Server:
    """The server in a process of its own, with a cap on its store and on its descriptors."""

    def __init__(self, descriptors=4096):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        self.process = subprocess.Popen([STORE_SERVER, str(CAP)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, preexec_fn=limit)
        self.port = int(self.process.stdout.readline())
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(timeout=30)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def memory(self):
        """Peak resident bytes."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self, first=GREETING):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(first)
        return connection


def receive(connection, count):
    got = b""
    while len(got) < count:
        piece = connection.recv(count - len(got))
        if not piece:
            raise ConnectionError("closed")
        got += piece
    return got


def set_and_get(server, key=b"/legitimate", value=b"value"):
    """What a legitimate client does, with a connection of its own; the seconds that it took."""
    start = time.monotonic()
    with server.connect() as connection:
        assert receive(connection, 4) == b"ping"
        connection.sendall(bytes([SET]) + text(key) + text(value) + bytes([GET]) + text(key))
        assert receive(connection, 8 + len(value)) == text(value)
        connection.sendall(bytes([DELETE]) + text(key))
        receive(connection, 8)
    return time.monotonic() - start


def read_known(server):
    """What a legitimate client does when others have filled the store: writing is refused then, reading is not."""
    start = time.monotonic()
    with server.connect() as connection:
        assert receive(connection, 4) == b"ping"
        connection.sendall(bytes([GET]) + text(b"/known"))
        assert receive(connection, 8 + 5) == text(b"value")
    return time.monotonic() - start


def is_closed(connection):
    """Whether the server closes the connection soon."""
    try:
        connection.settimeout(10)
        while connection.recv(65536):
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


class Hostile(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.opened = []
        set_and_get(self.server)
        self.attack(GREETING + bytes([SET]) + text(b"/known") + text(b"value"))
        self.before = self.server.memory()

    def tearDown(self):
        for connection in self.opened:
            connection.close()
        self.assertEqual(self.server.end(), 0)

    def attack(self, first):
        connection = self.server.connect(first)
        self.opened.append(connection)
        return connection

    def check_service(self, store_bytes=0, client=set_and_get):
        """Legitimate clients are served, fast compared with every deadline here; memory is within its bound."""
        self.assertLess(min(client(self.server) for _ in range(5)), 0.5)
        added = self.server.memory() - self.before
        self.assertLess(added, store_bytes + 16 * MEBIBYTE, f"{added / MEBIBYTE:.1f} MiB were added")
        return added

    def test_garbage(self):
        for number_of in range(2000):
            garbage = os.urandom(1 + number_of % 4096)
            try:
                self.attack(garbage)
            except ConnectionError:
                pass
        self.check_service()

    def test_slow_half_sent_requests(self):
        slow = [self.attack(GREETING + bytes([SET]) + text(b"/slow/%d" % number_of) + number(8 * MEBIBYTE))
                for number_of in range(500)]
        for _ in range(3):
            for connection in slow:
                connection.sendall(b"x")
            self.check_service()

    def test_silent_unauthenticated_make_room(self):
        self.assertEqual(self.server.end(), 0)
        self.server = Server(descriptors=1024)
        self.before = self.server.memory()
        unauthenticated = [self.attack(b"\0\xce") for _ in range(1000)]
        self.check_service()
        self.assertTrue(is_closed(unauthenticated[0]))

    def test_sets_beyond_the_cap(self):
        refused = 0
        for number_of in range(200):
            try:
                connection = self.attack(GREETING)
                connection.sendall(bytes([SET]) + text(b"/fill/%d" % number_of) + text(b"x" * 8 * MEBIBYTE))
                connection.sendall(bytes([GET]) + text(b"/none"))
                receive(connection, 4 + 8)
            except ConnectionError:
                refused += 1
        self.assertGreater(refused, 190)
        self.assertLess(refused, 200)
        self.check_service(CAP * MEBIBYTE)

    def test_appends_beyond_the_cap(self):
        for _ in range(200):
            try:
                connection = self.attack(GREETING)
                connection.sendall(bytes([APPEND]) + text(b"/one") + text(b"x" * 8 * MEBIBYTE))
                connection.sendall(bytes([GET]) + text(b"/none"))
                receive(connection, 4 + 8)
            except ConnectionError:
                pass
        self.check_service(CAP * MEBIBYTE)

    def test_answers_that_nobody_reads(self):
        with self.server.connect() as connection:
            connection.sendall(bytes([SET]) + text(b"/large") + text(b"x" * 8 * MEBIBYTE) + bytes([GET]) + text(b"/none"))
            receive(connection, 4 + 8)
        for _ in range(100):
            connection = self.attack(GREETING)
            connection.sendall((bytes([GET]) + text(b"/large")) * 1000)
        self.check_service(CAP * MEBIBYTE)

    def test_many_small_keys(self):
        try:
            connection = self.attack(GREETING)
            for batch in range(1000):
                connection.sendall(b"".join(bytes([SET]) + text(b"/small/%d/%d" % (batch, key)) + text(b"")
                                            for key in range(2000)))
        except ConnectionError:
            pass
        with self.assertRaises((ConnectionError, AssertionError)):
            set_and_get(self.server)
        added = self.server.memory() - self.before
        self.assertLess(added, (CAP + 16) * MEBIBYTE, f"{added / MEBIBYTE:.1f} MiB were added")

    def test_waits_for_many_keys(self):
        for client in range(40):
            try:
                connection = self.attack(GREETING)
                keys = b"".join(text(b"/absent/%d/%d" % (client, key)) for key in range(20000))
                connection.sendall(bytes([WAIT]) + number(20000) + keys)
            except ConnectionError:
                pass
        self.check_service(CAP * MEBIBYTE)

    def test_a_list_in_small_pieces_is_read_once(self):
        pieces = bytes([MULTI_SET]) + number(100000) + b"".join(
            text(b"/piece/%d" % key) + text(b"v") for key in range(100000))
        connection = self.attack(GREETING)
        before = self.server.processor_seconds()
        for at in range(0, len(pieces), 256):
            connection.sendall(pieces[at:at + 256])
            if at % (256 * 2000) == 0:
                self.check_service(CAP * MEBIBYTE)
        # Each of 12,000 pieces read from the start again would be hundreds of seconds.
        self.assertLess(self.server.processor_seconds() - before, 5)

    def test_huge_lengths(self):
        keyed = (SET, COMPARE_SET, GET, ADD, DELETE, APPEND, PUSH)
        for length in (2**63, 2**64 - 1, 2**40, 8193):
            for command in (*keyed, CHECK, WAIT, MULTI_GET, MULTI_SET):
                listed = command not in keyed
                first = GREETING + bytes([command]) + (number(1) if listed and length == 8193 else b"") + number(length)
                self.assertTrue(is_closed(self.attack(first)), f"{command} {length}")
        self.assertLess(self.check_service(), 4 * MEBIBYTE)

    def test_huge_lengths_without_end_write_few_lines(self):
        end = time.monotonic() + 3
        messages = 0
        while time.monotonic() < end:
            with self.server.connect(GREETING + bytes([SET]) + number(2**63)) as connection:
                is_closed(connection)
            messages += 1
        self.assertGreater(messages, 100)
        self.check_service()
        self.server.process.stdin.flush()
        self.assertLess(len(self.server.lines), 10)

    def test_one_byte_at_a_time(self):
        connection = self.attack(GREETING)
        for byte in bytes([SET]) + text(b"/bytes") + text(b"y" * 20000) + bytes([GET]) + text(b"/bytes"):
            connection.sendall(bytes([byte]))
        self.assertEqual(receive(connection, 4 + 8 + 20000)[12:], b"y" * 20000)
        self.assertLess(self.check_service(), 4 * MEBIBYTE)

    def test_all_together(self):
        for number_of in range(2000):
            try:
                self.attack(os.urandom(1 + number_of % 4096))
                if number_of % 4 == 0:
                    self.attack(GREETING + bytes([SET]) + text(b"/slow/%d" % number_of) + number(8 * MEBIBYTE) + b"x")
                if number_of % 10 == 0:
                    filling = self.attack(GREETING)
                    filling.sendall(bytes([SET]) + text(b"/fill/%d" % number_of) + text(b"x" * 8 * MEBIBYTE))
            except ConnectionError:
                pass
            if number_of % 400 == 0:
                self.check_service(CAP * MEBIBYTE, read_known)
        self.check_service(CAP * MEBIBYTE, read_known)

    def test_web_requests_are_closed(self):
        self.assertTrue(is_closed(self.attack(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")))
        self.check_service()


class FewDescriptors(unittest.TestCase):
    def test_a_thousand_connections_do_not_keep_a_rank_out(self):
        server = Server(descriptors=256)
        opened = []
        try:
            for _ in range(1000):
                opened.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            self.assertLess(min(set_and_get(server) for _ in range(5)), 0.5)
        finally:
            for connection in opened:
                connection.close()
            self.assertEqual(server.end(), 0)


class Deadlines(unittest.TestCase):
    """The server's own deadlines: 5 s for an unauthenticated client, 30 s for a request."""

    def test_the_silent_and_the_slow_are_closed(self):
        server = Server()
        try:
            silent = socket.create_connection(("127.0.0.1", server.port))
            slow = server.connect(GREETING + bytes([SET]) + text(b"/slow") + number(1000) + b"x")
            idle = server.connect()
            receive(idle, 4)
            self.assertEqual(self.seconds_until_closed(silent, 5), 0)
            self.assertEqual(self.seconds_until_closed(slow, 30), 0)
            idle.sendall(bytes([SET]) + text(b"/idle") + text(b"v") + bytes([GET]) + text(b"/idle"))
            self.assertEqual(receive(idle, 9), text(b"v"))
            for connection in (silent, slow, idle):
                connection.close()
        finally:
            self.assertEqual(server.end(), 0)

    def seconds_until_closed(self, connection, expected):
        """0 when the connection ends, and not long after `expected` seconds from now; else how long it lasted."""
        connection.settimeout(expected + 15)
        start = time.monotonic()
        try:
            while connection.recv(100):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return time.monotonic() - start
        return 0


if __name__ == "__main__":
    STORE_SERVER = sys.argv.pop(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    unittest.main()
