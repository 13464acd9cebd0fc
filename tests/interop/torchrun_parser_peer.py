"""Says for each command line of a JSON list on standard input whether torchrun starts it: 1 or 0, as a JSON list.

torch is read once; each command line runs in a fork.
"""
import json
import os
import sys

import torch.distributed.run


def starts(words):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        try:
            torch.distributed.run.main(words)
        except BaseException as error:
            os._exit(0 if isinstance(error, SystemExit) and not error.code else 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


print(json.dumps([starts(words) for words in json.load(sys.stdin)]))
