"""Jobs on a real Slurm of three nodes: slurm_test.py LAUNCHER TRAINER PROBE WORLD_PEER SOURCE CUSTOM_TRAINER

Every template is submitted as it lies in the source tree and runs to its end. Ends with status 77 where there can be no
Slurm, and says why.
"""
import glob
import json
import os
import re

import jobs
from jobs import read_file

TRAIN = ["image_classification", "--no-progress", "--device", "cpu", "--epochs", "1"]


class SlurmTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # These take their minute while the others run. In the partition whose jobs are not pushed out.
        cls.saved = os.path.join(cls.cluster.folder, "saved")
        os.mkdir(cls.saved)
        cls.out_of_time = cls.cluster.submit("--partition=urgent", "--time=1", "--nodes=1", "--ntasks=2",
                                             cls.template("many-nodes-by-srun"), "sleep", "613")
        cls.before_limit = cls.cluster.submit("--partition=urgent", "--time=1", "--signal=B:USR1@30", "--nodes=2",
                                              "--ntasks-per-node=1", cls.template("requeue"), *cls.saver, cls.saved)

    def worlds(self, *words, **variables):
        """What each task of `srun words` takes for its world, by Slurm's rank."""
        status, output = self.cluster.call("srun", *words, self.world_peer, **variables)
        self.assertEqual(status, 0, output)
        found = [json.loads(line) for line in output.split("\n") if line.startswith("{")]
        return sorted(found, key=lambda world: int(world["slurm_rank"]))

    def check_worlds(self, worlds, tasks, nodes):
        """What must hold for every way to deal out tasks."""
        hosts = [world["host"] for world in worlds]
        self.assertEqual([world["rank"] for world in worlds], list(range(tasks)))
        for world in worlds:
            ranks_here = [other["rank"] for other in worlds if other["host"] == world["host"]]
            self.assertEqual((world["world_size"], world["group_world_size"]), (tasks, nodes))
            self.assertEqual(world["local_world_size"], len(ranks_here))
            self.assertEqual(world["local_rank"], ranks_here.index(world["rank"]))
            self.assertEqual(world["local_main_rank"], ranks_here[0])
            self.assertEqual(world["group_rank"], sorted(set(hosts)).index(world["host"]))
            self.assertEqual(world["warning"], "")
        self.assertEqual(len({(world["master_addr"], world["master_port"], world["run_id"]) for world in worlds}), 1)
        if not self.cluster.flat:
            self.assertEqual(worlds[0]["master_addr"], hosts[0])

    # ------------------------------------------------------------ the environment

    def test_worlds_however_tasks_are_dealt_out(self):
        for words, tasks, nodes in ((("-N2", "-n4"), 4, 2), (("-N3", "-n5"), 5, 3), (("-N2", "-n5", "-m", "cyclic"), 5, 2),
                                    (("-N2", "-n4", "-m", "plane=2"), 4, 2), (("-N2", "-n2", "--mpi=pmi2"), 2, 2)):
            with self.subTest(words=words):
                self.check_worlds(self.worlds(*words), tasks, nodes)

    def test_a_step_of_two_components_is_one_world(self):
        self.check_worlds(self.worlds("-N1", "-n1", self.world_peer, ":", "-N1", "-n2"), 3, 2)

    def test_a_step_on_other_nodes_than_the_jobs_first(self):
        status, output = self.cluster.call("salloc", "-N3", "srun", "-N2", "-n2", "--relative=1", self.world_peer)
        self.assertEqual(status, 0, output)
        worlds = [json.loads(line) for line in output.split("\n") if line.startswith("{")]
        self.assertEqual({world["host"] for world in worlds}, {"n2", "n3"})
        self.check_worlds(sorted(worlds, key=lambda world: world["rank"]), 2, 2)

    def test_an_arbitrary_distribution_needs_the_address(self):
        hosts = os.path.join(self.cluster.folder, "hosts")
        with open(hosts, "w", encoding="utf-8") as file:
            file.write("n3\nn1\nn3\n")
        status, output = self.cluster.call("srun", "-n3", "-m", "arbitrary", self.world_peer, SLURM_HOSTFILE=hosts)
        self.assertEqual(status, 2, output)
        self.assertIn("Set MASTER_ADDR to the name of rank 0's node", output)
        self.check_worlds(self.worlds("-n3", "-m", "arbitrary", SLURM_HOSTFILE=hosts, MASTER_ADDR="n3"), 3, 2)

    def test_gpus_of_a_tasks_own(self):
        own = [world["own_devices"] for world in self.worlds("-N1", "-n2", "--gpus-per-task=1")]
        self.assertEqual(own, [True, True])
        shared = [world["own_devices"] for world in self.worlds("-N1", "-n2", "--gpus-per-node=2")]
        self.assertEqual(shared, [False, False])

    def test_a_batch_script_is_no_step(self):
        job = self.cluster.submit("-N2", "-n4", "--wrap", self.world_peer)
        world = json.loads(self.completed(job))
        self.assertEqual(world["world_size"], 1)
        self.assertIn(f"Slurm job {job} has 4 tasks, but this program was not started by srun", world["warning"])

    def test_a_batch_script_submitted_from_a_step_is_no_step(self):
        for tasks in ("4", "2"):
            with self.subTest(tasks=tasks):
                status, output = self.cluster.call("srun", "-N1", "-n2", "bash", "-c", 'if [ $SLURM_PROCID = 1 ]; then '
                                                   f'sbatch --parsable -o %j.out -N1 -n{tasks} --wrap {self.world_peer}; fi')
                self.assertEqual(status, 0, output)
                self.assertEqual(json.loads(self.completed(output.split()[-1]))["world_size"], 1)

    def test_a_variable_set_for_all_tasks_is_a_contradiction(self):
        status, output = self.cluster.call("srun", "-N2", "-n2", self.world_peer, RANK="0")
        self.assertEqual(status, 2, output)
        self.assertRegex(output, r"RANK='0', but Slurm step \d+\.0 says that it is 1")

    # ------------------------------------------------------------ ranks as tasks

    def test_collectives_and_local_order_with_ranks_dealt_out_in_turn(self):
        for scenario in (["collectives"], ["local_order", os.path.join(self.cluster.folder, "order")]):
            status, output = self.cluster.call("srun", "-N2", "--ntasks-per-node=2", "-m", "cyclic", "--kill-on-bad-exit=1",
                                               self.probe, *scenario)
            self.assertEqual(status, 0, output)

    def test_many_nodes_by_srun_trains(self):
        output = self.completed(self.cluster.submit("--nodes=3", self.template("many-nodes-by-srun"), *TRAIN, "--output-dir", "by-srun"))
        self.assertRegex(output, r"test accuracy 0\.[5-9]")
        self.assertGreater(os.path.getsize(os.path.join(self.cluster.jobs, "by-srun", "model.safetensors")), 1000)

    def test_many_nodes_by_srun_runs_as_it_is(self):
        self.assertIn("test accuracy", self.completed(self.cluster.submit(self.template("many-nodes-by-srun"))))

    def test_a_dead_rank_ends_the_job(self):
        output = self.failed(self.cluster.submit(self.template("many-nodes-by-srun"), self.probe, "throws"))
        self.assertIn("probe [rank 1]: error: sample 17 has no label", output)

    def test_scancel_leaves_nothing_behind(self):
        self.check_cancel(self.cluster.submit(self.template("many-nodes-by-srun"), "image_classification", "--no-progress",
                                              "--epochs", "100000"), self.trainer, 2)

    def test_lockstep_slurm_submit(self):
        status, output = self.cluster.call("lockstep", "slurm", "submit", "--template", "many-nodes-by-srun", "--nodes", "2",
                                           "--nproc-per-node", "2", "--job-name", "own", "--output", "%j.out", "--",
                                           self.probe, "hello")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"^\d+\n$")
        self.assertIn("a world of 4", self.completed(output.strip()))
        self.assertEqual(self.cluster.field(output.strip(), "JobName"), "own")

    # ------------------------------------------------------------ the other templates

    def test_one_node(self):
        self.assertRegex(self.completed(self.cluster.submit(self.template("one-node"))), r"test accuracy 0\.[5-9]")

    def test_array(self):
        job = self.cluster.submit("--output=array-%a.out", self.template("array"))
        self.completed(job, 300)
        texts = []
        for number in range(3):
            text = read_file(os.path.join(self.cluster.jobs, f"array-{number}.out"))
            texts += re.findall(rb"test accuracy [\d.]+", text)
        self.assertEqual(len(texts), 3)
        models = {read_file(path) for path in glob.glob(os.path.join(self.cluster.jobs, "out", "[0-2]", "*.safetensors"))}
        self.assertEqual(len(models), 3, "the three array tasks have seeds of their own")

    def test_data_pipeline(self):
        cache = os.path.join(self.cluster.folder, "cache", "digits")
        variables = {"DATA_SOURCE": os.path.join(self.source, "data", "digits"), "DATA_CACHE": cache}
        first = self.completed(self.cluster.submit(self.template("data-pipeline"), **variables))
        self.assertEqual(len(set(re.findall(r"(\S+): staged ", first))), 2, first)
        self.assertIn("test accuracy", first)
        self.assertNotIn("already prepared", first)
        second = self.completed(self.cluster.submit(self.template("data-pipeline"), self.probe, "order", "DATA", **variables))
        self.assertIn("already prepared", second)

    def test_data_pipeline_of_cifar_10(self):
        """The command line of docs/image_classification.md, on fewer images."""
        source = self.folder("cifar-10")
        for name, count in (("data_batch_1.bin", 36), ("test_batch.bin", 9)):
            with open(os.path.join(source, name), "wb") as file:
                file.write(b"".join(bytes([record % 10]) + bytes([25 * (record % 10)]) * 3 * 32 * 32 for record in range(count)))
        with open(os.path.join(self.source, "docs", "image_classification.md"), encoding="utf-8") as page:
            line = re.search(r"sbatch data-pipeline.sbatch ((?:.*\\\n)*.*)", page.read())[1].replace("\\\n", " ")
        output = self.completed(self.cluster.submit(
            self.template("data-pipeline"), *line.split(), "--epochs", "1", "--batch-size", "8", DATA_SOURCE=source,
            DATA_CACHE=os.path.join(self.cluster.folder, "cache", "cifar-10")))
        self.assertEqual(len(set(re.findall(r"(\S+): staged ", output))), 2, output)
        self.assertIn("training on 32 images, validating on 4, testing on 9; 4 rank(s)", output)
        self.assertIn("test accuracy", output)

    def test_prepare_stage_train(self):
        rows = self.folder("rows") + ".csv"
        with open(rows, "w", encoding="utf-8") as file:
            file.write("text\n" + "".join(f"the text of row {row}\n" for row in range(100)))
        probe = os.path.join(os.path.dirname(self.probe), "map_probe")
        variables = {"LOCKSTEP_CACHE": os.path.join(self.cluster.folder, "cache", "map")}
        output = self.completed(self.cluster.submit(self.template("prepare-stage-train"), probe, rows, "--alone", **variables))
        self.assertEqual(output.count(" computed 10 batches"), 1, "prepared once: " + output)
        self.assertEqual(output.count(" computed 0 batches"), 4, "found by the ranks: " + output)
        self.assertEqual(len(set(re.findall(r"(\S+): staged 6 files", output))), 2, output)

    def test_prepare_stage_train_of_a_language_model(self):
        """Tokenized by one process before the training, found by each node's ranks in its own copy."""
        text = os.path.join(self.source, "README.md")
        tokenizer = os.path.join(self.source, "tests", "unit", "tokenizers", "roberta.json")
        cache = os.path.join(self.cluster.folder, "cache", "tokens")
        model = ["--n-positions", "16", "--n-embd", "16", "--n-layer", "1", "--n-head", "2"]
        output = self.completed(self.cluster.submit(
            self.template("prepare-stage-train"), "causal_lm", "--train-file", text, "--data-format", "text", "--tokenizer", tokenizer,
            *model, "--max-steps", "3", "--logging-steps", "1", "--disable-tqdm", "--device", "cpu", "--output-dir", "tokens",
            LOCKSTEP_CACHE=cache))
        self.assertEqual(len(set(re.findall(r"(\S+): staged ", output))), 2, output)
        self.assertIn("4 rank(s)", output)
        self.assertEqual(len(re.findall(r"'loss': ", output)), 3, output)
        self.assertGreater(os.path.getsize(os.path.join(self.cluster.jobs, "tokens", "model.safetensors")), 1000)
        made = self.entries(cache)
        self.completed(self.cluster.submit(
            self.template("many-nodes-by-srun"), "causal_lm", "--train-file", text, "--data-format", "text", "--tokenizer", tokenizer,
            *model, "--max-steps", "1", "--disable-tqdm", "--device", "cpu", "--output-dir", "again", LOCKSTEP_CACHE=cache))
        self.assertEqual(self.entries(cache), made, "training without staging finds the same entries")

    @staticmethod
    def entries(cache):
        return sorted(name for name in os.listdir(cache) if os.path.isdir(os.path.join(cache, name)))

    def test_the_project_that_lockstep_new_writes(self):
        """Its batch script as it is, with its program as the examples' build has it."""
        project = os.path.join(self.cluster.jobs, "my_trainer")
        status, output = self.cluster.call("lockstep", "new", project)
        self.assertEqual(status, 0, output)
        os.mkdir(os.path.join(project, "build"))
        os.symlink(self.custom_trainer, os.path.join(project, "build", "my_trainer"))
        output = self.completed(self.cluster.submit("--chdir=" + project, f"--output={self.cluster.jobs}/%j.out",
                                                    os.path.join(project, "train.sbatch")))
        self.assertIn("'train_loss'", output)
        self.assertTrue(os.path.exists(os.path.join(project, "trainer_output", "model.safetensors")), os.listdir(project))

    def test_requeue_on_usr1(self):
        job = self.saver_job("requeue-usr1")
        self.cluster.call("scancel", "--batch", "--signal=USR1", job)
        self.check_saved_and_finished(job, "USR1")

    def test_requeue_of_an_array_reaches_one_task(self):
        folder = self.folder("requeue-array")
        job = self.cluster.submit("--array=1-2", "--nodes=1", "--ntasks=1", "--output=requeue-%a.out", self.template("requeue"),
                                  "bash", "-c", f'mkdir -p "{folder}/$SLURM_ARRAY_TASK_ID"; exec "$@" "{folder}/$SLURM_ARRAY_TASK_ID"',
                                  "saver", *self.saver)
        outputs = [os.path.join(self.cluster.jobs, f"requeue-{number}.out") for number in (1, 2)]
        self.cluster.until(lambda: all(b"waits" in read_file(path) for path in outputs), 60, "two waiting tasks")
        self.cluster.call("scancel", "--batch", "--signal=USR1", f"{job}_2")
        self.cluster.until(lambda: b"is finished" in read_file(outputs[1]), 90, "the second start of the array's task 2")
        self.assertNotIn(b"saves", read_file(outputs[0]))
        self.cluster.call("scancel", job)

    def test_requeue_after_preemption(self):
        job = self.saver_job("preempted", "--partition=yielding")
        urgent = self.cluster.submit("--partition=urgent", "--nodes=3", "--exclusive", "--wrap", "echo urgent")
        self.completed(urgent)
        self.check_saved_and_finished(job, "USR1")

    def saver_job(self, name, *words):
        job = self.cluster.submit(*words, "--nodes=2", "--ntasks-per-node=1", self.template("requeue"), *self.saver, self.folder(name))
        self.cluster.until_output(job, "waits", times=2)
        return job

    # ------------------------------------------------------------ what took a minute

    def test_z_the_time_limit_requeues(self):
        self.check_saved_and_finished(self.before_limit, "USR1", 240)

    def test_z_the_time_limit_ends_all_tasks(self):
        self.assertEqual(self.cluster.wait(self.out_of_time, 240), "TIMEOUT")
        self.cluster.until(lambda: not any(self.cluster.processes(f"n{node}", "sleep") > 1 for node in (1, 2, 3)), 30,
                           "the end of all tasks")


if __name__ == "__main__":
    jobs.main()
