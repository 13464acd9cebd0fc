"""What can happen to a job of `lockstep run`, and what is promised then: each function makes the fault and checks the promise."""
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import time

import jobs
from traces import first_difference, trace, with_lost_lines
from trials import RANKS, SLACK, Skipped, peak_mib, text_of

FAULTS = {}  # {name: (what happens, what is promised, function)}
CLOCK = pathlib.Path(__file__).with_name("jumping_clock.c")
HANG = 5  # Seconds of --heartbeat-timeout.
ANOTHER = "another"  # The folder of a second job.


def fault(happens, promise):
    def enter(function):
        FAULTS[function.__name__] = (happens, promise, function)
        return function
    return enter


# A rank is lost.


@fault("a rank is killed (SIGKILL)", "the job ends with 137 and names the rank and SIGKILL")
def killed(trial):
    job, rank = trial.start_and_train(), trial.a_rank()
    since = time.monotonic()
    jobs.send(job.pids()[rank], signal.SIGKILL)
    trial.ended(job, since, {137}, f"FAILED: rank {rank} ", "SIGKILL", killed=True)
    trial.resumes()


@fault(f"a rank is stopped (SIGSTOP), --heartbeat-timeout {HANG}", "the job ends with 124 and names the rank and what stops it")
def stopped(trial):
    job, rank = trial.start_and_train(launcher=("--heartbeat-timeout", str(HANG), "--shutdown-timeout", "2")), trial.a_rank()
    since = time.monotonic()
    jobs.send(job.pids()[rank], signal.SIGSTOP)
    trial.ended(job, since, {124}, f"rank {rank} (pid", "stopped", limit=3 * HANG, killed=True)
    trial.resumes()


@fault("a rank throws an exception", "the job ends with 1 and names the rank and the exception")
def throws(trial):
    job, rank = trial.start_and_train(), trial.a_rank()
    since = time.monotonic()
    (job.out / f"throw.{rank}").touch()
    trial.ended(job, since, {1}, "root cause", f"rank {rank} ", "an exception was asked for")
    trial.resumes()


@fault("a rank exits with 0 in the middle", "the job fails, and names the rank that has left")
def leaves(trial):
    job, rank = trial.start_and_train(), trial.a_rank()
    since = time.monotonic()
    (job.out / f"leave.{rank}").touch()
    status = trial.ended(job, since, set(range(1, 256)), f"rank {rank} ", "left")
    assert status, "success"
    trial.resumes()


@fault("a rank is killed, --max-recoveries", "the rank is replaced, the others keep their processes; the same bits")
def replaced(trial):
    recoveries = ("--max-recoveries", "5")
    job, rank = trial.start_and_train(launcher=recoveries), trial.a_rank()
    pids, since = job.pids(), time.monotonic()
    jobs.send(pids[rank], signal.SIGKILL)
    job.await_that(lambda: job.pids().get(rank) != pids[rank], "another process for the rank")
    job.await_step(2)
    trial.took(time.monotonic() - since, 5)
    assert {other: pid for other, pid in job.pids().items() if other != rank} == {other: pid for other, pid in pids.items() if other != rank}, \
        "another rank was restarted"
    assert job.wait() == 0, job.errors()[-3000:]
    trial.left = trial.on_disk(job.folder) + "; the same bits"
    trial.says(job.errors(), f"rank {rank} ", "SIGKILL")
    other = trial.start(launcher=recoveries, folder=trial.folder / ANOTHER, step_time=0)  # Its random numbers are those of recoveries.
    assert other.wait() == 0, other.errors()[-3000:]
    found, wanted = (trace(place.folder, RANKS, torn_lines=True) for place in (job, other))
    difference = first_difference(wanted, with_lost_lines(found, wanted, RANKS, 1))
    assert difference is None, f"other bits: {difference}"


@fault("a storm of losses: a rank is killed as soon as all train, again and again",
       "each time all ranks are restarted; the launcher does not grow; the same bits")
