"""The sides of a benchmark take turns, so that a slow moment of the machine hits all of them."""
import time


def take(sides, rounds, tell, warm_up=False, seconds=None):
    """{row: {side: [the values of each round]}}. Every second round goes in the opposite order. After the first round, no other
    one begins that would not end within `seconds`, if it takes as long as the last one."""
    found, begin, last = {}, time.monotonic(), 0
    for number in range(-1 if warm_up else 0, rounds):
        since = time.monotonic() - begin
        if seconds and number > 0 and 2 * since - last > seconds:
            tell(f"{number} of {rounds} rounds: its {seconds:.0f} s are over")
            break
        last = since
        names = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in names:
            tell(f"{f'round {number + 1} of {rounds}' if number >= 0 else 'warming up'}: {name}")
            values = sides[name]()
            if number >= 0:
                add(found, name, values)
    return found


def add(found, side, values):
    for row, value in values.items():
        several = [float(one) for one in value] if isinstance(value, (list, tuple)) else [float(value)]
        found.setdefault(row, {}).setdefault(side, []).append(several)


class Together:
    """Sides that one run of a program measures: run() gives {side: {row: value}}. A run serves each of them once."""

    def __init__(self, run):
        self.run, self.left = run, {}

    def side(self, name):
        return lambda: self.values(name)

    def values(self, name):
        if name not in self.left:
            self.left = dict(self.run())
        return self.left.pop(name, {})
