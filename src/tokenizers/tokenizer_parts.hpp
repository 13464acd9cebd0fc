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

/// Throws UsageError if the special tokens leave no room, or if overflowing pieces would have no new tokens.
void check(const Truncation& truncation, const Pipeline& pipeline);

}  // namespace tokenizer
}  // namespace lockstep
