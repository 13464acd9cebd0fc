#include "train/mlflow/mlflow_server.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/json_text.hpp"

namespace lockstep::mlflow {
namespace {

using nlohmann::json;

constexpr const char* kPath = "/api/2.0/mlflow/";
constexpr const char* kMissing = "RESOURCE_DOES_NOT_EXIST";
constexpr const char* kExists = "RESOURCE_ALREADY_EXISTS";
constexpr std::size_t kLongestReason = 500;

/// The server says that there is no such thing, or that there is one already.
class OtherState : public Refused {
 public:
  OtherState(const std::string& text, std::string code) : Refused(text), code_(std::move(code)) {}
  const std::string& code() const noexcept { return code_; }

 private:
  std::string code_;
};

/// The server's own words, if there are any.
std::string reason_in(const HttpAnswer& answer, const json& content) {
  std::string text = content.is_object() && content.contains("message") && content["message"].is_string()
                         ? content["message"].get<std::string>()
                         : answer.body;
  if (text.size() > kLongestReason) text = text.substr(0, kLongestReason) + " ...";
  return fmt::format("HTTP status {}{}{}", answer.status, text.empty() ? "" : ": ", text);
}

std::string code_in(const json& content) {
  const bool has_code =
      content.is_object() && content.contains("error_code") && content["error_code"].is_string();
  return has_code ? content["error_code"].get<std::string>() : "";
}

bool is_temporary(long status) {
  return status == 401 || status == 403 || status == 408 || status == 429 || status >= 500;
}

/// Whether a request was refused, by MLflow or by a gateway that does not like what is in it. A page without
/// MLflow's error code that knows no such place, or is something else, comes from a proxy that does not find
/// the server while it restarts, or asks for a log-in.
bool is_refusal(const HttpAnswer& answer, const std::string& code) {
  constexpr long kNotFound = 404, kNotAllowed = 405;
  const bool is_elsewhere = answer.status < 400 || answer.status == kNotFound || answer.status == kNotAllowed;
  return !is_temporary(answer.status) && (!code.empty() || !is_elsewhere);
}

/// The text at a place of an answer. Throws Refused if it is not there.
std::string text_at(const json& answer, const char* place) {
  const json::json_pointer pointer(place);
  if (!answer.contains(pointer) || !answer.at(pointer).is_string())
    throw Refused(fmt::format("an answer has no text at {}: is this an MLflow server?", place));
  return answer.at(pointer).get<std::string>();
}

}  // namespace

std::uint64_t identity_of(double value) {
  constexpr double kMost = std::numeric_limits<double>::max();
  if (std::isnan(value)) return std::bit_cast<std::uint64_t>(std::numeric_limits<double>::quiet_NaN());
  // Adding 0 drops the sign of -0.
  return std::bit_cast<std::uint64_t>(std::clamp(value, -kMost, kMost) + 0.0);
}

double number_in(const json& value) {
  if (value.is_number()) return value.get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value == "Infinity") return kInfinity;
  return value == "-Infinity" ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
}

json number_or_text(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

json MlflowServer::ask(const std::string& call, const json* request) {
  const std::string body = request == nullptr ? "" : json_text(*request);
  const HttpAnswer answer = http_.ask(kPath + call, request == nullptr ? nullptr : &body);
  json content = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (answer.status >= 200 && answer.status < 300 && content.is_object()) return content;
  const std::string reason = reason_in(answer, content);
  const std::string code = code_in(content);
  if (!is_refusal(answer, code)) {
    const bool may_be_done = answer.status < 300 || answer.status >= 500;
    throw NoAnswer(reason, may_be_done);
  }
  for (const std::string known : {kMissing, kExists}) {
    if (code == known) throw OtherState(reason, known);
  }
  throw Refused(reason);
}

std::string MlflowServer::experiment(const std::string& name) {
  const auto find = [&] {
    const json answer = get("experiments/get-by-name?experiment_name=" + http_.escaped(name));
    if (answer.contains(json::json_pointer("/experiment/lifecycle_stage")) &&
        answer["experiment"]["lifecycle_stage"] == "deleted")
      throw Refused(fmt::format("the experiment '{}' was deleted: restore it, or name another one", name));
    return text_at(answer, "/experiment/experiment_id");
  };
  try {
    return find();
  } catch (const OtherState& state) {
    if (state.code() != kMissing) throw;
  }
  try {
    return text_at(post("experiments/create", {{"name", name}}), "/experiment_id");
  } catch (const OtherState& state) {
    // Another process was faster.
    if (state.code() != kExists) throw;
    return find();
  }
}

std::string MlflowServer::create_run(const json& request) {
  return text_at(post("runs/create", request), "/run/info/run_id");
}

std::optional<std::string> MlflowServer::find_run(const std::string& experiment_id, const std::string& key) {
  const json answer = post("runs/search", {{"experiment_ids", {experiment_id}},
                                           {"filter", fmt::format("tags.`lockstep.key` = '{}'", key)},
                                           {"max_results", 1}});
  const auto runs = answer.find("runs");
  if (runs == answer.end() || runs->empty()) return std::nullopt;
  return text_at(answer, "/runs/0/info/run_id");
}

void MlflowServer::update_run(const std::string& run_id, const std::string& status,
                              std::optional<std::int64_t> end_time) {
  json request{{"run_id", run_id}, {"status", status}};
  if (end_time) request["end_time"] = *end_time;
  post("runs/update", request);
}

void MlflowServer::log_batch(const json& request) { post("runs/log-batch", request); }

std::vector<StoredPoint> MlflowServer::history(const std::string& run_id, const std::string& name) {
  std::vector<StoredPoint> points;
  const std::string call = fmt::format("metrics/get-history?run_id={}&metric_key={}&max_results=10000",
                                       http_.escaped(run_id), http_.escaped(name));
  try {
    for (std::string token;;) {
      const json answer = get(token.empty() ? call : call + "&page_token=" + http_.escaped(token));
      for (const auto& point : answer.value("metrics", json::array())) {
        // A step of 0 may be left out, as protobuf does with defaults; large ones may be texts.
        const json step = point.value("step", json(0));
        points.push_back({step.is_string() ? std::stoll(step.get<std::string>()) : step.get<std::int64_t>(),
                          number_in(point.value("value", json(0.0)))});
      }
      token = answer.value("next_page_token", "");
      if (token.empty()) return points;
    }
  } catch (const OtherState& state) {
    if (state.code() != kMissing) throw;
  } catch (const json::exception& error) {
    throw Refused(fmt::format("the history of '{}' cannot be read: {}", name, error.what()));
  } catch (const std::logic_error& error) {
    throw Refused(fmt::format("the history of '{}' cannot be read: {}", name, error.what()));
  }
  return points;
}

}  // namespace lockstep::mlflow
