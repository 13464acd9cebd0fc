"""The cluster and the jobs that the curves are of. Nothing here was measured on such a cluster."""
import dataclasses

from scaling import failures, step

GPUS_PER_NODE = 8
CLUSTER = step.Cluster(GPUS_PER_NODE, inside=step.Link(4e-6, 300e9), between=step.Link(10e-6, 40e9))
STRAGGLERS = step.Stragglers(spread=0.01, pauses=1e-7, pause=1.0)


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    kind: str
    work: step.Work


def transformer(seconds, layers, layer_bytes, ends, optimizer):
    """Forward is a third of forward and backward together; `ends`: the bytes of the embeddings."""
    return step.Work((seconds - optimizer) / 3, (seconds - optimizer) * 2 / 3, optimizer, (ends, *[layer_bytes] * layers))


# GPT-2 with 124 million parameters, float32 gradients: 12 layers of 7.1 million, embeddings of 39.4 million.
GPT2 = Job("GPT-2 124M, DDP", "ddp", transformer(0.0981, 12, 4 * 7.09e6, 4 * 39.4e6, 0.002))
# 8 billion parameters in bfloat16, 16,384 tokens a GPU: 6 operations for each parameter and token, at 400 TFLOP/s.
LARGE = Job("8 billion, FSDP", "fsdp", transformer(6 * 8e9 * 16384 / 400e12, 32, 2 * 0.218e9, 2 * 1.05e9, 0.02))
JOBS = (GPT2, LARGE)
STEP = LARGE.work.computes()

HOUR = 3600.0
# 419 unexpected interruptions of 16,384 GPUs in 54 days.
BETWEEN_FAILURES = 16384 * 54 * 24 * HOUR / 419
RENDEZVOUS_NODE = 0.0005  # Seconds for each node, rounded up from those measured: docs/network.md.
START, READ = 60.0, 60.0
NOTICED, STANDSTILL = 15.0, 10.0
SAVE = 5.0
RECOVERABLE = 0.9


def restarting(ranks):
    nodes = ranks / GPUS_PER_NODE
    return failures.Reliability(BETWEEN_FAILURES, SAVE, NOTICED + RENDEZVOUS_NODE * nodes + START + READ)


def recovering(ranks):
    return dataclasses.replace(restarting(ranks), recover=NOTICED + STANDSTILL, recoverable=RECOVERABLE)


def policies():
    """(name, reliability of so many ranks, seconds between checkpoints or None for the best)"""
    return (("restart, a checkpoint every hour", restarting, HOUR), ("restart, checkpoints at the best interval", restarting, None),
            ("recovery inside the job, at the best interval", recovering, None))


def table():
    """(what, value, where it is from)"""
    return (
        ("GPUs of a node", f"{GPUS_PER_NODE}", "usual"),
        ("between GPUs of a node", f"{CLUSTER.inside.bandwidth / 1e9:g} GB/s each way, {CLUSTER.inside.latency * 1e6:g} us a message", "assumed: NVLink of an H100, two thirds of 450 GB/s"),
        ("between nodes, for each GPU", f"{CLUSTER.between.bandwidth / 1e9:g} GB/s each way, {CLUSTER.between.latency * 1e6:g} us a message", "assumed: 400 Gbit/s a GPU, four fifths of it; no congestion"),
        ("a step of GPT-2 124M, 32 texts of 1,024 tokens a GPU", "98.1 ms", "measured on one H200: docs/gpu.md; a third of it forward, 2 ms optimizer: assumed"),
        ("a step of 8 billion parameters, 16,384 tokens a GPU", f"{LARGE.work.computes():.2f} s", "assumed: 400 TFLOP/s a GPU; 32 layers of 218 million"),
        ("how long ranks compute", f"log-normal, {100 * STRAGGLERS.spread:g} % spread, independent", "assumed"),
        ("pauses of a rank", f"{STRAGGLERS.pause:g} s once in {1 / STRAGGLERS.pauses:,.0f} steps", "assumed"),
        ("mean time between failures of a GPU, with its share of everything else", f"{BETWEEN_FAILURES / HOUR / 24:,.0f} days", "Llama 3: 419 unexpected interruptions of 16,384 GPUs in 54 days"),
        ("failures", "independent, at a constant rate; a spare node is always there", "assumed"),
        ("a checkpoint stops the training for", f"{SAVE:g} s", "assumed; written in the background afterwards"),
        ("a failure is noticed after", f"{NOTICED:g} s", "the launcher's keep-alive timeout, its longest time"),
        ("a restart", f"{RENDEZVOUS_NODE * 1000:g} ms a node to meet, {START:g} s to start, {READ:g} s to read the checkpoint", "meeting: measured with 1,000 and 4,000 nodes ([network.md](network.md)), the rest assumed"),
        ("a recovery inside the job", f"{STANDSTILL:g} s after it is noticed, a step lost, possible after {100 * RECOVERABLE:g} % of failures", "assumed; while it lasts, another failure means a restart"))
