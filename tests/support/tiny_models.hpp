#pragma once

#include <filesystem>

namespace lockstep::testing {

// Folders as Hugging Face's save_pretrained leaves them, of models with two layers and a width of 32. Each
// weight is the formula of tests/golden/make_models.py, so that Python has the same ones. Written without
// LibTorch.

/// A GPT-2 for the 403 tokens of unit/tokenizers/roberta.json, with inputs of at most 32, no dropout.
void write_tiny_gpt2(const std::filesystem::path& folder);

/// A Llama for the same tokens and inputs, with two heads of keys for four of queries.
void write_tiny_llama(const std::filesystem::path& folder);

/// A BERT for `vocab_size` tokens and inputs of at most 32, no dropout, with a classifier of so many classes;
/// 0: without one. `has_pooler`: whether it has the layer between the first token and the classifier.
void write_tiny_bert(const std::filesystem::path& folder, int vocab_size, int classes = 0,
                     bool has_pooler = true);

/// An adapter of that BERT as PEFT writes it, of rank 2 for the queries, with a classifier of so many
/// classes.
void write_tiny_bert_adapter(const std::filesystem::path& folder, int classes);

/// A BART for the 403 tokens of unit/tokenizers/roberta.json, with inputs of at most 32, no dropout.
void write_tiny_bart(const std::filesystem::path& folder);

/// A ViT for images of 16 pixels, no dropout, with a classifier of so many classes named "c0", "c1", ...; and
/// preprocessor_config.json.
void write_tiny_vit(const std::filesystem::path& folder, int classes);

/// Copies a tokenizer.json into a model's folder, as transformers saves one of no class of its own.
void copy_generic_tokenizer(const std::filesystem::path& tokenizer_json, const std::filesystem::path& folder);

}  // namespace lockstep::testing
