#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/bpe.hpp"
#include "tokenizers/pipeline.hpp"

namespace lockstep::tokenizer {

/// Begins a pipeline with the normalizer, the pre-tokenizer and the model of a document like tokenizer.json,
/// or with a model of the caller's. Throws DataError.
std::shared_ptr<Pipeline> begin_pipeline(const Node& document, std::unique_ptr<const Model> model = {});

/// Completes it with the document's added tokens, post-processor and decoder. Throws DataError.
void finish_pipeline(Pipeline& pipeline, const Node& document);

/// The merges of a merges.txt. Throws DataError, naming the file and the line.
Merges read_merge_lines(std::string_view text, const std::string& file);

}  // namespace lockstep::tokenizer
