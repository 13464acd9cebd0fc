"""Host lists and what Slurm makes of them.

    hostlists.py write FILE             asks scontrol about generated lists and writes lists and answers down
    hostlists.py compare PROGRAM [SEED] asks scontrol and PROGRAM about further lists, and compares the answers

PROGRAM reads one list a line and answers each with a line: the hosts, parted by blanks, or "invalid". Both need
scontrol; without it `compare` ends with status 77. No cluster has to run.
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile

COUNT = 320
LONGEST_WRITTEN = 300
SKIPPED = 77
CONFIGURATION = "ClusterName=x\nSlurmctldHost=localhost\nNodeName=x\nPartitionName=main Nodes=ALL\n"
# What people and sites write, and what is no list.
FIXED = ["n[1-3]", "r[1-2]c[1-2]n[1-2]", "a[1-3]b[1,4]c[1-2]d[07-09]", "n[09-10]", "n[9-010]", "n[001-002,3]", "[1-3]",
         "n[1-2][3-4]", "n1[1-2],m", "n[1,1,2-3,2]", "n001,n2,n2,n1", ",n1,,n2,", "n1 n2", "a-b.c_d[1-2]", "n[0-0]",
         "n[000000000000000000000000000001-2]", "10.0.0.[8-11]", "n[1-2]3[4-5]", "login", "gpu[01-04,06],cpu[1-2],fat",
         "n[3-1]", "n[]", "n[a]", "n[1,]", "n[,1]", "n[-1]", "n[1-2-3]", "n[[1]]", "n[1]]", "n[0x1]", "n[1e1]", "n[0-65536]"]


def number(rng):
    value = str(rng.choice([0, 1, 7, 9, 10, 42, 99, 100, 998, rng.randrange(5000)]))
    return value.zfill(rng.choice([0, 0, 2, 3, 5]))


def interval(rng):
    low = number(rng)
    if rng.random() < 0.5:
        return low
    high = str(int(low) + rng.choice([0, 1, 2, 3, 11]))
    if rng.random() < 0.03:
        high = str(max(int(low) - 1, 0))
    return f"{low}-{high.zfill(rng.choice([0, len(low)]))}"


def bracket(rng):
    return "[" + ",".join(interval(rng) for _ in range(rng.choice([1, 1, 2, 3]))) + "]"


def item(rng):
    word = rng.choice(["n", "node", "gpu-", "r1.rack", "x_", "rack07c"])
    brackets = rng.choice([0, 1, 1, 1, 2, 3])
    for i in range(brackets):
        word += bracket(rng) + (rng.choice(["", "c", "-b"]) if i + 1 < brackets else "")
    return word


def generated(seed, count):
    rng = random.Random(seed)
    return [rng.choice([",", ",", " "]).join(item(rng) for _ in range(rng.choice([1, 1, 2, 3]))) for _ in range(count)]


def slurm_answer(environment, hostlist):
    done = subprocess.run(["scontrol", "show", "hostnames", hostlist], env=environment, text=True, check=False, timeout=30,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"scontrol ended with {done.returncode}: {done.stdout}")
    # Where an item has several brackets, Slurm complains of a bad range and goes on without the item.
    return "invalid" if "Invalid" in done.stdout else " ".join(done.stdout.split())


def slurm_answers(lists):
    with tempfile.TemporaryDirectory() as folder:
        configuration = os.path.join(folder, "slurm.conf")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        environment = {"PATH": os.environ["PATH"], "SLURM_CONF": configuration}
        return [slurm_answer(environment, hostlist) for hostlist in lists]


def write(path):
    lists = FIXED + generated(1, 2 * COUNT)
    with open(path, "w", encoding="utf-8") as file:
        for hostlist, answer in zip(lists, slurm_answers(lists)):
            if len(answer) > LONGEST_WRITTEN:
                continue
            file.write(f"{hostlist}\t{answer}\n")


def compare(program, seed):
    lists = FIXED + generated(seed, COUNT)
    done = subprocess.run([program], input="\n".join(lists) + "\n", text=True, check=True, stdout=subprocess.PIPE, timeout=60)
    ours, theirs = done.stdout.split("\n")[:-1], slurm_answers(lists)
    wrong = [f"{hostlist!r}: scontrol says {peer!r}, this says {own!r}"
             for hostlist, peer, own in zip(lists, theirs, ours, strict=True) if own != peer]
    print("\n".join(wrong[:20]))
    print(f"{len(lists)} lists (seed {seed}), {sum(peer == 'invalid' for peer in theirs)} of them invalid, {len(wrong)} differ")
    return 1 if wrong else 0


def main(words):
    if shutil.which("scontrol") is None:
        print("SKIPPED: no scontrol here (Debian: slurm-client), so there is nobody to compare with")
        return SKIPPED
    if words[0] == "write":
        write(words[1])
        return 0
    return compare(words[1], int(words[2]) if len(words) > 2 else random.randrange(1 << 32))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
