#pragma once

#include "lockstep/tokenizers/tokenizer.hpp"
#include "pipeline.hpp"

namespace lockstep {

/// The state of a tokenizer, shared by its copies. Only the workspaces change.
struct Tokenizer::Parts {
  std::shared_ptr<const tokenizer::Pipeline> pipeline;
  std::optional<tokenizer::Truncation> truncation = std::nullopt;
  std::optional<tokenizer::Padding> padding = std::nullopt;
  std::shared_ptr<tokenizer::WorkspacePool> workspaces = std::make_shared<tokenizer::WorkspacePool>();
};

namespace tokenizer {

/// The truncation and the padding of a file.
std::optional<Truncation> read_truncation(const Node& document);
std::optional<Padding> read_padding(const Node& document);

/// The parts of a tokenizer.json. Throws DataError.
std::shared_ptr<const Pipeline> read_pipeline(const Node& document);

/// Throws UsageError if the special tokens leave no room, or if overflowing pieces would have no new tokens.
void check(const Truncation& truncation, const Pipeline& pipeline);

}  // namespace tokenizer
}  // namespace lockstep
