"""What a training of checkpoint_probe leaves behind, for comparing its end with that of an undisturbed one."""
import re

LOSS = re.compile(r"(\d+) (-?0x[0-9a-f.]+p[+-]\d+|-?nan|-?inf)")


def losses_in(path, torn_lines):
    """{step: bits}; fails where a step that was done again had another loss. `torn_lines`: a killed rank may leave half a line."""
    losses = {}
    for line in path.read_text().splitlines():
        match = LOSS.fullmatch(line)
        if match is None:
            assert torn_lines, f"{path}: not a loss: {line!r}"
            continue
        step, bits = match.groups()
        assert losses.setdefault(step, bits) == bits, f"{path}: step {step} had the losses {losses[step]} and {bits}"
    return losses


def trace(folder, ranks, torn_lines=False, kinds=("losses",)):
    """The losses of each rank (`kinds`: and its evaluations), and the bytes of the final state."""
    out = folder / "out"
    losses = [losses_in(out / f"{kind}.{rank}", torn_lines) for kind in kinds for rank in range(ranks)]
    files = {path.name: path.read_bytes() for path in sorted((out / "final").iterdir()) if path.name != "manifest.json"}
    assert len(files) >= 5, f"too few files to compare: {sorted(files)}"
    return losses, files


def with_lost_lines(found, wanted, ranks, lost):
    """`found` with the lines that lost ranks have not written: one that is lost after the others have got its gradients writes no
    loss for that step, and is not asked again. Fails if more are missing than ranks were `lost`."""
    losses = [wanted_lines | own for own, wanted_lines in zip(found[0][:ranks], wanted[0][:ranks])]
    missing = sum(map(len, losses)) - sum(map(len, found[0][:ranks]))
    assert missing <= lost, f"{missing} losses are missing, but {lost} processes were lost"
    return losses + found[0][ranks:], found[1]


def first_difference(wanted, found):
    """In words; None if two traces are the same, bit for bit."""
    for number, (left, right) in enumerate(zip(wanted[0], found[0], strict=True)):
        if left != right:
            steps = sorted(int(step) for step in left.keys() | right.keys() if left.get(step) != right.get(step))
            return f"file {number} of the losses, step {steps[0]} and {len(steps) - 1} others"
    names = [name for name in sorted(wanted[1].keys() | found[1].keys()) if wanted[1].get(name) != found[1].get(name)]
    return f"the files {names} of the last state" if names else None


def left_behind(folder):
    """Unfinished checkpoints and temporary files, by their names in `folder`."""
    found = [*(folder / "checkpoints").glob("*.tmp"), *(folder / "tmp").glob("*")]
    return sorted(str(path.relative_to(folder)) for path in found)
