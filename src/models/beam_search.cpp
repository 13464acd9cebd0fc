#include "models/beam_search.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::models {
namespace {

/// The score of what does not exist.
constexpr double kNothing = -1e9;

/// Subtracts 1e9 where `mask` is true.
at::Tensor without(const at::Tensor& scores, const at::Tensor& mask) {
  return scores + mask.to(at::kFloat) * kNothing;
}

std::int64_t element_at(const at::Tensor& table, std::int64_t row, std::int64_t column) {
  return table.const_data_ptr<std::int64_t>()[row * table.size(1) + column];
}

}  // namespace

BeamSearch::BeamSearch(const TokenModel& model, const GenerationInput& input,
                       const GenerationSettings& settings, const LogitsProcessors& processors)
    : model_(model),
      input_(input),
      settings_(settings),
      processors_(processors),
      draws_(settings.config(), input.tokens.size(0)),
      beams_(settings.beams()),
      kept_(beams_ * (1 + std::max<std::int64_t>(1, std::ssize(settings.config().eos_token_id)))),
      stopping_(settings.config().early_stopping.value_or(false)),
      length_penalty_(settings.config().length_penalty.value_or(1)) {
  for (const auto& text : begun_texts(input, settings)) {
    for (std::int64_t beam = 0; beam < beams_; ++beam) {
      running_.push_back(text);
      finished_.push_back(text.tokens);
    }
  }
  const std::int64_t rows = input.tokens.size(0);
  running_scores_ = at::zeros({rows, beams_}, at::kFloat);
  // The beams of a row begin alike: only the first one counts.
  running_scores_.slice(1, 1).fill_(kNothing);
  finished_scores_ = at::full({rows, beams_}, kNothing, at::kFloat);
  is_finished_ = at::zeros({rows, beams_}, at::kBool);
  has_hope_ = at::ones({rows, 1}, at::kBool);
  results_.resize(static_cast<std::size_t>(rows));
}

std::vector<std::vector<std::int64_t>> BeamSearch::run() {
  const auto options = input_.tokens.options();
  at::Tensor next = input_.tokens;
  std::vector<std::int64_t> origins;
  while (true) {
    at::Tensor scores = model_.next(next).to(at::kFloat).log_softmax(-1);
    if (steps_ == 0) {
      settings_.check_vocabulary(scores.size(-1));
      scores = scores.repeat_interleave(beams_, 0);
    }
    std::vector<const TextSoFar*> texts;
    for (const auto& text : running_) texts.push_back(&text);
    const auto best = best_of(processors_(scores, texts));
    finish(best);
    run_on(best, origins);
    ++steps_;
    update_hopes();
    const auto rows = drop_done(best.ends);
    if (rows.empty()) break;
    std::vector<std::int64_t> from, last;
    for (const auto row : rows) {
      for (std::int64_t beam = 0; beam < beams_; ++beam) {
        const auto origin = origins[static_cast<std::size_t>(row * beams_ + beam)];
        from.push_back(steps_ == 1 ? row : row * beams_ + origin);
      }
    }
    for (const auto& text : running_) last.push_back(text.tokens.back());
    model_.reorder(at::tensor(from, at::kLong).to(options.device()));
    next = at::tensor(last, at::kLong).to(options.device()).unsqueeze(1);
  }
  std::vector<std::vector<std::int64_t>> all;
  for (auto& row : results_) {
    for (auto& text : row) all.push_back(std::move(text));
  }
  return all;
}

BeamSearch::Continuations BeamSearch::best_of(const at::Tensor& scores) {
  Continuations best;
  best.vocabulary = scores.size(-1);
  const at::Tensor sums =
      (scores.view({rows(), beams_, best.vocabulary}) + running_scores_.to(scores.device()).unsqueeze(-1))
          .view({rows(), -1});
  const std::int64_t count = std::min(kept_, sums.size(-1));
  if (settings_.samples()) {
    std::vector<std::size_t> of_input;
    for (std::int64_t row = 0; row < rows(); ++row)
      of_input.push_back(running_[static_cast<std::size_t>(row * beams_)].row);
    const at::Tensor on_host = sums.cpu();
    const at::Tensor drawn = draws_(on_host.softmax(-1), count, of_input);
    const auto [sorted, order] = on_host.gather(1, drawn).sort(-1, /*descending=*/true);
    best.sums = sorted.contiguous();
    best.positions = drawn.gather(1, order).contiguous();
  } else {
    const auto [top, positions] = sums.topk(count);
    best.sums = top.cpu().contiguous();
    best.positions = positions.cpu().contiguous();
  }
  best.ends = at::zeros({rows(), count}, at::kBool);
  auto* ends = best.ends.data_ptr<bool>();
  for (std::int64_t row = 0; row < rows(); ++row) {
    const auto& text = running_[static_cast<std::size_t>(row * beams_)];
    for (std::int64_t rank = 0; rank < count; ++rank) {
      const auto token = element_at(best.positions, row, rank) % best.vocabulary;
      ends[row * count + rank] =
          settings_.config().eos_token_id.contains(token) || text.added() + 1 >= text.limits.most;
    }
  }
  return best;
}

