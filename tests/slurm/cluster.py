"""A Slurm of its own for a test: a few nodes on this machine, brought down at the end. See tests/tools/slurm-cluster."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "slurm-cluster")
POLL = 0.1
# Jobs of the partition "urgent" push out those of the others, which are queued again; those of "yielding" get their signal
# before and a minute to save. Jobs stay known for an hour: a test may ask for one that ended long before.
SETTINGS = """MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=yielding Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""


def why_not():
    """Why there can be no cluster here; None when there can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [program for program in ("slurmctld", "slurmd", "munged") if shutil.which(program, path=system_path()) is None]
    return f"no {' and no '.join(missing)} (Debian: slurm-wlm, munge)" if missing else None


def system_path():
    return os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin"


class Cluster:
    """`programs` are folders that go in front of PATH."""

    def __init__(self, nodes, programs):
        self.folder = tempfile.mkdtemp(prefix="lockstep-slurm-")
        self.jobs = os.path.join(self.folder, "jobs")
        os.mkdir(self.jobs)
        state = os.path.join(self.folder, "cluster")
        configuration = os.path.join(self.folder, "settings.conf")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(SETTINGS)
        # What describes another job must not describe ours.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("SLURM_", "SBATCH_", "SRUN_", "OMPI_", "PMI", "LOCKSTEP_"))}
        self.environment.update(SLURM_CLUSTER_DIR=state, SLURM_CLUSTER_CONF=configuration, SLURM_CLUSTER_WAIT="60")
        # Whatever ends this process, the pipe closes, and the cluster goes down.
        self.reaper = subprocess.Popen(["bash", "-c", 'read -r; bash "$0" down; rm -rf "$1"', TOOL, self.folder],
                                         env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self.tool("up", str(nodes))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            logs = self.logs(state)
            self.down()
            raise RuntimeError(f"{error}\n{logs}") from error
        self.environment.update(SLURM_CONF=os.path.join(state, "slurm.conf"),
                                PATH=":".join([os.path.join(state, "bin"), *programs, system_path()]))
        with open(os.path.join(state, "net"), encoding="utf-8") as file:
            self.flat = file.read().strip() == "flat"
        if self.flat:
            self.environment["MASTER_ADDR"] = "127.0.0.1"      # All nodes are this host, and their names lead nowhere.

    def tool(self, *words):
        done = subprocess.run(["bash", TOOL, *words], env=self.environment, text=True, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180)
        if done.returncode != 0:
            raise RuntimeError(f"slurm-cluster {' '.join(words)}: {done.stdout}")
        return done.stdout

    @staticmethod
    def logs(state):
        """The ends of what the daemons wrote."""
        texts = []
        for path in sorted(glob.glob(os.path.join(state, "log", "*.log"))):
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(f"{path}:\n{file.read()[-1000:]}")
        return "\n".join(texts)

    def down(self):
        self.reaper.communicate(timeout=180)

    def call(self, *words, timeout=120, **variables):
        """Runs one of Slurm's programs, or any other: (exit status, output with errors)."""
        done = subprocess.run(words, env={**self.environment, **variables}, cwd=self.jobs, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        return done.returncode, done.stdout

    def submit(self, *words, **variables):
        """`sbatch words`; returns the number of the job."""
        status, output = self.call("sbatch", "--parsable", "--output=%j.out", "--open-mode=append", *words, **variables)
        if status != 0:
            raise RuntimeError(f"sbatch {' '.join(words)}: {output}")
        return output.split()[-1]

    def output(self, job):
        try:
            with open(os.path.join(self.jobs, f"{job}.out"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def field(self, job, name):
        """A word of `scontrol show job`, as JobState."""
        for word in self.call("scontrol", "show", "job", str(job))[1].split():
            key, equals, value = word.partition("=")
            if key == name and equals:
                return value
        return ""

    def wait(self, job, timeout=200):
        """Waits for the end of the job and returns its state."""
        self.until(lambda: self.call("squeue", "-h", "-j", str(job)) == (0, ""), timeout,
                   f"the end of job {job}, whose output is:\n{self.output(job)}\n")
        return self.field(job, "JobState")

    def until(self, holds, timeout, what):
        end = time.monotonic() + timeout
        while not holds():
            if time.monotonic() > end:
                print(self.call("squeue")[1], file=sys.stderr)
                raise RuntimeError(f"{what} did not come within {timeout} s")
            time.sleep(POLL)

    def until_output(self, job, text, times=1, timeout=120):
        self.until(lambda: self.output(job).count(text) >= times, timeout,
                   f"{text!r} in the output of job {job}, which is:\n{self.output(job)}\n")

    def processes(self, node, name):
        """How many processes of that name run on the node."""
        if self.flat:
            return 0
        return len(self.tool("on", node, "sh", "-c", f"cat /proc/[0-9]*/comm | grep -x '{name}' || true").split())
