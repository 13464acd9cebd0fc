#include "lockstep/optim/lr_scheduler.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::optim {
namespace {

using nlohmann::json;

template <class Read>
void read_state(const std::string& text, const Read& read) {
  try {
    read(json::parse(text));
  } catch (const json::exception& error) {
    throw DataError(std::string("the state of a learning rate scheduler cannot be read: ") + error.what());
  }
}

/// Of the first group. transformers takes the optimizer's default, which groups need not have in C++.
double full_rate(const torch::optim::Optimizer& optimizer) {
  const auto& groups = optimizer.param_groups();
  return groups.empty() ? 0 : groups.front().options().get_lr();
}

}  // namespace

std::vector<double> Scheduler::last_lr() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_->param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void Scheduler::set_lr(std::size_t group, double rate) {
  optimizer_->param_groups().at(group).options().set_lr(rate);
}

std::size_t Scheduler::groups() const { return optimizer_->param_groups().size(); }

LrScheduler::LrScheduler(torch::optim::Optimizer& optimizer, const ScheduleOptions& options)
    : LrScheduler(optimizer, make_schedule(options, full_rate(optimizer))) {}

LrScheduler::LrScheduler(torch::optim::Optimizer& optimizer, Schedule schedule)
    : Scheduler(optimizer), schedule_(std::move(schedule)), full_rates_(last_lr()) {
  set_rates();
}

void LrScheduler::set_rates() {
  if (groups() != full_rates_.size()) {
    throw UsageError(fmt::format(
        "LrScheduler: the optimizer has {} parameter groups, but had {} when the scheduler was made: "
        "make it after the last group has been added",
        groups(), full_rates_.size()));
  }
  const double factor = schedule_(steps_);
  for (std::size_t i = 0; i < full_rates_.size(); ++i) set_lr(i, full_rates_[i] * factor);
}

void LrScheduler::step() {
  ++steps_;
  set_rates();
}

std::string LrScheduler::state_dict() const {
  return json_text(json{{"steps", steps_}, {"full_rates", full_rates_}});
}

void LrScheduler::load_state_dict(const std::string& text) {
  read_state(text, [this](const json& document) {
    const auto steps = document.at("steps").get<std::int64_t>();
    auto rates = document.at("full_rates").get<std::vector<double>>();
    if (rates.size() != groups() || steps < 0) {
      throw DataError(
          fmt::format("the state of a learning rate scheduler is for {} parameter groups after {} steps, but "
                      "the optimizer has {} groups.",
                      rates.size(), steps, groups()));
    }
    steps_ = steps;
    full_rates_ = std::move(rates);
  });
  set_rates();
}

ReduceLrOnPlateau::ReduceLrOnPlateau(torch::optim::Optimizer& optimizer, const PlateauOptions& options)
    : Scheduler(optimizer), rule_(options) {}

void ReduceLrOnPlateau::step(double metric) {
  if (!rule_.step(metric)) return;
  const auto rates = last_lr();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double lower = std::max(rates[i] * rule_.options().factor, rule_.options().min_lr);
    if (rates[i] - lower > rule_.options().eps) set_lr(i, lower);
  }
}

std::string ReduceLrOnPlateau::state_dict() const {
  // JSON has no infinity: null is that of before the first metric.
  const bool is_first = rule_.best == PlateauRule(rule_.options()).best;
  return json_text(json{{"best", is_first                    ? json()
                                 : std::isfinite(rule_.best) ? json(rule_.best)
                                                             : json(rule_.best > 0 ? "inf" : "-inf")},
                        {"bad_epochs", rule_.bad_epochs},
                        {"cooldown_left", rule_.cooldown_left},
                        {"rates", last_lr()}});
}

void ReduceLrOnPlateau::load_state_dict(const std::string& text) {
  read_state(text, [this](const json& document) {
    const auto rates = document.at("rates").get<std::vector<double>>();
    if (rates.size() != groups())
      throw DataError(
          fmt::format("the state of ReduceLrOnPlateau is for {} parameter groups, but the optimizer has {}.",
                      rates.size(), groups()));
    PlateauRule rule(rule_.options());
    const json& best = document.at("best");
    if (best.is_number()) rule.best = best.get<double>();
    if (best.is_string()) rule.best = (best == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
    rule.bad_epochs = document.at("bad_epochs").get<std::int64_t>();
    rule.cooldown_left = document.at("cooldown_left").get<std::int64_t>();
    rule_ = rule;
    for (std::size_t i = 0; i < rates.size(); ++i) set_lr(i, rates[i]);
  });
}

}  // namespace lockstep::optim
