"""Gives the same command lines to the real torchrun and to `lockstep run`, and compares what comes of them:
torchrun_compare.py LAUNCHER [NAME...]

Two starts run at a time. What may differ stands in torchrun_cases.py, with the reasons.
"""
import concurrent.futures
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import traceback

import torchrun_cases
import torchrun_peer

LAUNCHER = os.path.abspath(sys.argv[1])


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def program_of(case):
    words = {"script": [torchrun_peer.PROBE], "program": [sys.executable, "-u", torchrun_peer.PROBE],
             "module": ["torchrun_probe"], "path": [torchrun_peer.PROBE]}[case.how]
    return [*words, "SCRATCH", case.actions, *case.arguments]


def start(case, launcher, port, more=()):
    places = {"PORT": port, "HERE": torchrun_peer.HERE}

    def filled(word):
        return re.sub("PORT$|^HERE$", lambda found: places[found.group()], word)

    variables = {name: filled(value) for name, value in case.variables.items()}
    flags = [*more, *map(filled, case.flags)]
    return torchrun_peer.run(launcher, flags, program_of(case), variables, case.send, case.after, case.stdin)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def compare_status(case, ours, theirs):
    check(ours.status == theirs.status,
          f"exit status {ours.status}, under torchrun {theirs.status}\n{ours.err}\n--- torchrun:\n{theirs.err}")


def compare_notes(case, ours, theirs):
    check(theirs.notes, "the probe did not run under torchrun")
    check(ours.notes.keys() == theirs.notes.keys(), f"ranks {sorted(ours.notes)}, under torchrun {sorted(theirs.notes)}")
    for name, note in ours.notes.items():
        compare_environment(case, name, note["environment"], theirs.notes[name]["environment"])
        for key in note.keys() - {"environment"} - case.notes_differ.keys():
            check(note[key] == theirs.notes[name][key],
                  f"rank {name}: {key} is {note[key]!r}, under torchrun {theirs.notes[name][key]!r}")


def compare_environment(case, name, ours, theirs):
    for variable in sorted(ours.keys() | theirs.keys()):
        if variable not in case.differs:
            check(ours.get(variable) == theirs.get(variable),
                  f"rank {name}: {variable}={ours.get(variable)!r}, under torchrun {theirs.get(variable)!r}")
    place = re.search("attempt_.*", theirs["TORCHELASTIC_ERROR_FILE"])
    check(place is None or ours["TORCHELASTIC_ERROR_FILE"].endswith("/" + place.group()),
          f"rank {name}: {ours['TORCHELASTIC_ERROR_FILE']}, under torchrun {theirs['TORCHELASTIC_ERROR_FILE']}")


def compare_out(case, ours, theirs):
    check(ours.lines() == theirs.lines(), f"output {ours.lines()}, under torchrun {theirs.lines()}")


def compare_files(case, ours, theirs):
    def content(outcome):
        return {path: sorted(re.sub(r"^(\[\w+\]:) ", r"\1", line) for line in text.splitlines())
                for path, text in outcome.files.items()}

    check(theirs.files, "torchrun kept no files")
    check(content(ours) == content(theirs), f"files {content(ours)}, under torchrun {content(theirs)}")


def compare_passed_on(case, ours, theirs):
    def shape(content):
        message = content["message"]
        return message["message"], message["errorCode"], sorted(message["extraInfo"]), sorted(message)

    check(theirs.passed_on is not None, "torchrun passed no error on")
    check(ours.passed_on is not None, "no error was passed on")
    check(shape(ours.passed_on) == shape(theirs.passed_on),
          f"passed on {ours.passed_on}, under torchrun {theirs.passed_on}")


