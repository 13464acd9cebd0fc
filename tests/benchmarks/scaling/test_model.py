"""What the model has to say where the answer is known. Run by ctest (scaling_test)."""
import math
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from scaling import failures, step

FAST, SLOW = step.Link(1e-6, 100e9), step.Link(1e-5, 10e9)
CLUSTER = step.Cluster(8, FAST, SLOW)
WORK = step.Work(0.1, 0.2, 0.03, (10e6,) * 10)


def seconds(tasks):
    return max(step.finish_times(tasks).values())


class Collectives(unittest.TestCase):
    def test_a_ring_moves_twice_all_bytes_but_one_share(self):
        alone = step.Cluster(1, FAST, step.Link(0, 1e9))
        self.assertAlmostEqual(step.all_reduce(alone, 4, 1e9, "ring"), 2 * 3 / 4)
        self.assertEqual(step.all_reduce(alone, 1, 1e9, "ring"), 0)

    def test_a_node_alone_uses_no_network(self):
        self.assertAlmostEqual(step.all_reduce(CLUSTER, 8, 8e9, "ring"), 2 * 7 * (1e-6 + 1e9 / 100e9))

    def test_hierarchical_divides_the_network_bytes_by_the_ranks_of_a_node(self):
        for shape in ("hierarchical", "tree"):
            between = step.all_reduce(CLUSTER, 16, 8e9, shape) - step.all_reduce(CLUSTER, 8, 8e9, shape)
            self.assertAlmostEqual(between, 2 * (1e-5 + 0.5e9 / 10e9))

    def test_doubling_needs_a_logarithm_of_the_latencies(self):
        self.assertAlmostEqual(step.half_tree(1024, 0, SLOW), 10 * 1e-5)
        self.assertAlmostEqual(step.half_ring(1024, 0, SLOW), 1023 * 1e-5)


class Steps(unittest.TestCase):
    def test_one_rank_only_computes(self):
        for kind in (step.ddp, step.fsdp):
            self.assertAlmostEqual(seconds(kind(WORK, CLUSTER, 1, "ring")), WORK.computes())

    def test_without_overlap_all_costs_are_added(self):
        cluster = step.Cluster(8, FAST, SLOW, overlaps=False)
        tasks = step.ddp(WORK, cluster, 16, "ring")
        self.assertAlmostEqual(seconds(tasks), sum(task.seconds for task in tasks))

    def test_fast_communication_hides_behind_backward_but_the_last_bucket(self):
        cost = 1e-3
        tasks = step.ddp(WORK, CLUSTER, 16, "ring", cost=lambda size: cost)
        self.assertAlmostEqual(seconds(tasks), WORK.computes() + cost)

    def test_slow_communication_begins_with_the_first_bucket(self):
        tasks = step.ddp(WORK, CLUSTER, 16, "ring", cost=lambda size: 1.0)
        count = sum(task.resource == "network" for task in tasks)
        self.assertAlmostEqual(seconds(tasks), WORK.forward + WORK.backward / 10 + count + WORK.optimizer)

    def test_buckets_are_those_of_ddp(self):
        self.assertEqual(step.buckets((4.0,) * 8, 1, 25), [4.0, 28.0])
        self.assertEqual(step.buckets((4.0,) * 9, 1, 25), [4.0, 28.0, 4.0])

    def test_fsdp_without_overlap_gathers_all_twice_but_a_first_layer_that_is_kept(self):
        cluster = step.Cluster(8, FAST, SLOW, overlaps=False)
        price = {"gather": 1.0, "scatter": 10.0}
        for kept in (False, True):
            tasks = step.fsdp(WORK, cluster, 16, "ring", cost=lambda what, _: price[what], keeps_first=kept)
            self.assertAlmostEqual(seconds(tasks), WORK.computes() + 20 - kept + 100)

    def test_fsdp_is_bound_by_the_larger_of_network_and_processor(self):
        slow_network = step.Cluster(8, FAST, step.Link(0, 1e8))
        tasks = step.fsdp(WORK, slow_network, 16, "ring")
        moved = sum(task.seconds for task in tasks if task.resource == "network")
        self.assertGreater(seconds(tasks), moved)
        self.assertLess(seconds(tasks), moved + 0.2 * WORK.computes())
        fast = step.Cluster(8, step.Link(0, 1e15), step.Link(0, 1e15))
        self.assertAlmostEqual(seconds(step.fsdp(WORK, fast, 16, "ring")), WORK.computes(), places=5)

    def test_circles_are_refused(self):
        with self.assertRaises(ValueError):
            step.finish_times([step.Task("a", "x", 1, ("b",)), step.Task("b", "y", 1, ("a",))])


class Slowness(unittest.TestCase):
    def test_the_largest_of_many_draws(self):
        drawn = step.Stragglers(spread=0.1)
        for ranks in (1, 4, 64):
            largest = sorted(drawn.slowest(ranks, chance)[0] for chance in [random.Random(1)] for _ in range(4001))
            chance = random.Random(2)
            direct = sorted(max(math.exp(chance.gauss(0, 0.1)) for _ in range(ranks)) for _ in range(4001))
            self.assertAlmostEqual(largest[2000], direct[2000], delta=0.01)

    def test_pauses_hit_large_jobs(self):
        rare = step.Stragglers(pauses=1e-3, pause=5.0)
        hit = sum(rare.slowest(1000, chance)[1] > 0 for chance in [random.Random(1)] for _ in range(2000))
        self.assertAlmostEqual(hit / 2000, 1 - math.exp(-1), delta=0.04)


class Failures(unittest.TestCase):
    def test_agrees_with_dalys_formula(self):
        for ranks in (100, 1000):
            kept = failures.Reliability(between_failures=1e6, save=20, restart=100)
            interval = failures.best_interval(kept, ranks)
            found = failures.useful_share(kept, ranks, interval, 1, random.Random(1), failures=8000)
            self.assertAlmostEqual(found, failures.expected_share(kept, ranks, interval), delta=0.02)

    def test_the_best_interval_is_best(self):
        kept = failures.Reliability(between_failures=1e6, save=20, restart=100)
        best = failures.best_interval(kept, 100)
        for other in (best / 3, best * 3):
            self.assertLess(failures.expected_share(kept, 100, other), failures.expected_share(kept, 100, best))

    def test_recovery_loses_a_step_and_its_standstill(self):
        kept = failures.Reliability(between_failures=1e6, save=0, restart=100, recover=5, recoverable=1.0)
        found = failures.useful_share(kept, 100, 600, 1, random.Random(1), failures=8000)
        self.assertAlmostEqual(found, 1 - 6 / 10000, delta=0.0003)


if __name__ == "__main__":
    unittest.main()
