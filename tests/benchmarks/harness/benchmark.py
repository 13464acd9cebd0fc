"""What a benchmark is: its rows, the sides that take turns, and what they need."""
import dataclasses
import os
import pathlib
from typing import Callable, Dict, Mapping, Tuple

OURS = "Lockstep"


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the tables. `limit` names the side that is no peer but what the machine can do at best: a copy of the same
    bytes, the same step without communication."""
    name: str
    what: str
    unit: str
    better: str = "lower"  # Or "higher".
    limit: str = ""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """`sides(setting)` gives a function for each side, by its name; one of them is OURS. Such a function is one turn: it
    measures and returns {row: value, or the values of several steps}. What a side needs in its first turn, it prepares there.

    `peers` has the modules that a side imports; where one is missing, that side is left out. A side that needs something else
    (MPI) is not given if it is not there."""
    name: str
    what: str
    page: str
    rows: Tuple[Row, ...]
    sides: Callable[["Setting"], Dict[str, Callable[[], Mapping]]]
    programs: Tuple[str, ...]
    peers: Mapping[str, Tuple[str, ...]] = dataclasses.field(default_factory=dict)
    rounds: int = 5
    quick_rounds: int = 3
    quick_share: float = 1  # Of the time of a quick run, relative to the others. Rounds for which it does not suffice are left out.
    warm_up: bool = False  # A round before them is not counted.

    def limits(self):
        return {row.limit for row in self.rows if row.limit}


class Outputs:
    """What the sides compute beside their times. A side whose output differs from that of the others measures something else."""

    def __init__(self):
        self.values = {}

    def same(self, what, value):
        first = self.values.setdefault(what, value)
        if first != value:
            raise AssertionError(f"the sides differ: {what} is {value!r} here and was {first!r} before")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a benchmark is given: a build folder, a folder of its own for files, and whether it is in a hurry."""
    build: pathlib.Path
    folder: pathlib.Path
    quick: bool
    outputs: Outputs

    def program(self, name):
        return os.path.join(self.build, name)

    @property
    def launcher(self):
        return self.program("bin/lockstep")