def storm(trial):
    job = trial.start(launcher=("--max-restarts", "1000", "--restart-backoff", "0"), step_time=40)
    pids, held = (), []
    for _ in range(3 if trial.few else 10):
        since = time.monotonic()
        assert job.await_training(apart_from=pids) is not None, job.errors()[-3000:]
        if pids:
            trial.took(time.monotonic() - since, 10)
        held.append(jobs.holdings(job.process.pid, jobs.tcp_connections()))
        pids = tuple(job.pids().values())
        jobs.send(pids[trial.a_rank()], signal.SIGKILL)
    trial.completes(job)
    trial.left = trial.on_disk(job.folder) + "; the same bits"
    first, last = held[1], held[-1]
    assert last["descriptors"] <= first["descriptors"] + 1 and last["memory"] <= first["memory"] + 1, f"the launcher grew: {first} to {last}"
    trial.said = f"the launcher: {first['memory']:.1f} MiB after the first restart, {last['memory']:.1f} MiB after the last"


@fault("a storm of restarts: the program fails at once, --max-restarts 3", "four attempts, with pauses of 1, 2 and 4 s; the program's exit code")
def always_fails(trial):
    begun = trial.folder / "begun"
    ended = trial.ran("sh", ["-c", f'test "$RANK" = 0 && echo x >> {begun}; exit 3'], ("--max-restarts", "3"), limit=10)
    assert ended.returncode == 3, f"{ended.returncode}: {ended.stderr}"
    attempts = len(text_of(begun).split())
    assert attempts <= 4 and trial.seconds >= 7, f"{attempts} attempts of rank 0 in {trial.seconds:.1f} s"
    trial.says(ended.stderr, "FAILED: rank ", "exited with code 3")


# Signals.


def signalled(trial, number, statuses, late):
    """At random moments: a start, a step or a write. `late`: the only status when all ranks train."""
    for turn in range(1 if trial.few else 4):
        folder = trial.folder if turn == 0 else trial.folder / f"turn{turn}"
        job, moment = trial.start(folder=folder), trial.choice.uniform(0, 3)
        if turn % 2 == 0:  # Half of them in a training for sure.
            job.await_training()
        time.sleep(moment)
        trained = job.trains()
        assert job.process.poll() is None, f"the training ended too early: {job.process.returncode}\n{job.errors()[-3000:]}"
        since = time.monotonic()
        jobs.send(job.process.pid, number)
        status = trial.ended(job, since, {late} if trained else statuses, limit=10, killed=late != 85)
        if status == 85:
            assert trial.newest(folder) == steps_of(job), f"{steps_of(job)} steps, and the newest checkpoint is of {trial.newest(folder)}"
        trial.resumes(folder)
    trial.said = f"the last with {status}, {moment:.1f} s after {'all ranks trained' if turn % 2 == 0 else 'the start'}"


def steps_of(job):
    return max((int(line.split()[0]) + 1 for line in text_of(job.out / "losses.0").splitlines()), default=0)


@fault("SIGTERM at random moments", "a checkpoint of the last step and 85, or 143 if the training had not begun")
def terminated(trial):
    signalled(trial, signal.SIGTERM, {85, 143}, 85)


@fault("SIGUSR1 at random moments", "a checkpoint of the last step and 85")
def preempted(trial):
    signalled(trial, signal.SIGUSR1, {85}, 85)


@fault("SIGINT at random moments", "the ranks end at once, with 130; checkpoints stay whole")
def interrupted(trial):
    signalled(trial, signal.SIGINT, {130}, 130)


# Files.


def disk_of(trial):
    disk = jobs.Disk(trial.folder / "checkpoints")
    if not disk.mounted:
        raise Skipped("a small file system needs root")
    return disk


@fault("the disk is full at a checkpoint", "the job ends with 1 and names rank 0 and the reason; older checkpoints stay")
def disk_full(trial):
    disk = disk_of(trial)
    try:
        job = trial.start_and_train()
        since = time.monotonic()
        disk.fill()
        trial.ended(job, since, {1}, "FAILED: rank 0 ", limit=5)
        trial.says(job.errors(), "No space left on device")
        disk.free()
        trial.resumes()
    finally:
        disk.unmount()


@fault("the folder becomes read-only", "the job ends with 1 and names rank 0 and the reason; older checkpoints stay")
def read_only(trial):
    disk = disk_of(trial)
    try:
        job = trial.start_and_train()
        since = time.monotonic()
        job.await_that(lambda: disk.may_be_written(False), "the file system becomes read-only")
        trial.ended(job, since, {1}, "FAILED: rank 0 ", limit=5, killed=True)
        trial.says(job.errors(), "Read-only file system")
        assert disk.may_be_written(True), "it stays read-only"
        trial.resumes()
    finally:
        disk.unmount()


