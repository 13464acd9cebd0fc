#include "train/mlflow/server_tracker.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <string_view>

#include "core/option_values.hpp"
#include "core/runtime/stop_signals.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"
#include "train/mlflow/value_sender.hpp"

namespace lockstep::mlflow {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestName = 250;
constexpr std::size_t kLongestParameter = 6000;
constexpr std::size_t kMostValuesOfLine = 500;

/// As Python writes them, which is what MLflow's own client sends.
std::string text_of(const HyperParameter& parameter) {
  if (const auto* flag = std::get_if<bool>(&parameter)) return *flag ? "True" : "False";
  if (const auto* whole = std::get_if<std::int64_t>(&parameter)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&parameter)) return number_text(*number);
  return utf8_text(std::get<std::string>(parameter));
}

/// Whole characters of UTF-8.
std::string cut(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
  text.resize(most);
  return text;
}

class ServerTracker final : public Tracker {
 public:
  ServerTracker(const std::filesystem::path& folder, const MlflowOptions& options)
      : sender_(folder, options), closing_time_(options.closing_time) {}

  ~ServerTracker() override {
    if (is_finished_ || !is_used_) return;
    try {
      end(StopSignals::received() != 0 ? "KILLED" : "FAILED");
    } catch (const std::exception& error) {
      std::cerr << fmt::format("lockstep: the end of a run could not be told to MLflow: {}\n", error.what())
                << std::flush;
    }
  }

  void log(const LogValues& values, std::int64_t step) override {
    for (std::size_t at = 0; at < values.size(); at += kMostValuesOfLine) {
      json metrics = json::array();
      for (std::size_t i = at; i < std::min(at + kMostValuesOfLine, values.size()); ++i)
        metrics.push_back(json::array({allowed_name(values[i].first), number_or_text(values[i].second)}));
      add({{"metrics", std::move(metrics)}, {"step", step}, {"time", now_in_milliseconds()}});
    }
  }
  void log_text(const std::string&, const std::string&, std::int64_t) override {}
  void log_histogram(const std::string&, const Histogram&, std::int64_t) override {}
  void log_hyperparameters(const HyperParameters& parameters, const std::vector<std::string>&) override {
    json params = json::array();
    for (const auto& [name, value] : parameters)
      params.push_back(json::array({allowed_name(name), cut(text_of(value), kLongestParameter)}));
    if (!params.empty()) add({{"params", std::move(params)}});
  }
  void resume_at(std::int64_t step) override {
    if (step <= 0) {
      sender_.add({{"new_run", true}});
    } else {
      sender_.add({{"resume_at", step}});
    }
  }
  void finish() override {
    is_finished_ = true;
    end(StopSignals::received() != 0 ? "KILLED" : "FINISHED");
  }

 private:
  void add(const json& line) {
    is_used_ = true;
    sender_.add(line);
  }

  void end(const char* status) {
    sender_.add({{"status", status}, {"time", now_in_milliseconds()}});
    if (const auto left = sender_.close(closing_time_); left > 0) {
      std::cerr
          << fmt::format(
                 "lockstep: MLflow has not got everything: {} bytes are kept in '{}', and sent by the next "
                 "training that uses this folder.\n",
                 left, sender_.queue().path().string())
          << std::flush;
    }
  }

  ValueSender sender_;
  std::chrono::milliseconds closing_time_;
  bool is_used_ = false;
  bool is_finished_ = false;
};

}  // namespace

std::string allowed_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.: ";
  std::string allowed;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    std::string part = name.substr(at, end - at);
    std::ranges::replace_if(
        part, [&](char letter) { return kAllowed.find(letter) == std::string_view::npos; }, '_');
    // MLflow may use names as paths.
    if (part == "." || part == "..") part.replace(0, part.size(), part.size(), '_');
    if (!part.empty()) allowed += (allowed.empty() ? "" : "/") + part;
    at = end + 1;
  }
  allowed.resize(std::min(allowed.size(), kLongestName));
  while (allowed.ends_with('/')) allowed.pop_back();
  return allowed.empty() ? "_" : allowed;
}

std::unique_ptr<Tracker> make_server_tracker(const std::filesystem::path& folder,
                                             const MlflowOptions& options) {
  return std::make_unique<ServerTracker>(folder, options);
}

}  // namespace lockstep::mlflow