def event_form(event):
    """An event without what differs from start to start."""
    metadata = dict(event["metadata"])
    details = json.loads(metadata["metadata"])
    if details.get("worker_pid", [None]) != [None]:
        check(metadata["worker_id"] == str(details["worker_pid"][0]), "the process id is told twice, and differs")
        details["worker_pid"] = ["PID"]
    check((metadata["duration_ms"] is None) == (event["source"] == "WORKER" or metadata["state"] == "SUCCEEDED"),
          f"duration of {event}")
    for name in ("worker_id", "duration_ms", "total_run_time", "hostname"):
        check(name in metadata, f"{name} is missing in {event}")
        metadata[name] = None
    # torchrun does not know them yet at its first rendezvous.
    if metadata["state"] in ("RENDEZVOUS", "ASSIGN_WORKER_RANKS"):
        metadata["group_rank"] = details["group_world_size"] = None
    if metadata["raw_error"] is not None:
        metadata["raw_error"] = json.loads(metadata["raw_error"])
        # torchrun adds it for a rank with an exit code, to an object that the other ranks share.
        if details["exit_code"][0] < 0:
            metadata["raw_error"].pop("errorTraits", None)
    metadata["metadata"] = details
    return json.dumps({**event, "metadata": metadata}, sort_keys=True)


def compare_events(case, ours, theirs):
    our_events, their_events = [event_form(event) for event in ours.events()], [event_form(e) for e in theirs.events()]
    check(their_events, "torchrun told no events")
    check(our_events == their_events,
          "events\n" + "\n".join(our_events) + "\nunder torchrun\n" + "\n".join(their_events))


def run_case(case):
    # The two run one after the other, so one port serves both.
    port = free_port()
    by_itself = case.how == "program" and "--no-p" not in case.flags
    theirs = start(case, torchrun_peer.TORCHRUN, port, ["--no-python"] if by_itself else [])
    ours = start(case, [LAUNCHER, "run"], port, case.ours)
    for what in case.compare:
        globals()["compare_" + what](case, ours, theirs)


def legacy():
    """torch.distributed.launch gives the local rank as an argument; --no-use-env does the same."""
    case = torchrun_cases.Case("legacy", torchrun_cases.TWO)
    port = free_port()
    program = [os.path.join(torchrun_peer.HERE, "torchrun_arguments.py")]
    flags = [word.replace("PORT", port) for word in case.flags]
    theirs = torchrun_peer.run(torchrun_peer.LEGACY, flags, [*program, "x"])
    ours = torchrun_peer.run([LAUNCHER, "run"], ["--no-use-env", *flags], [*program, "x"])
    check(theirs.lines() == ["['--local-rank=0', 'x']", "['--local-rank=1', 'x']"], f"{theirs.out}\n{theirs.err}")
    compare_out(case, ours, theirs)
    compare_status(case, ours, theirs)


def parser():
    """What torchrun refuses is refused, with status 2 or (at the start) 1; what it takes is taken."""
    def words_of(words):
        return ["true" if word == "p" else word for word in words]

    lists = [*torchrun_cases.REFUSED, *torchrun_cases.ACCEPTED, *map(list, torchrun_cases.OURS_TAKES)]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    with tempfile.TemporaryDirectory(prefix="lockstep_compare_") as scratch:
        variables.update({"TMPDIR": scratch, "PET_NO_PYTHON": "1"})
        asked = subprocess.run([sys.executable, "-B", os.path.join(torchrun_peer.HERE, "torchrun_parser_peer.py")],
                               input=json.dumps([words_of(words) for words in lists]), env=variables, text=True,
                               capture_output=True, check=True, timeout=400)
        for words, taken in zip(lists, json.loads(asked.stdout.splitlines()[-1])):
            ours = subprocess.run([LAUNCHER, "run", *words_of(words)], env=variables, capture_output=True, text=True,
                                  timeout=60)
            expected = 0 if taken or tuple(words) in torchrun_cases.OURS_TAKES else 2
            check((tuple(words) in torchrun_cases.OURS_TAKES) <= (not taken), f"torchrun takes {words} now")
            check(ours.returncode == expected,
                  f"{words}: exit status {ours.returncode}, expected {expected}: {ours.stderr}")


def report(name, work):
    try:
        work()
    except Exception as error:
        text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        print(f"FAILED {name}: {text}", flush=True)
        return False
    print(f"passed {name}", flush=True)
    return True


def main():
    works = {"parser": parser, "legacy": legacy}
    works.update({case.name: lambda case=case: run_case(case) for case in torchrun_cases.CASES})
    chosen = sys.argv[2:] or list(works)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: report(name, works[name]), chosen))
    print(f"{sum(results)} of {len(results)} passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
