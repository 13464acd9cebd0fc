#pragma once

#include <chrono>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// What tells the processes of one launcher's job from all others of the host, even when their parents are
/// gone and they have made sessions of their own: a random word in LOCKSTEP_LAUNCHERS, which children
/// inherit. A launcher that a rank starts puts its own word behind, so that the outer one still knows its
/// own.
class JobTag {
 public:
  /// A fresh word, behind those that `environment` has already.
  explicit JobTag(const Environment& environment);

  void add_to(Environment& environment) const;
  const std::string& word() const noexcept { return word_; }

 private:
  std::string word_;
  std::string all_;
};

/// SIGKILL to every process of this user whose environment has the word, again and again until there is none,
/// for `limit` at most: what is killed may have started another one. The calling process and orphan reapers
/// are left out. A process that has wiped its environment is not found.
void kill_tagged(const std::string& word, std::chrono::milliseconds limit);

}  // namespace lockstep::launch
