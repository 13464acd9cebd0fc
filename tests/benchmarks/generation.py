"""Generated rows a second, beside transformers' generate: generation.py BATCH_INFERENCE [--before OTHER_BATCH_INFERENCE]
    [--rows N] [--rounds N] [--processor] [--model NAME] [--beams N]

Makes folders of a small GPT-2, a small BART and a small Llama with random weights and a byte-level tokenizer, and rows of 5 to 40 bytes.
Each side has one thread and adds 32 tokens to every row, without end tokens: alone and in batches of 32, greedy and with
four beams; alone, for a quarter of the rows. The sides take turns; medians of the rounds. Both times include loading the
model, but neither the start of the program nor imports: ours is the one that batch_inference prints.
--processor counts the processor's time instead, for a machine that others use too: ours then includes the program's start.
"""
import argparse
import json
import os
import random
import re
import resource
import statistics
import subprocess
import tempfile
import time

from harness.benchmark import OURS, Benchmark, Row

NEW_TOKENS = 32


def byte_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, **{letter: 3 + place for place, letter in enumerate(letters)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>"])
    return tokenizer


def make_folders(place):
    """Paths by model. The end token is one that no vocabulary has."""
    import torch
    import transformers
    torch.manual_seed(0)
    tokens = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8000, n_positions=128, n_embd=256, n_layer=4, n_head=4, **tokens))
    bart = transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=8000, d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_position_embeddings=128, decoder_start_token_id=2, forced_eos_token_id=None,
        **tokens))
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=8000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, **tokens))
    folders = {}
    for name, model in (("gpt2", gpt2), ("bart", bart), ("llama", llama)):
        folder = folders[name] = os.path.join(place, name)
        model.save_pretrained(folder)
        byte_tokenizer().save(os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            json.dump({"bos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 2, "suppress_tokens": [2]}, file)
    return folders


def make_rows(path, count):
    numbers = random.Random(1)
    texts = ["".join(numbers.choice("abcdefgh ") for _ in range(numbers.randint(5, 40))) for _ in range(count)]
    with open(path, "w") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    return texts


def processor_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(program, name, folder, data, batch, beams, processor):
    before = processor_of_children()
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [program, "--task", MODELS[name][0], "--model", folder, "--data", data, "--batch-size", str(batch), "--num-beams", str(beams),
             "--max-new-tokens", str(NEW_TOKENS), "--num-proc", "1", "--device", "cpu", "--no-progress", "--output",
             os.path.join(place, "out.jsonl"), "--cache-dir", os.path.join(place, "cache")],
            check=True, text=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    rows, seconds = re.search(r"(\d+) rows in ([\d.e+-]+) s", done.stdout).groups()
    return int(rows) / (processor_of_children() - before if processor else float(seconds))


def peer(name, folder, texts, batch, beams, processor):
    import torch
    import transformers
    from tokenizers import Tokenizer
    clock = time.process_time if processor else time.perf_counter
    begin = clock()
    task = MODELS[name][0]
    kind = transformers.AutoModelForCausalLM if task == "text-generation" else transformers.AutoModelForSeq2SeqLM
    model = kind.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.enable_padding(direction="left" if task == "text-generation" else "right", pad_id=1, pad_token="<pad>")
    for first in range(0, len(texts), batch):
        rows = tokenizer.encode_batch(texts[first:first + batch])
        model.generate(torch.tensor([row.ids for row in rows]), attention_mask=torch.tensor([row.attention_mask for row in rows]),
                       num_beams=beams, max_new_tokens=NEW_TOKENS)
    return len(texts) / (clock() - begin)


def quiet_peer():
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--before")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--model", choices=list(MODELS))
    parser.add_argument("--beams", type=int, choices=[1, 4])
    arguments = parser.parse_args()
    quiet_peer()
    with tempfile.TemporaryDirectory() as place:
        folders = make_folders(place)
        sources = {}
        for batch, count in ((1, arguments.rows // 4), (32, arguments.rows)):
            data = os.path.join(place, f"{count}.jsonl")
            sources[batch] = (data, make_rows(data, count))
        for model, folder in folders.items():
            if arguments.model not in (None, model):
                continue
            for beams in (1, 4) if arguments.beams is None else (arguments.beams,):
                rates = {}
                for _ in range(arguments.rounds):
                    for batch, (data, texts) in sources.items():
                        for name, program in (("lockstep", arguments.program), ("before", arguments.before)):
                            if program:
                                rate = ours(program, model, folder, data, batch, beams, arguments.processor)
                                rates.setdefault(f"{name}, batch {batch}", []).append(rate)
                        rate = peer(model, folder, texts, batch, beams, arguments.processor)
                        rates.setdefault(f"transformers, batch {batch}", []).append(rate)
                for name, values in rates.items():
                    print(f"{model}, {beams} beam(s), {name}: {statistics.median(values):.1f} rows/s", flush=True)


class Inputs:
    """The models and rows of one setting, made in the first turn. Alone, a quarter of the rows is enough."""

    def __init__(self, setting):
        self.setting, self.folders, self.sources = setting, {}, {}
        self.rows = 64 if setting.quick else 128

    def turn(self, rate):
        """rate(name, folder, data file, texts, batch) of each model, row by row and in batches of 32."""
        if not self.folders:
            quiet_peer()
            self.folders = make_folders(self.setting.folder)
            for batch, count in ((1, self.rows // 4), (32, self.rows)):
                data = os.path.join(self.setting.folder, f"{batch}.jsonl")
                self.sources[batch] = (data, make_rows(data, count))
        return {f"{name}_{batch}": rate(name, folder, *source, batch)
                for name, folder in self.folders.items() for batch, source in self.sources.items()}


def sides(setting):
    inputs, program = Inputs(setting), setting.program("bin/batch_inference")
    return {OURS: lambda: inputs.turn(lambda name, folder, data, _, batch: ours(program, name, folder, data, batch, 1, False)),
            "transformers": lambda: inputs.turn(lambda name, folder, _, texts, batch: peer(name, folder, texts, batch, 1, False))}


MODELS = {"gpt2": ("text-generation", "GPT-2"), "bart": ("translation", "BART"), "llama": ("text-generation", "Llama")}
BENCHMARK = Benchmark(
    "generation", "32 new tokens for each row, greedy, small models, one thread; with loading the model", "performance.md",
    tuple(Row(f"{name}_{batch}", f"generating, {title}, " + ("row by row" if batch == 1 else f"in batches of {batch}"), "rows/s", "higher")
          for name, (_, title) in MODELS.items() for batch in (1, 32)),
    sides, ("bin/batch_inference",), {name: ("torch", "transformers", "tokenizers") for name in (OURS, "transformers")},
    rounds=3, quick_rounds=2)

if __name__ == "__main__":
    main()
