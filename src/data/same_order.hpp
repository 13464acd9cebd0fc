#pragma once

#include <string>

namespace lockstep::data {

/// Whether a saved Sampler::kind() is that of a sampler, whose kind may have details behind a comma. Earlier
/// versions did not save them, nor, at first, the kind: what is not known is taken to be the same.
inline bool is_same_order(const std::string& saved, const std::string& now) {
  return saved.empty() || saved == now || saved == now.substr(0, now.find(", "));
}

}  // namespace lockstep::data
