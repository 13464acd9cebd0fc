"""The Python side of grad_scaler_interop_test: torch.amp.GradScaler in every order of its calls.

  grad_scaler_peer.py FILE   FILE has a sequence of calls per line; prints for each its number of calls without an
                             exception, the weight, its gradient (or "none"), the scale and the growth tracker

Calls: S scale a finite loss and backward, I an infinite one, U unscale_, C unscale_ and clip, T step, P update,
Z zero_grad, z zero_grad(set_to_none=False).
"""
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


class Job:
    def __init__(self):
        self.weight = torch.ones(2, requires_grad=True)
        self.sgd = torch.optim.SGD([self.weight], lr=1.0, foreach=False)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def backward(self, factor):
        self.scaler.scale((self.weight * factor).sum()).backward()

    def clip(self):
        self.scaler.unscale_(self.sgd)
        torch.nn.utils.clip_grad_norm_([self.weight], 0.125, foreach=True)

    def call(self, name):
        {"S": lambda: self.backward(0.25), "I": lambda: self.backward(float("inf")),
         "U": lambda: self.scaler.unscale_(self.sgd), "C": self.clip, "T": lambda: self.scaler.step(self.sgd),
         "P": self.scaler.update, "Z": self.sgd.zero_grad,
         "z": lambda: self.sgd.zero_grad(set_to_none=False)}[name]()


for line in open(sys.argv[1]):
    job, calls = Job(), line.strip()
    done = 0
    try:
        for name in calls:
            job.call(name)
            done += 1
    except (RuntimeError, AssertionError):
        pass
    gradient = "none" if job.weight.grad is None else repr(job.weight.grad[0].item())
    growth = job.scaler.state_dict()["_growth_tracker"]
    print(done, repr(job.weight[0].item()), gradient, job.scaler.get_scale(), growth)
