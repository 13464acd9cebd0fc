#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/models/generation.hpp"

namespace lockstep::models {

/// One beam: the tokens added to the prompt, and the sum of their log-probabilities.
struct Beam {
  std::vector<std::int64_t> tokens;
  float score = 0;
};

/// A continuation: a beam of the row, a token, and the resulting sum.
struct Continuation {
  std::int64_t beam;
  std::int64_t token;
  float score;
};

/// The beams of one row of a batch. Each step gets the best continuations of its running beams, best first,
/// as many as there are beams, and as many again for each end token: even if these end here, the others fill
/// the beams.
class RowBeams {
 public:
  explicit RowBeams(const GenerationConfig& config) : config_(&config), running_(1) {}

  /// Does a step; sets `origins` to the previous beam of each beam that runs after it.
  void step(const std::vector<Continuation>& best, std::vector<std::int64_t>& origins);
  /// Whether best() can no longer change.
  bool done() const noexcept { return done_; }
  const std::vector<Beam>& running() const noexcept { return running_; }
  /// The best finished text.
  const std::vector<std::int64_t>& best() const { return finished_.front().tokens; }

 private:
  void finish(Beam beam);
  bool can_improve() const;

  const GenerationConfig* config_;
  std::vector<Beam> running_;
  /// Best first; scores are divided by the length to the power of length_penalty.
  std::vector<Beam> finished_;
  bool done_ = false;
};

}  // namespace lockstep::models
