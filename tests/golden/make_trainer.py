#!/usr/bin/env python3
"""Writes tests/golden/trainer.json: what transformers' Trainer does with a model of four parameters.

    python tests/golden/make_trainer.py tests/golden/trainer.json

Needs torch, transformers and accelerate. Each case is trained by one process and by two; of each, the file holds the
events in their order, the log, the learning rate of each step, the checkpoints that are there after each save and at the
end, the trainer's state at the end, and what predict() gives and does then. Times and rates are left out. The same data, the same model and the same arguments are in
tests/unit/train/trainer_golden_test.cpp.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SAMPLES, EVAL_SAMPLES = 22, 12

# What each case changes; names as in TrainingArguments.
COMMON = {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 3, "learning_rate": 0.05, "seed": 42,
          "logging_steps": 2, "num_train_epochs": 2.0}
CASES = {
    "steps": {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps",
              "save_steps": 3, "save_total_limit": 2, "load_best_model_at_end": True, "lr_scheduler_type": "cosine",
              "warmup_steps": 2, "weight_decay": 0.1},
    "epochs": {"logging_strategy": "epoch", "eval_strategy": "epoch", "save_strategy": "epoch", "save_total_limit": 1,
               "load_best_model_at_end": True, "metric_for_best_model": "bias", "greater_is_better": True,
               "num_train_epochs": 6.0, "early_stopping": 2, "learning_rate": 0.5, "max_grad_norm": 0.0},
    "best": {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "best", "metric_for_best_model": "loss",
             "optim": "sgd", "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 0.2, "eval_delay": 3,
             "logging_first_step": True, "logging_steps": 0.3, "max_steps": 9, "learning_rate": 0.4},
    "plateau": {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "no", "optim": "sgd",
                "lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 1, "factor": 0.5},
                "learning_rate": 1.9, "max_steps": 8, "logging_steps": 1},
    "weighted": {"gradient_accumulation_steps": 3, "save_strategy": "steps", "save_steps": 2, "weighted": True,
                 "logging_steps": 1, "max_grad_norm": 0.3},
}


def main(path):
    result = {"samples": SAMPLES, "eval_samples": EVAL_SAMPLES, "common": COMMON, "runs": []}
    for world in (1, 2):
        result["runs"] += run(world)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


def run(world):
    """All cases in one start of so many processes: importing takes longer than training."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}", "--master-port=29617",
                   os.path.abspath(__file__), "--record", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        subprocess.run(command, check=True, env=environment)
        records = []
        for name, changes in CASES.items():
            with open(os.path.join(folder, name, "record.json"), encoding="utf-8") as file:
                records.append({"case": name, "world": world, "arguments": changes, **json.load(file)})
        return records


def record_case(name, folder):
    import torch
    from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

    changes = {**COMMON, **CASES[name]}
    patience = changes.pop("early_stopping", None)
    weighted = changes.pop("weighted", False)

    class Samples(torch.utils.data.Dataset):
        def __init__(self, begin, count):
            self.begin, self.count = begin, count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            i = index + self.begin
            x = torch.tensor([((i * 7 + j * 3) % 11 - 5) / 5 for j in range(3)])
            y = (i % 5 - 2) / 2
            return {"x": x, "labels": torch.tensor(-100.0 if weighted and i % 3 == 0 else y)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 1)
            with torch.no_grad():
                self.linear.weight.copy_(torch.tensor([[0.1, -0.2, 0.3]]))
                self.linear.bias.fill_(0.05)

        def forward(self, x, labels=None):
            prediction = self.linear(x)[:, 0]
            # Trainer keeps the labels for itself where the loss is a function's.
            if labels is None:
                return {"prediction": prediction}
            return {"loss": ((prediction - labels) ** 2).mean(), "prediction": prediction}

    record = {"events": [], "folders": [], "rates": []}

    class Recorder(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            record["folders"].append(folders())

        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
            record["rates"].append(optimizer.param_groups[0]["lr"])

    def folders():
        found = [f for f in os.listdir(folder) if re.fullmatch(r"checkpoint-\d+", f)]
        return sorted(found, key=lambda f: int(f.split("-")[1]))

    def spy(event):
        def call(self, args, state, control, **kwargs):
            record["events"].append(event)
        return call

    events = [e for e in dir(TrainerCallback) if e.startswith("on_") and e != "on_push_begin"]
    Events = type("Events", (TrainerCallback,), {event: spy(event) for event in events})

    def loss_of(outputs, labels, num_items_in_batch=None):
        counts = labels != -100
        total = (((outputs["prediction"] - labels) ** 2) * counts).sum()
        return total / (num_items_in_batch if num_items_in_batch is not None else counts.sum())

    def metrics(prediction):
        # How far the mean prediction is from the mean label, negated: more is better.
        return {"bias": -abs(float(prediction.predictions.mean() - prediction.label_ids.mean()))}

    callbacks = [Events(), Recorder()]
    if patience is not None:
        callbacks.insert(0, EarlyStoppingCallback(patience))
    trainer = Trainer(model=Model(), args=TrainingArguments(folder, use_cpu=True, report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
                                                            **changes),
                      train_dataset=Samples(0, SAMPLES), eval_dataset=Samples(SAMPLES, EVAL_SAMPLES),
                      callbacks=callbacks, compute_metrics=metrics if name == "epochs" else None,
                      compute_loss_func=loss_of if weighted else None)
    trainer.train()
    state = json.loads(json.dumps(trainer.state.__dict__, default=str))
    record["log_history"] = [{k: v for k, v in entry.items() if not k.endswith(("_runtime", "_per_second"))}
                             for entry in trainer.state.log_history]
    record["state"] = {key: state[key] for key in ("best_metric", "best_global_step", "epoch", "global_step", "max_steps",
                                                   "num_train_epochs", "logging_steps", "eval_steps", "save_steps")}
    best = state["best_model_checkpoint"]
    record["state"]["best_model_checkpoint"] = os.path.basename(best) if best else None
    record["weights"] = [*trainer.model.linear.weight[0].tolist(), trainer.model.linear.bias.item()]
    record["final_folders"] = folders()
    record["events"], training_events = [], record["events"]
    output = trainer.predict(Samples(SAMPLES, EVAL_SAMPLES))
    record["predict"] = {"events": record["events"], "predictions": output.predictions.tolist(),
                         "metrics": {k: v for k, v in output.metrics.items() if not k.endswith(("_runtime", "_per_second"))}}
    record["events"] = training_events
    if trainer.is_world_process_zero():
        with open(os.path.join(folder, "record.json"), "w", encoding="utf-8") as file:
            json.dump(record, file)


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        from accelerate.state import AcceleratorState, GradientState
        for case in CASES:
            AcceleratorState._reset_state()
            GradientState._reset_state()
            os.makedirs(os.path.join(sys.argv[2], case), exist_ok=True)
            record_case(case, os.path.join(sys.argv[2], case))
    else:
        main(sys.argv[1])
