#include "tokenizers/chat_templates.hpp"

namespace lockstep::tokenizer {
namespace {

/// A program has few templates; one that makes them anew each time does not keep them all.
constexpr std::size_t kMostTemplates = 16;

}  // namespace

ChatTemplate ChatTemplates::read(const std::string& source, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto found = read_.find(source); found != read_.end()) return found->second;
  if (read_.size() >= kMostTemplates) read_.clear();
  return read_.emplace(source, ChatTemplate(source, name)).first->second;
}

}  // namespace lockstep::tokenizer