std::vector<std::int64_t> BeamSearch::continued(std::int64_t row, const Continuations& best,
                                                std::int64_t rank) const {
  const auto position = element_at(best.positions, row, rank);
  auto tokens = running_[static_cast<std::size_t>(row * beams_ + position / best.vocabulary)].tokens;
  tokens.push_back(position % best.vocabulary);
  return tokens;
}

void BeamSearch::finish(const Continuations& best) {
  const std::int64_t count = best.sums.size(1);
  at::Tensor among_best = at::zeros({1, count}, at::kBool);
  among_best.narrow(1, 0, beams_).fill_(true);
  const at::Tensor ends_now = best.ends.logical_and(among_best);
  at::Tensor scores = best.sums / std::pow(static_cast<double>(steps_ + 1), length_penalty_);
  if (stopping_ == EarlyStopping(true)) scores = without(scores, is_finished_.all(-1, /*keepdim=*/true));
  scores = without(scores, has_hope_.logical_not());
  scores = without(scores, ends_now.logical_not());
  const at::Tensor all_scores = at::cat({finished_scores_, scores}, 1);
  const at::Tensor chosen = std::get<1>(all_scores.topk(beams_)).contiguous();
  finished_scores_ = all_scores.gather(1, chosen);
  is_finished_ = at::cat({is_finished_, ends_now}, 1).gather(1, chosen);
  std::vector<std::vector<std::int64_t>> texts;
  for (std::int64_t row = 0; row < rows(); ++row) {
    for (std::int64_t i = 0; i < beams_; ++i) {
      const auto position = element_at(chosen, row, i);
      texts.push_back(position < beams_ ? finished_[static_cast<std::size_t>(row * beams_ + position)]
                                        : continued(row, best, position - beams_));
    }
  }
  finished_ = std::move(texts);
}

void BeamSearch::run_on(const Continuations& best, std::vector<std::int64_t>& origins) {
  const at::Tensor scores = without(best.sums, best.ends);
  const at::Tensor chosen = std::get<1>(scores.topk(beams_)).contiguous();
  running_scores_ = scores.gather(1, chosen);
  origins.clear();
  std::vector<TextSoFar> texts = running_;
  for (std::int64_t row = 0; row < rows(); ++row) {
    for (std::int64_t beam = 0; beam < beams_; ++beam) {
      const auto rank = element_at(chosen, row, beam);
      texts[static_cast<std::size_t>(row * beams_ + beam)].tokens = continued(row, best, rank);
      origins.push_back(element_at(best.positions, row, rank) / best.vocabulary);
    }
  }
  running_ = std::move(texts);
}

/// Compares the best running text, as if it ended at its present or its greatest length, with the worst
/// finished one.
void BeamSearch::update_hopes() {
  at::Tensor divisors = at::empty({rows(), 1}, at::kFloat);
  for (std::int64_t row = 0; row < rows(); ++row) {
    const auto& text = running_[static_cast<std::size_t>(row * beams_)];
    const bool longest = stopping_ == EarlyStopping::never() && length_penalty_ > 0;
    const auto length = static_cast<double>(longest ? text.limits.most : steps_);
    divisors[row][0] = std::pow(length, length_penalty_);
  }
  const at::Tensor best_possible = running_scores_.narrow(1, 0, 1) / divisors;
  const at::Tensor worst =
      at::where(is_finished_, finished_scores_.amin(1, /*keepdim=*/true), at::full({}, kNothing, at::kFloat));
  has_hope_ = has_hope_.logical_and((best_possible > worst).any(-1, /*keepdim=*/true));
}

bool BeamSearch::is_done(std::int64_t row, const at::Tensor& ends) const {
  const bool is_full = stopping_ == EarlyStopping(true) && is_finished_[row].all().item<bool>();
  return !has_hope_[row].item<bool>() || is_full || ends[row].all().item<bool>();
}

std::vector<std::int64_t> BeamSearch::drop_done(const at::Tensor& ends) {
  std::vector<std::int64_t> rest;
  std::vector<TextSoFar> running;
  std::vector<std::vector<std::int64_t>> finished;
  for (std::int64_t row = 0; row < rows(); ++row) {
    const auto first = row * beams_;
    if (!is_done(row, ends)) {
      rest.push_back(row);
      running.insert(running.end(), running_.begin() + first, running_.begin() + first + beams_);
      finished.insert(finished.end(), finished_.begin() + first, finished_.begin() + first + beams_);
      continue;
    }
    auto& results = results_[running_[static_cast<std::size_t>(first)].row];
    results.assign(finished_.begin() + first, finished_.begin() + first + settings_.texts_per_row());
  }
  const at::Tensor index = at::tensor(rest, at::kLong);
  for (auto* table : {&running_scores_, &finished_scores_, &is_finished_, &has_hope_})
    *table = table->index_select(0, index);
  running_ = std::move(running);
  finished_ = std::move(finished);
  return rest;
}

}  // namespace lockstep::models
