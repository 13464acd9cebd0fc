#pragma once

#include <map>
#include <mutex>
#include <string>

#include "lockstep/tokenizers/chat_template.hpp"

namespace lockstep::tokenizer {

/// The templates that a tokenizer has read, by their sources. Any number of threads may use it.
class ChatTemplates {
 public:
  /// Throws DataError for a source that is no template; `name` is its name in errors.
  ChatTemplate read(const std::string& source, const std::string& name);

 private:
  std::mutex mutex_;
  std::map<std::string, ChatTemplate> read_;
};

}  // namespace lockstep::tokenizer