@fault("the folder is read-only from the beginning", "the job ends before its first step and names the folder and the reason")
def read_only_first(trial):
    disk = disk_of(trial)
    try:
        assert disk.may_be_written(False)
        since = time.monotonic()
        job = trial.start()
        trial.ended(job, since, {1, 2}, "rank 0 ", "Read-only file system", limit=10)
        assert steps_of(job) == 0, f"{steps_of(job)} steps"
    finally:
        disk.unmount()


@fault("rank 0's files may not become longer than 4 KiB (RLIMIT_FSIZE)", "the job fails and names rank 0 and the limit; older checkpoints stay")
def file_size(trial):
    job = trial.start_and_train()
    since = time.monotonic()
    jobs.limit_of(job.pids()[0], resource.RLIMIT_FSIZE, 4096)
    status = trial.ended(job, since, {1, 128 + signal.SIGXFSZ}, "FAILED: rank 0 ", killed=True)
    trial.says(job.errors(), "rank 0", "File too large" if status == 1 else "SIGXFSZ")
    trial.resumes()


@fault("rank 0 has no descriptors left", "the job ends with 1 and names rank 0 and the reason; older checkpoints stay")
def no_descriptors(trial):
    job = trial.start_and_train()
    since = time.monotonic()
    jobs.limit_of(job.pids()[0], resource.RLIMIT_NOFILE, 3)
    trial.ended(job, since, {1}, "FAILED: rank 0 ")
    trial.says(job.errors(), reason)
    trial.resumes()


def few_descriptors(trial, count, reason):
    since = time.monotonic()
    job = trial.start(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)))
    trial.ended(job, since, set(range(1, 256)), limit=10)
    trial.says(job.errors(), reason)


@fault("the launcher may open 12 files", "the job fails at once, with the reason")
def launcher_descriptors(trial):
    few_descriptors(trial, 12, "Too many open files")


@fault("the launcher may open 16 files: its ranks cannot reach its store", "the job fails, with the reason")
def store_descriptors(trial):
    few_descriptors(trial, 16, "this launcher may open no more files")


# Clocks and output.


@fault("the wall clock jumps: an hour ahead, a day back", "no effect: no loss, no wait; the same bits")
def clock_jumps(trial):
    compiler, library, shift = shutil.which("cc") or shutil.which("gcc"), trial.folder / "clock.so", trial.folder / "shift"
    if compiler is None:
        raise Skipped("no C compiler for a clock that jumps")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, CLOCK], check=True)
    clock = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(shift)}
    shift.write_text("86400")
    seen = subprocess.run(["date", "+%s"], env=os.environ | clock, text=True, capture_output=True, check=True)
    shift.write_text("0")
    assert int(seen.stdout) > time.time() + 80000, "the clock cannot be moved"
    job = trial.start_and_train(launcher=("--heartbeat-timeout", "10"), environment=clock)
    for seconds in (3600, -86400):
        shift.write_text(str(seconds))
        since = time.monotonic()
        job.await_step(11)
        trial.took(time.monotonic() - since, 2)
    trial.completes(job)
    trial.left = trial.on_disk(trial.folder) + "; the same bits"


@fault("ranks write 64 MiB each, and nobody reads",
       "no rank waits for the reader; the launcher stays below 96 MiB, log files below 1 MiB; a line says how much was dropped")
