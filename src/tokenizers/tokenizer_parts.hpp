#pragma once

#include "lockstep/tokenizers/tokenizer.hpp"
#include "tokenizers/chat_templates.hpp"
#include "tokenizers/pipeline.hpp"

namespace lockstep {

/// The state of a tokenizer, shared by its copies. Only the workspaces change.
struct Tokenizer::Parts {
  std::shared_ptr<const tokenizer::Pipeline> pipeline;
  std::optional<tokenizer::Truncation> truncation = std::nullopt;
  std::optional<tokenizer::Padding> padding = std::nullopt;
  std::shared_ptr<tokenizer::WorkspacePool> workspaces = std::make_shared<tokenizer::WorkspacePool>();
  /// The post-processor of texts in the target language, if there are languages.
  std::shared_ptr<const tokenizer::PostProcessor> target = nullptr;
  bool encodes_targets = false;
  tokenizer::PretrainedSettings settings = {};
  std::shared_ptr<tokenizer::ChatTemplates> chat_templates = std::make_shared<tokenizer::ChatTemplates>();

  const tokenizer::PostProcessor& post_processor() const {
    return encodes_targets ? *target : pipeline->post_processor;
  }
};

namespace tokenizer {

/// Throws UsageError if the special tokens leave no room, or if overflowing pieces would have no new tokens.
void check_truncation(const Truncation& truncation, const Pipeline& pipeline);

}  // namespace tokenizer
}  // namespace lockstep
