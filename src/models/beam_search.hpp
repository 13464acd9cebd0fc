#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/models/generation.hpp"

namespace lockstep::models {

/// One text that is followed: what was added to the prompt, and the sum of its log-probabilities.
struct Beam {
  std::vector<std::int64_t> tokens;
  float score = 0;
};

/// A way to go on: a beam of the row, a token, and the sum that results.
struct Continuation {
  std::int64_t beam;
  std::int64_t token;
  float score;
};

/// The beams of one row of a batch. Each step it is given the best continuations of its running beams, best
/// first, twice as many as it follows: so many may end here that the rest still fills the beams.
class RowBeams {
 public:
  explicit RowBeams(const GenerationConfig& config) : config_(&config), running_(1) {}

  /// Takes the step; `origins` gets, for each running beam after it, the beam that it goes on from.
  void step(const std::vector<Continuation>& best, std::vector<std::int64_t>& origins);
  /// Whether nothing can change what best() is.
  bool done() const noexcept { return done_; }
  const std::vector<Beam>& running() const noexcept { return running_; }
  /// The best finished text.
  const std::vector<std::int64_t>& best() const { return finished_.front().tokens; }

 private:
  void finish(Beam beam);
  bool can_improve() const;

  const GenerationConfig* config_;
  std::vector<Beam> running_;
  /// Best first, scores divided by the length to the penalty.
  std::vector<Beam> finished_;
  bool done_ = false;
};

}  // namespace lockstep::models
