"""`lockstep run` on several nodes of a real Slurm: launcher_test.py LAUNCHER TRAINER PROBE WORLD_PEER SOURCE CUSTOM_TRAINER"""
import re
import subprocess
import time

import jobs


class LauncherTest(jobs.JobTest):
    def test_many_nodes_by_launcher_runs_as_it_is(self):
        self.assertRegex(self.completed(self.cluster.submit(self.template("many-nodes-by-launcher"))), r"test accuracy 0\.[5-9]")

    def test_collectives_on_three_nodes(self):
        job = self.cluster.submit("--nodes=3", self.template("many-nodes-by-launcher"), self.probe, "collectives")
        self.assertIn("all collectives are right on 6 ranks", self.completed(job))

    def test_explicit_master(self):
        self.assertIn("a world of 4", self.completed(self.cluster.submit(self.template("explicit-master"), self.probe, "hello")))

    def test_elastic_with_all_its_nodes(self):
        self.assertIn("a world of 4", self.completed(self.cluster.submit(self.template("elastic"), self.probe, "hello")))

    def test_the_ranks_worlds(self):
        output = self.completed(self.cluster.submit(self.template("many-nodes-by-launcher"), "bash", "-c",
                                                    'echo "rank $RANK of $WORLD_SIZE local $LOCAL_RANK node $GROUP_RANK on $(hostname)"'))
        found = sorted(re.findall(r"rank (\d) of 4 local (\d) node (\d) on (\S+)", output))
        self.assertEqual([line[:3] for line in found], [("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1"), ("3", "1", "1")], output)
        if not self.cluster.flat:
            self.assertEqual(len({line[3] for line in found}), 2, output)

    def test_several_launchers_on_a_node_are_refused(self):
        status, output = self.cluster.call("srun", "-N1", "-n2", self.launcher, "run", "--rdzv-backend", "slurm", "true")
        self.assertEqual(status, 2, output)
        self.assertIn("'srun --ntasks-per-node=1", output)

    def test_a_dead_rank_is_named_and_ends_the_job(self):
        output = self.failed(self.cluster.submit(self.template("many-nodes-by-launcher"), self.probe, "throws"))
        self.assertIn("FAILED: rank 1 ", output)
        self.assertIn("sample 17 has no label", output)

    def test_scancel_leaves_nothing_behind(self):
        self.check_cancel(self.cluster.submit(self.template("many-nodes-by-launcher"), "image_classification", "--no-progress",
                                              "--epochs", "100000"), self.trainer, 2)

    def test_usr1_reaches_the_ranks_through_the_launchers(self):
        job = self.cluster.submit(self.template("many-nodes-by-launcher"), *self.saver, self.folder("usr1"))
        self.cluster.until_output(job, "waits", times=4)
        self.cluster.call("scancel", "--signal=USR1", job)
        # Slurm may send a signal twice, and a rank may begin to save again before its first save has ended it.
        output = self.completed(job)
        self.assertEqual(set(re.findall(r"rank (\d) saves after USR1", output)), {"0", "1", "2", "3"}, output)

    def test_a_suspended_job_goes_on(self):
        if self.cluster.flat:
            self.skipTest("the flat layout cannot suspend")
        job = self.cluster.submit(self.template("many-nodes-by-launcher"), "bash", "-c", "echo begun; sleep 35; echo done")
        self.cluster.until_output(job, "begun", times=4)
        self.assertEqual(self.cluster.call("scontrol", "suspend", job)[0], 0)
        time.sleep(22)
        self.assertEqual(self.cluster.call("scontrol", "resume", job)[0], 0)
        self.assertEqual(self.completed(job).count("done"), 4)

    def test_the_shell_of_an_interactive_step(self):
        typed = f"{self.launcher} run --nproc-per-node 2 sh -c 'echo \"<$RANK of $WORLD_SIZE>\"'\nexit\n"
        done = subprocess.run(["script", "-qec", "srun -N1 -n4 --pty bash --norc", "/dev/null"], input=typed, text=True,
                              env=self.cluster.environment, cwd=self.cluster.jobs, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120, check=False)
        self.assertIn("<0 of 2>", done.stdout)
        self.assertIn("<1 of 2>", done.stdout)

    def test_z_a_lost_node_does_not_end_an_elastic_job(self):
        if self.cluster.flat:
            self.skipTest("nodes cannot be broken in the flat layout")
        script = 'echo "rank $RANK of $WORLD_SIZE"; if [ $WORLD_SIZE = 2 ]; then exit 0; fi; sleep 120'
        job = self.cluster.submit(self.template("elastic"), "bash", "-c", script)
        self.cluster.until_output(job, "of 4", times=4)
        lost = self.nodes_of(job)[-1]
        self.addCleanup(self.cluster.tool, "heal", lost)
        self.cluster.tool("fail", lost, "crash")
        output = self.completed(job, 300)
        self.assertEqual(len(re.findall(r"rank [01] of 2", output)), 2, output)


if __name__ == "__main__":
    jobs.main()
