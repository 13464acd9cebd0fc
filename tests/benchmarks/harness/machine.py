"""What a run was measured on, and how much of it other programs used meanwhile."""
import importlib.metadata
import os
import platform
import subprocess
import time

PACKAGES = ("torch", "torchvision", "pillow", "numpy", "safetensors", "tokenizers", "datasets", "transformers", "accelerate", "peft")
BUSY = 0.15  # Of a core. Below this, others do not move a median.


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def field(text, name, separator):
    for line in text.splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip().strip('"')
    return ""


def describe():
    processor = read("/proc/cpuinfo")
    memory = field(read("/proc/meminfo"), "MemTotal", ":").split()
    return {
        "cpu": field(processor, "model name", ":") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in field(processor, "flags", ":").split(),
        "memory_gib": round(int(memory[0]) / 2**20, 1) if memory else 0,
        "kernel": platform.release(),
        "system": field(read("/etc/os-release"), "PRETTY_NAME", "="),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions():
    """Of this Python and of the packages that it finds."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def commit(root):
    """The commit of a checkout, with a + where files have been changed since; empty where there is none."""
    def git(*words):
        try:
            done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    name = git("rev-parse", "--short=8", "HEAD")
    return name + ("+" if name and git("status", "--porcelain", "--untracked-files=no") else "")


def used_seconds():
    """Processor seconds that all programs have used on our cores since the machine started, and those a hypervisor took away."""
    ours, total = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0
    for line in read("/proc/stat").splitlines():
        words = line.split()
        if words and words[0] in ours:
            user, nice, system, _, _, irq, softirq, steal = (int(word) for word in words[1:9])
            total += user + nice + system + irq + softirq + steal
    return total / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Those of this program and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Watch:
    """Counts what others use from its creation on."""

    def __init__(self):
        self.begin = time.monotonic(), used_seconds(), own_seconds()

    def others(self):
        """In cores, on average."""
        then, used, own = self.begin
        elapsed = time.monotonic() - then
        return max(0.0, round((used_seconds() - used - (own_seconds() - own)) / elapsed, 2)) if elapsed > 0 else 0.0


def is_busy(others):
    return others > BUSY


def sentence(results):
    """Where and when something was measured, for pages and tables."""
    machine, versions_ = results["machine"], results["versions"]
    kind = "virtual machine" if machine["virtual"] else "machine"
    cores = f"{machine['cores']} core" + ("s" if machine["cores"] != 1 else "")
    text = (f"Measured on {results['started'][:10]} at commit {results['commit'] or 'unknown'}, on a {kind} with {cores} "
            f"({machine['cpu']}), {machine['memory_gib']:g} GiB of memory, {machine['system']}, Linux {machine['kernel']}")
    packages = [f"{name} {versions_[name]}" for name in PACKAGES if name in versions_]
    text += ("; " + ", ".join(packages) if packages else "") + (", in a quick run." if results["quick"] else ".")
    if is_busy(machine["others"]):
        text += (f" The machine was busy: other programs used {machine['others']:.1f} cores on average. Times are longer than on a "
                 "quiet machine; ratios are of runs next to each other.")
    return text
