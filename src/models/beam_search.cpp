#include "beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::models {
namespace {

float divided(float score, std::size_t length, double penalty) {
  return score / static_cast<float>(std::pow(static_cast<double>(length), penalty));
}

}  // namespace

void RowBeams::finish(Beam beam) {
  beam.score = divided(beam.score, beam.tokens.size(), config_->length_penalty);
  const auto place = std::find_if(finished_.begin(), finished_.end(),
                                  [&](const Beam& other) { return other.score < beam.score; });
  finished_.insert(place, std::move(beam));
  if (finished_.size() > static_cast<std::size_t>(config_->num_beams)) finished_.pop_back();
}

/// The best running beam is judged as if it ended at its present length: its score can only sink.
bool RowBeams::can_improve() const {
  if (finished_.size() < static_cast<std::size_t>(config_->num_beams)) return true;
  if (config_->early_stopping || running_.empty()) return false;
  const Beam& best = running_.front();
  return divided(best.score, best.tokens.size(), config_->length_penalty) > finished_.back().score;
}

void RowBeams::step(const std::vector<Continuation>& best, std::vector<std::int64_t>& origins) {
  const auto beams = static_cast<std::size_t>(config_->num_beams);
  std::vector<Beam> next;
  origins.clear();
  for (std::size_t rank = 0; rank < best.size(); ++rank) {
    const auto& way = best[rank];
    Beam beam{running_.at(static_cast<std::size_t>(way.beam)).tokens, way.score};
    beam.tokens.push_back(way.token);
    const bool ends = way.token == config_->eos_token_id ||
                      beam.tokens.size() == static_cast<std::size_t>(config_->max_new_tokens);
    if (ends) {
      // An end that is not among the best as they stand is no better than a beam that goes on.
      if (rank < beams && !done_) finish(std::move(beam));
    } else if (next.size() < beams) {
      next.push_back(std::move(beam));
      origins.push_back(way.beam);
    }
  }
  running_ = std::move(next);
  done_ = done_ || running_.empty() || !can_improve();
}

}  // namespace lockstep::models
