"""The benchmarks there are, in the order of the tables, and what of a build they need."""
import importlib

NAMES = ("launch", "store", "rendezvous", "all_reduce", "ddp_step", "decoder_step", "tuning_step", "optimizer_step", "banking77", "save", "loader",
         "images", "tar_stream", "dataset_access", "dataset_ingest", "map", "tokenizer", "tokenizer_trainer", "generation",
         "recovery")

# Where a program is not the only output of a target of its name.
TARGETS = {"bin/lockstep": "lockstep_launcher", "bin/lockstep-tokenizer": "lockstep_tokenizer_tool"}


def load(name):
    return importlib.import_module(name).BENCHMARK


def selected(only):
    """The names that are wanted; `only` has names separated by commas or blanks."""
    wanted = only.replace(",", " ").split()
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        raise ValueError(f"there is no benchmark {', '.join(unknown)}: there are {', '.join(NAMES)}")
    return [name for name in NAMES if not wanted or name in wanted]


def targets(names):
    """What `cmake --build` builds for them."""
    programs = sorted({program for name in names for program in load(name).programs})
    return [TARGETS.get(program, program.rsplit("/", 1)[-1]) for program in programs]


def missing_programs(benchmark, build):
    return [program for program in benchmark.programs if not (build / program).exists()]
