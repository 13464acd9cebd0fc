"""What the tests of jobs on a real Slurm share."""
import os
import re
import sys
import unittest

import cluster

SKIPPED = 77


def read_file(path):
    """What a job may not have written yet is empty."""
    if not os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()


class JobTest(unittest.TestCase):
    """Its class has a cluster of its own. The command line: LAUNCHER TRAINER PROBE WORLD_PEER SOURCE CUSTOM_TRAINER."""
    launcher, trainer, probe, world_peer, source, custom_trainer = (sys.argv + 6 * [""])[1:7]
    nodes = 3

    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster.Cluster(cls.nodes, sorted({os.path.dirname(path) for path in (cls.launcher, cls.trainer, cls.probe)}))
        cls.addClassCleanup(cls.cluster.down)
        cls.saver = ["bash", os.path.join(cls.source, "tests", "slurm", "saver.sh")]

    @classmethod
    def template(cls, name):
        """The batch script as it lies in the source tree."""
        return os.path.join(cls.source, "launch", "slurm", "templates", name + ".sbatch")

    def folder(self, name):
        path = os.path.join(self.cluster.folder, name)
        os.mkdir(path)
        return path

    def completed(self, job, timeout=200):
        """Waits for a job that must end well, and returns its output."""
        state = self.cluster.wait(job, timeout)
        output = self.cluster.output(job)
        self.assertEqual(state, "COMPLETED", output)
        self.assertEqual(self.cluster.field(job, "ExitCode"), "0:0", output)
        return output

    def failed(self, job, timeout=200):
        self.assertEqual(self.cluster.wait(job, timeout), "FAILED", self.cluster.output(job))
        return self.cluster.output(job)

    def nodes_of(self, job):
        names = self.cluster.field(job, "NodeList")
        return [] if names in ("", "(null)") else self.cluster.call("scontrol", "show", "hostnames", names)[1].split()

    def check_cancel(self, job, program, processes):
        """Cancels a job once so many processes of the program run on each of its two nodes; none is left behind."""
        name = os.path.basename(program)[:15]
        running = lambda: [self.cluster.processes(node, name) for node in self.nodes_of(job)]
        self.cluster.until(lambda: len(running()) == 2 and min(running()) >= processes, 120, f"{name} on two nodes")
        nodes = self.nodes_of(job)
        self.cluster.call("scancel", job)
        self.assertEqual(self.cluster.wait(job), "CANCELLED")
        self.cluster.until(lambda: not any(self.cluster.processes(node, name) for node in nodes), 30, f"the end of every {name}")

    def check_saved_and_finished(self, job, signal, timeout=200):
        output = self.completed(job, timeout)
        # Slurm may send TERM twice.
        self.assertEqual(set(re.findall(rf"rank (\d) saves after {signal}", output)), {"0", "1"}, output)
        self.assertEqual(output.count("is finished"), 2, output)
        self.assertEqual(len(re.findall(r"starts, restart [1-9]", output)), 2, output)


def main():
    reason = cluster.why_not()
    if reason:
        print(f"SKIPPED: no Slurm here: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[7:]])
