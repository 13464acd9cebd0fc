"""What a training of checkpoint_probe leaves behind, for comparing its end with that of an undisturbed one."""


def losses_in(path, torn_lines):
    """{step: bits}; fails where a step that was done again had another loss. `torn_lines`: a killed rank may leave half a line."""
    losses = {}
    for line in path.read_text().splitlines():
        if torn_lines and len(line.split()) != 2:
            continue
        step, bits = line.split()
        if losses.setdefault(step, bits) != bits:
            raise AssertionError(f"{path}: step {step} had the losses {losses[step]} and {bits}")
    return losses


def trace(folder, ranks, torn_lines=False):
    """The losses of each rank, and the bytes of the final state."""
    out = folder / "out"
    losses = [losses_in(out / f"losses.{rank}", torn_lines) for rank in range(ranks)]
    files = {path.name: path.read_bytes() for path in sorted((out / "final").iterdir()) if path.name != "manifest.json"}
    assert len(files) >= 5, f"too few files to compare: {sorted(files)}"
    return losses, files
