"""A training of many days on ranks that fail: how much of the time is useful."""
import dataclasses
import heapq
import math


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Failures of one rank are a Poisson process; those of n ranks are n times as frequent. Times in seconds."""
    between_failures: float  # Of one rank.
    save: float  # How long a checkpoint stops the training.
    restart: float  # From a failure to the first new step: noticed, all ranks started again, the checkpoint read.
    recover: float = math.inf  # The same for a recovery inside the job, which repeats at most one step; infinite: there is none.
    recoverable: float = 0.0  # The share of failures after which it is possible.

    def of_job(self, ranks):
        return self.between_failures / ranks


def best_interval(reliability, ranks):
    """Young's and Daly's: the time between two checkpoints that loses least."""
    if reliability.save <= 0:
        return 60.0
    return max(60.0, math.sqrt(2 * reliability.save * reliability.of_job(ranks)))


def useful_share(reliability, ranks, interval, step, random, failures=2000):
    """The share of the time that a job spends on steps that count, until so many failures have happened.

    Events: a checkpoint is due, a failure, the job trains again. A failure during a restart begins it anew; one while a
    checkpoint is written leaves the one before it."""
    events, now, kept, since, useful_before, phase, turn = [], 0.0, 0.0, 0.0, 0.0, "trains", 0

    def plan(delay, what):
        nonlocal turn
        turn += 1
        heapq.heappush(events, (now + delay, turn, what))
        return turn

    def next_failure():
        plan(random.expovariate(1 / reliability.of_job(ranks)), "failure")

    next_failure()
    expected, failed = plan(interval, "due"), 0
    while failed < failures:
        time, number, what = heapq.heappop(events)
        if what != "failure" and number != expected:
            continue  # A failure came before it.
        now = time
        if what == "failure":
            failed += 1
            next_failure()
            done = useful_before + (now - since if phase == "trains" else 0.0)
            if phase != "down" and random.random() < reliability.recoverable:
                useful_before = max(kept, done - step)
                expected = plan(reliability.recover, "up")
            else:
                useful_before = kept
                expected = plan(reliability.restart, "up")
            phase = "down"
        elif what == "due":
            useful_before += now - since
            phase, expected = "saves", plan(reliability.save, "saved")
        else:
            if what == "saved":
                kept = useful_before
            phase, since = "trains", now
            expected = plan(interval, "due")
    return kept / now


def expected_share(reliability, ranks, interval):
    """Daly's formula for restarts alone: what the simulation has to agree with."""
    mean = reliability.of_job(ranks)
    period = mean * math.exp(reliability.restart / mean) * math.expm1((interval + reliability.save) / mean)
    return interval / period