def log_flood(trial):
    mib, script = 64, 'yes "rank $RANK says a line that nobody reads" | head -c 67108864; touch "$0/done.$RANK"'
    command = [trial.build / "bin/lockstep", "run", "--nproc-per-node", str(RANKS), "--tee", "3", "--log-dir", trial.folder / "logs",
               "--log-max-size", "1M", "sh", "-c", script, trial.folder]
    since = time.monotonic()
    with open(trial.folder / "stderr", "wb") as errors, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            while not all((trial.folder / f"done.{rank}").exists() for rank in range(RANKS)):
                trial.took(time.monotonic() - since, 40)
                time.sleep(0.05)
            peak = peak_mib(process.pid)
            shown = process.stdout.read().decode(errors="replace")
            status = process.wait(timeout=SLACK)
        finally:
            process.kill()
    assert status == 0, f"{status}: {text_of(trial.folder / 'stderr')[-2000:]}"
    assert peak < 96, f"the launcher took {peak:.0f} MiB"
    logs = [path for path in (trial.folder / "logs").rglob("*") if path.is_file()]
    largest = max(path.stat().st_size for path in logs)
    assert largest <= 2**20 + 65536, f"{largest} bytes in one file"
    assert len(shown) < RANKS * mib * 2**20, "everything was kept for the reader"
    trial.says(shown, "lines of the ranks were dropped")
    trial.left = f"{sum(path.stat().st_size for path in logs) / 2**20:.1f} MiB of logs"
    trial.said += f" (the launcher: {peak:.0f} MiB)"


# Two jobs.


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def second_job(trial, launcher, *words, limit):
    """A second job with the options of the first: it fails with these words, and the first one does not notice."""
    first = trial.start_and_train(launcher=launcher, step_time=60)
    since = time.monotonic()
    second = trial.start(launcher=launcher, folder=trial.folder / ANOTHER)
    trial.ended(second, since, set(range(1, 256)), *words, limit=limit)
    assert first.process.poll() is None, f"the first job ended with {first.process.returncode}:\n{first.errors()[-3000:]}"
    trial.completes(first)
    trial.left = trial.on_disk(first.folder) + "; the first job: the same bits"


@fault("two jobs on one port (--master-port)", "the second ends at once and names the process that has the port; the first does not notice")
def one_port(trial):
    second_job(trial, ("--master-port", str(free_port())), "Address already in use", "held by process", limit=2)


@fault("two jobs on one endpoint (c10d), with other ids", "the second ends at once and says why; the first does not notice")
def one_endpoint(trial):
    common = ("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
              "--rdzv-conf", "last_call_timeout=1", "--rdzv-id")
    first = trial.start_and_train(launcher=(*common, "one"), step_time=60)
    since = time.monotonic()
    second = trial.start(launcher=(*common, "two"), folder=trial.folder / ANOTHER)
    trial.ended(second, since, set(range(1, 256)), "held by process", "secret", limit=2)
    trial.completes(first)
    trial.left = trial.on_disk(first.folder) + "; the first job: the same bits"


@fault("two jobs on one checkpoint folder", "the second ends and names the process that has it; the first does not notice")
def one_folder(trial):
    first = trial.start_and_train(step_time=200)
    another = trial.folder / ANOTHER
    another.mkdir()
    (another / "checkpoints").symlink_to(trial.folder / "checkpoints")
    since = time.monotonic()
    second = trial.start(folder=another)
    trial.ended(second, since, {2}, "is in use by process", limit=30, killed=True)
    trial.completes(first)
    trial.left = trial.on_disk(first.folder) + "; the first job: the same bits"


# Ranks that do not agree.


def disagreeing(trial, *words, says):
    since = time.monotonic()
    job = trial.start("--timeout", "10", *words)
    trial.ended(job, since, {1}, *says, limit=20, killed=True)


@fault("ranks have other models", "the job ends before the first step; both ranks and the parameter are named")
def other_models(trial):
    for oddity in ("shape", "dtype", "missing"):
        ended = trial.ran("probe", ["mismatch", oddity], limit=5)
        assert ended.returncode == 1, f"{oddity}: {ended.returncode}"
        trial.says(ended.stderr, "the ranks hold different models", "on rank 0", "on rank 1")


@fault("ranks have data of other lengths: one ends a step earlier", "the job ends with 1, and says what each rank called")
def other_lengths(trial):
    disagreeing(trial, "--steps", "2${local_rank}", says=("ranks called different collectives", "rank 0 called", "rank 1 called"))


@fault("ranks call other collectives: one evaluates, one does not", "the job ends with 1, and says what each rank called")
def other_collectives(trial):
    disagreeing(trial, "--evaluate-every", "${local_rank}7", says=("ranks called different collectives", "rank 0 called", "rank 1 called"))


@fault("ranks save at other steps", "the job ends with 1, and says what each rank called")
def other_checkpoints(trial):
    disagreeing(trial, "--every", "1${local_rank}", says=("ranks called different collectives", "rank 0 called", "rank 1 called"))
