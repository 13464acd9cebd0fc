"""A small training for recovery.py, with torch's DDP under torchrun, or with torchft.

    recovery_peer.py torchrun|torchft OUT --steps N --step-time MS --every K

Writes what checkpoint_probe writes: OUT/losses.<rank>, a line for each step, OUT/pids.<rank>, and in the end the digest of
the weights and of the optimizer's state to OUT/digest.<rank>. With torchft also OUT/absent.<rank>, a line for each replica
that was missing in a step. The random numbers of a step come from its number, as Lockstep's do.
"""
import argparse
import datetime
import hashlib
import os
import pathlib
import time

import torch
import torch.distributed as dist

BATCH, SAMPLES = 4, 400


def model_and_optimizer():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(32, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


class Data:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        torch.manual_seed(4)
        self.x = torch.randn(SAMPLES, 6)
        self.y = self.x.sum(1, keepdim=True).sin()

    def batch(self, step):
        """That of this rank; also seeds what the step draws."""
        in_epoch = SAMPLES // (BATCH * self.ranks)
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(11 + step // in_epoch))
        first = ((step % in_epoch) * self.ranks + self.rank) * BATCH
        torch.manual_seed(step * self.ranks + self.rank)
        chosen = order[first:first + BATCH]
        return self.x[chosen], self.y[chosen]


class Files:
    def __init__(self, out, rank):
        self.out, self.rank = out, rank
        with open(out / f"pids.{rank}", "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        self.losses = open(out / f"losses.{rank}", "a", encoding="utf-8")

    def step(self, number, loss):
        self.losses.write(f"{number} {loss.item().hex()}\n")
        self.losses.flush()

    def absent(self, count):
        with open(self.out / f"absent.{self.rank}", "a", encoding="utf-8") as file:
            file.write("1\n" * count)

    def end(self, model, optimizer):
        digest = hashlib.sha256()
        states = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
        for tensor in (*model.state_dict().values(), *states):
            digest.update(torch.as_tensor(tensor).numpy().tobytes())
        (self.out / f"digest.{self.rank}").write_text(digest.hexdigest())


def train_torchrun(options):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    files, data = Files(options.out, rank), Data(rank, ranks)
    model, optimizer = model_and_optimizer()
    saved, begin = options.out / "checkpoint.pt", 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(begin, options.steps):
        x, y = data.batch(step)
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        files.step(step, loss)
        time.sleep(options.step_time / 1000)
        if rank == 0 and (step + 1) % options.every == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, f"{saved}.new")
            os.replace(f"{saved}.new", saved)
    files.end(model, optimizer)
    dist.barrier()


def train_torchft(options):
    import torchft
    rank, ranks = int(os.environ["REPLICA"]), int(os.environ["REPLICAS"])
    files, data = Files(options.out, rank), Data(rank, ranks)
    model, optimizer = model_and_optimizer()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, replica_id=f"replica_{rank}_",
        store_addr="127.0.0.1", store_port=store.port, rank=0, world_size=1, timeout=datetime.timedelta(seconds=10))
    ddp, wrapped = torchft.DistributedDataParallel(manager, model), torchft.Optimizer(manager, optimizer)
    while manager.current_step() < options.steps:
        step = manager.current_step()
        x, y = data.batch(step)
        wrapped.zero_grad()
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        wrapped.step()
        if manager.current_step() > step:
            files.step(step, loss)
            files.absent(ranks - manager.num_participants())
        time.sleep(options.step_time / 1000)
    files.end(model, optimizer)
    manager.shutdown(wait=False)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("kind", choices=("torchrun", "torchft"))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-time", type=float, default=20)
    parser.add_argument("--every", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    (train_torchrun if options.kind == "torchrun" else train_torchft)(options)


if __name__ == "__main__":
    main()
