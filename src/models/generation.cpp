#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "beam_search.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/generation.hpp"

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

/// The best running beam is scored as if it ended at its current length: its score can only decrease.
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
    const bool ends = config_->eos_token_id.contains(way.token) ||
                      beam.tokens.size() == static_cast<std::size_t>(config_->max_new_tokens);
    if (ends) {
      // An end that is not among the best `beams` continuations is not better than a running beam.
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

namespace lockstep::models {
namespace {

void check(const at::Tensor& tokens, const GenerationConfig& config) {
  if (tokens.dim() != 2 || tokens.size(0) < 1 || tokens.size(1) < 1 || tokens.scalar_type() != at::kLong) {
    throw UsageError("generate takes int64 tokens [rows, length] of at least one row and token; got " +
                     c10::str(tokens.scalar_type()) + " " + c10::str(tokens.sizes()));
  }
  if (config.max_new_tokens < 1 || config.num_beams < 1) {
    throw UsageError("generate needs max_new_tokens and num_beams of at least 1");
  }
  if (config.do_sample && config.num_beams > 1) {
    throw UsageError("generate follows beams or draws (do_sample), not both");
  }
  if (config.temperature <= 0 || config.top_k < 0 || config.top_p <= 0 || config.top_p > 1) {
    throw UsageError("generate needs temperature > 0, top_k >= 0 and 0 < top_p <= 1");
  }
}

/// Masks the tokens outside the top_p probability mass.
at::Tensor within_top_p(const at::Tensor& logits, double top_p) {
  const auto [sorted, order] = logits.sort(-1);
  at::Tensor out = sorted.softmax(-1).cumsum(-1) <= 1 - top_p;
  out.select(-1, -1).fill_(false);
  return logits.masked_fill(at::zeros_like(out).scatter(-1, order, out), -INFINITY);
}

at::Tensor drawn(at::Tensor logits, const GenerationConfig& config, at::Generator& generator) {
  logits = logits.to(at::kFloat).cpu() / config.temperature;
  if (config.top_k > 0 && config.top_k < logits.size(-1)) {
    const auto least = std::get<0>(logits.topk(config.top_k)).select(-1, -1).unsqueeze(-1);
    logits = logits.masked_fill(logits < least, -INFINITY);
  }
  if (config.top_p < 1) logits = within_top_p(logits, config.top_p);
  return logits.softmax(-1).multinomial(1, false, generator).squeeze(-1);
}

std::int64_t padding_of(const GenerationConfig& config) {
  return config.pad_token_id.value_or(config.eos_token_id.empty() ? 0 : config.eos_token_id.front());
}

/// The only token that may follow `length` tokens of `prompt` and new ones, if it is forced.
std::optional<std::int64_t> forced_token(const GenerationConfig& config, std::int64_t prompt,
                                         std::int64_t length) {
  if (config.forced_eos_token_id && length == prompt + config.max_new_tokens - 1)
    return config.forced_eos_token_id;
  return length == 1 ? config.forced_bos_token_id : std::nullopt;
}

/// The logits of the token after `tokens`; all but a forced one are impossible.
at::Tensor next_logits(const TokenModel& model, const at::Tensor& tokens,
                       const std::optional<std::int64_t>& forced) {
  const at::Tensor logits = model.next(tokens);
  if (!forced) return logits;
  if (*forced < 0 || *forced >= logits.size(-1)) {
    throw UsageError(
        fmt::format("generate is to force token {}, but the model has {} tokens", *forced, logits.size(-1)));
  }
  at::Tensor only = at::full_like(logits, -INFINITY);
  only.select(-1, *forced).zero_();
  return only;
}

at::Tensor one_text_a_row(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(config.seed);
  at::Tensor all = tokens;
  at::Tensor last = tokens;
  const at::Tensor ends = at::tensor(config.eos_token_id, tokens.options());
  at::Tensor ended = at::zeros({tokens.size(0)}, tokens.options().dtype(at::kBool));
  for (std::int64_t i = 0; i < config.max_new_tokens && !ended.all().item<bool>(); ++i) {
    const at::Tensor logits = next_logits(model, last, forced_token(config, tokens.size(1), all.size(1)));
    at::Tensor token =
        config.do_sample ? drawn(logits, config, generator).to(tokens.device()) : logits.argmax(-1);
    token = token.masked_fill(ended, padding_of(config));
    ended = ended.logical_or(at::isin(token, ends));
    last = token.unsqueeze(1);
    all = at::cat({all, last}, 1);
  }
  return all;
}

/// Beams of all rows of a batch; the model's rows are the rows' running beams, one row after another.
class BeamSearch {
 public:
  BeamSearch(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config)
      : model_(model), prompt_(tokens), config_(config) {
    rows_.assign(static_cast<std::size_t>(tokens.size(0)), RowBeams(config));
  }

  at::Tensor run() {
    at::Tensor next = prompt_;
    const std::int64_t prompt = prompt_.size(1);
    for (std::int64_t i = 0; i < config_.max_new_tokens && !done(); ++i) {
      const auto forced = forced_token(config_, prompt, prompt + i);
      const at::Tensor log_probs = next_logits(model_, next, forced).to(at::kFloat).log_softmax(-1).cpu();
      next = step(log_probs);
    }
    return texts();
  }

 private:
  bool done() const {
    return std::all_of(rows_.begin(), rows_.end(), [](const RowBeams& row) { return row.done(); });
  }

  /// Returns the last tokens of the running beams. A finished row keeps its place in the batch until all have
  /// finished.
  at::Tensor step(const at::Tensor& log_probs) {
    std::vector<std::int64_t> origins, tokens, from;
    std::int64_t first = 0;
    for (auto& row : rows_) {
      const auto beams = static_cast<std::int64_t>(row.running().size());
      row.step(best_of(row, log_probs.narrow(0, first, beams)), from);
      for (std::size_t i = 0; i < from.size(); ++i) {
        origins.push_back(first + from[i]);
        tokens.push_back(row.running()[i].tokens.back());
      }
      first += beams;
    }
    if (origins.empty()) return {};
    const auto options = prompt_.options();
    model_.reorder(at::tensor(origins, at::kLong).to(options.device()));
    return at::tensor(tokens, at::kLong).to(options.device()).unsqueeze(1);
  }

  std::vector<Continuation> best_of(const RowBeams& row, const at::Tensor& log_probs) const {
    const std::int64_t beams = log_probs.size(0);
    const std::int64_t vocabulary = log_probs.size(1);
    if (beams == 0) return {};
    std::vector<float> scores;
    for (const auto& beam : row.running()) scores.push_back(beam.score);
    const at::Tensor sums = (log_probs + at::tensor(scores, at::kFloat).unsqueeze(1)).flatten();
    const auto ends = std::max<std::int64_t>(1, std::ssize(config_.eos_token_id));
    const auto [best, places] = sums.topk(std::min((1 + ends) * config_.num_beams, sums.numel()));
    std::vector<Continuation> ways;
    for (std::int64_t i = 0; i < best.numel() && best[i].item<float>() > -INFINITY; ++i) {
      const auto place = places[i].item<std::int64_t>();
      ways.push_back({place / vocabulary, place % vocabulary, best[i].item<float>()});
    }
    return ways;
  }

  at::Tensor texts() const {
    std::size_t longest = 0;
    for (const auto& row : rows_) longest = std::max(longest, row.best().size());
    at::Tensor added =
        at::full({prompt_.size(0), static_cast<std::int64_t>(longest)}, padding_of(config_), at::kLong);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto& text = rows_[i].best();
      const auto length = static_cast<std::int64_t>(text.size());
      added[static_cast<std::int64_t>(i)].narrow(0, 0, length).copy_(at::tensor(text, at::kLong));
    }
    return at::cat({prompt_, added.to(prompt_.device())}, 1);
  }

  const TokenModel& model_;
  at::Tensor prompt_;
  const GenerationConfig& config_;
  std::vector<RowBeams> rows_;
};

}  // namespace

at::Tensor generate(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config) {
  check(tokens, config);
  const at::NoGradGuard no_grad;
  if (config.num_beams > 1) return BeamSearch(model, tokens, config).run();
  return one_text_a_row(model, tokens, config);
}

}  // namespace lockstep::models
