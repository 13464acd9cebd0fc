"""A rank that notes what it finds: torchrun_probe.py FOLDER ACTIONS [ARGUMENTS]

Writes FOLDER/<restart>.<rank>.json with its environment, its arguments and how it was started, and then does ACTIONS,
with commas between them: `say` (a line to each stream), `exit=N`, `kill=N` (a signal to itself), `wait` (until it is
told to end), `rank=R:ACTION` (only that rank), `attempt=A:ACTION` (only at that restart), `raise` (under @record),
`meet` (waits until each rank of this start has noted what it found).
"""
import json
import os
import signal
import sys
import time


def note_path(folder, rank):
    return os.path.join(folder, f"{os.environ['TORCHELASTIC_RESTART_COUNT']}.{rank}.json")


def note(folder):
    found = {
        "environment": dict(os.environ),
        "arguments": sys.argv[3:],
        "name": __name__,
        "unbuffered": sys.stdout.line_buffering or sys.stdout.write_through,
        "leads_session": os.getsid(0) == os.getpid(),
        "signals_blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "directory": os.getcwd(),
    }
    path = note_path(folder, os.environ["RANK"])
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.rename(path + ".new", path)


def applies(condition):
    name, value = condition.split("=")
    return os.environ[{"rank": "RANK", "attempt": "TORCHELASTIC_RESTART_COUNT"}[name]] == value


def fail_with_record():
    from torch.distributed.elastic.multiprocessing.errors import record

    @record
    def main():
        raise ValueError("words of the rank\nin two lines")

    main()


def meet():
    paths = [note_path(sys.argv[1], rank) for rank in range(int(os.environ["WORLD_SIZE"]))]
    for _ in range(6000):
        if all(map(os.path.exists, paths)):
            return
        time.sleep(0.02)
    raise SystemExit("the other ranks did not come")


def act(action):
    rank = os.environ["RANK"]
    if action == "say":
        # Whole lines in one write each: both ranks write to one console.
        os.write(1, f"out of {rank}\n".encode())
        os.write(2, f"err of {rank}\n".encode())
    elif action == "read":
        print(f"read: {sys.stdin.readline()!r}", flush=True)
    elif action == "meet":
        meet()
    elif action == "raise":
        fail_with_record()
    elif action == "wait":
        time.sleep(60)
    elif action.startswith("exit="):
        sys.exit(int(action[5:]))
    elif action.startswith("kill="):
        os.kill(os.getpid(), int(action[5:]))
    elif action:
        raise SystemExit(f"no action '{action}'")


def main():
    note(sys.argv[1])
    for action in sys.argv[2].split(","):
        *conditions, what = action.split(":")
        if all(applies(condition) for condition in conditions):
            act(what)


if __name__ == "__main__":
    main()
