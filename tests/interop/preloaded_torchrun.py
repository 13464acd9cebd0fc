"""Runs torch.distributed.run again and again, without the three seconds that `import torch` takes each time.

Standard input is a socket. Each message on it is a JSON object with "words", "environment" and "directory", and comes with
the start's standard streams; the answers are its process id and, once it has ended, its wait status. `import torch` reads
none of torchrun's own modules: each start does that itself, in a process of its own with its own environment.
"""
import json
import os
import runpy
import socket
import struct
import sys
import tempfile

import torch


def next_start():
    """Returns in the process that is to become torchrun."""
    connection = socket.socket(fileno=os.dup(0))
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not message:
            sys.exit(0)
        child = os.fork()
        if child == 0:
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return json.loads(message)
        for stream in streams:
            os.close(stream)
        connection.sendall(struct.pack("i", child))
        connection.sendall(struct.pack("i", os.waitpid(child, 0)[1]))


assert not any(name.startswith("torch.distributed.elastic") for name in sys.modules), torch.__version__
start = next_start()
os.environ.clear()
os.environ.update(start["environment"])
os.chdir(start["directory"])
tempfile.tempdir = None
sys.path[0] = os.getcwd()
sys.argv = ["torchrun", *start["words"]]
runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
