#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/generation_loop.hpp"
#include "models/logits_processors.hpp"

namespace lockstep::models {

/// Beam search over all rows of a batch, with the arithmetic of transformers' _beam_search, step by step in
/// float32. Each row has num_beams running texts and num_beams slots for the best finished ones; a slot or
/// a running text that does not exist yet has the score -1e9. A step adds the log-probabilities of all next
/// tokens to the scores of the running texts and takes the best continuations: num_beams, and as many again
/// for each end token, since that many may end here. Those that end, if they are among the best num_beams,
/// compete for the slots, by their sum divided by (new tokens)^length_penalty; the best others run on. A row
/// is done when early_stopping says so, or when all continuations end. Rows that are done leave the model:
/// unlike in transformers, where they stay, but as there without effect on the others, so that a row of a
/// batch has the texts that it has alone.
class BeamSearch {
 public:
  BeamSearch(const TokenModel& model, const GenerationInput& input, const GenerationSettings& settings,
             const LogitsProcessors& processors);

  /// The best num_return_sequences texts of each row, best first.
  std::vector<std::vector<std::int64_t>> run();

 private:
  /// The best continuations of each row, best first: sums, and positions in [beams * vocabulary].
  struct Continuations {
    at::Tensor sums, positions;
    /// Which of them end a text.
    at::Tensor ends;
    std::int64_t vocabulary = 0;
  };

  std::int64_t rows() const { return std::ssize(running_) / beams_; }
  Continuations best_of(const at::Tensor& scores);
  /// The tokens of one of a row's continuations.
  std::vector<std::int64_t> continued(std::int64_t row, const Continuations& best, std::int64_t rank) const;
  void finish(const Continuations& best);
  /// Sets the running texts, and `origins` to the beam that each continues.
  void run_on(const Continuations& best, std::vector<std::int64_t>& origins);
  void update_hopes();
  bool is_done(std::int64_t row, const at::Tensor& ends) const;
  /// Takes out the rows that are done, and keeps their texts. Returns the numbers of the others.
  std::vector<std::int64_t> drop_done(const at::Tensor& ends);

  const TokenModel& model_;
  const GenerationInput& input_;
  const GenerationSettings& settings_;
  const LogitsProcessors& processors_;
  Draws draws_;
  std::int64_t beams_, kept_;
  EarlyStopping stopping_;
  double length_penalty_;
  std::int64_t steps_ = 0;

  /// Beams of one row after another.
  std::vector<TextSoFar> running_;
  std::vector<std::vector<std::int64_t>> finished_;
  /// [rows, beams]
  at::Tensor running_scores_, finished_scores_, is_finished_;
  /// [rows, 1]: whether a running text may still be better than a finished one.
  at::Tensor has_hope_;
  /// By the input's row.
  std::vector<std::vector<std::vector<std::int64_t>>> results_;
};

}  // namespace lockstep::models
