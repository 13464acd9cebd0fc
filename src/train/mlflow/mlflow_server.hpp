#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/mlflow/http_client.hpp"

namespace lockstep::mlflow {

/// The server refused a request, and will do so again.
class Refused : public Error {
 public:
  using Error::Error;
};

/// A point of a metric as the server has it.
struct StoredPoint {
  std::int64_t step = 0;
  double value = 0;
};

/// A value as MLflow's JSON has it: "NaN", "Infinity" and "-Infinity" are texts.
nlohmann::json number_or_text(double value);
double number_in(const nlohmann::json& value);

/// The same number for values that the server stores alike: an infinity as the largest double, all NaNs.
std::uint64_t identity_of(double value);

/// MLflow's REST interface 2.0 (mlflow.org/docs/latest/rest-api.html), as far as a tracker needs it. Every
/// method throws NoAnswer if there is no answer of MLflow's (a proxy's page is none), or one that says
/// "later" (status 429, 5xx, or a failed authentication), and Refused with the server's words. *Local*; one
/// thread at a time.
class MlflowServer {
 public:
  explicit MlflowServer(const MlflowOptions& options) : http_(options) {}

  /// The experiment's id; it is created if it does not exist.
  std::string experiment(const std::string& name);
  /// Creates a run, and returns its id.
  std::string create_run(const nlohmann::json& request);
  /// The id of the run whose tag `lockstep.key` has this value, if there is one.
  std::optional<std::string> find_run(const std::string& experiment_id, const std::string& key);
  /// Status RUNNING, FINISHED, FAILED or KILLED; `end_time` in milliseconds since 1970, for the last three.
  void update_run(const std::string& run_id, const std::string& status, std::optional<std::int64_t> end_time);
  /// At most 1000 metrics, parameters and tags in all, of which 100 parameters and 100 tags.
  void log_batch(const nlohmann::json& request);
  /// All points of a metric; none if the run does not have it.
  std::vector<StoredPoint> history(const std::string& run_id, const std::string& name);

  /// Any thread.
  void abort() noexcept { http_.abort(); }

 private:
  nlohmann::json ask(const std::string& call, const nlohmann::json* request);
  nlohmann::json get(const std::string& call) { return ask(call, nullptr); }
  nlohmann::json post(const std::string& call, const nlohmann::json& request) { return ask(call, &request); }

  HttpClient http_;
};

}  // namespace lockstep::mlflow
