#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/core/environment.hpp"
#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// Which run of which MLflow server gets the values.
struct MlflowOptions {
  /// "http://host:5000" or "https://...".
  std::string tracking_uri = {};
  /// The experiment by its name, which is created if it does not exist; or by its id, which takes precedence.
  std::string experiment_name = "Default";
  std::string experiment_id = {};
  /// An existing run to continue. Empty: the one that the tracker's folder belongs to, otherwise a new one.
  std::string run_id = {};
  /// The name of a new run; empty: the server invents one.
  std::string run_name = {};
  /// Authentication: a bearer token, or a name with a password.
  std::string token = {};
  std::string username = {};
  std::string password = {};
  /// A file of certificates to check the server's by, instead of the system's; or no check.
  std::string server_certificates = {};
  bool insecure_tls = false;
  /// How long finish() waits for values that have not been sent.
  std::chrono::milliseconds closing_time{10'000};
};

/// What MLflow's own variables say: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, MLFLOW_EXPERIMENT_ID,
/// MLFLOW_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME,
/// MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_SERVER_CERT_PATH and MLFLOW_TRACKING_INSECURE_TLS. Without a
/// name, a run is named after `folder`, or after the folder above it if that is called "runs". *Local*.
/// Throws UsageError if there is no tracking URI, or one that is not of HTTP.
MlflowOptions mlflow_options(const Environment& environment, const std::filesystem::path& folder);

/// Sends values, hyper-parameters and the run's end to an MLflow server, by its REST interface (version 2.0).
/// Texts and histograms are ignored: MLflow takes them as files only.
///
/// log() writes one line to `folder`/mlflow-unsent.jsonl and returns: a thread of the tracker sends what is
/// there, whatever the server does. If it does not answer, the training goes on, a line on standard error
/// says so, and the values are sent when it answers again, at the latest by the next process that uses the
/// folder. `folder`/mlflow.json remembers the run and what was sent. A request whose outcome is unknown is
/// compared with the server's history before it is repeated, so that nothing is lost or there twice.
///
/// A resumed training continues its run. MLflow cannot delete values: of the steps that it repeats, values
/// that are the same as the server's are not sent again, and others are added beside them. resume_at(0)
/// begins a new run; the old one is marked KILLED if it had not ended. A run ends as FINISHED, KILLED if a
/// signal had stopped the training, or FAILED if finish() was not called. NaN and infinities are sent as
/// such; MLflow's databases store an infinity as the largest double. Characters that MLflow does not allow in
/// names become '_', and names are cut at 250 bytes, values of hyper-parameters at 6000.
///
/// Needs liblockstep_mlflow.so beside the library, which is built where libcurl is found. Throws UsageError
/// that says what to install if it is missing, or if the folder has values for another server or run.
/// *Local*.
std::unique_ptr<Tracker> make_mlflow_tracker(const std::filesystem::path& folder,
                                             const MlflowOptions& options);

}  // namespace lockstep
