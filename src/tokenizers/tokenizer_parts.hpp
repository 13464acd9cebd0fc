#pragma once

#include "lockstep/tokenizers/tokenizer.hpp"
#include "pipeline.hpp"

namespace lockstep {

/// What a tokenizer is: shared by its copies. The workspaces are the one thing in it that changes.
struct Tokenizer::Parts {
  std::shared_ptr<const tokenizer::Pipeline> pipeline;
  std::optional<tokenizer::Truncation> truncation = std::nullopt;
  std::optional<tokenizer::Padding> padding = std::nullopt;
  std::shared_ptr<tokenizer::WorkspacePool> workspaces = std::make_shared<tokenizer::WorkspacePool>();
};

namespace tokenizer {

/// The truncation and the padding that a file names.
std::optional<Truncation> read_truncation(const Node& document);
std::optional<Padding> read_padding(const Node& document);

/// The parts that a tokenizer.json describes. Throws DataError.
std::shared_ptr<const Pipeline> read_pipeline(const Node& document);

/// Throws UsageError for a truncation whose pieces would have nothing new.
void check(const Truncation& truncation, const Pipeline& pipeline);

}  // namespace tokenizer
}  // namespace lockstep
