#include "lockstep/train/mlflow_tracker.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "train/mlflow/plugin.hpp"
#include "train/trackers/tracker_of_successor.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail_without_plugin(const std::string& reason) {
  throw UsageError(fmt::format(
      "the tracker mlflow cannot be used: {}. It needs libcurl: install Debian's package libcurl4; to build "
      "it, "
      "libcurl4-openssl-dev (scripts/setup build), then build again. Or log with jsonl, csv or tensorboard.",
      reason));
}

/// Beside this code, which is in a library or, in tests, in a program beside `lib`.
void* open_plugin() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&open_plugin), &info);
  const auto folder = std::filesystem::path(info.dli_fname == nullptr ? "" : info.dli_fname).parent_path();
  for (const auto& place : {folder, folder / ".." / "lib"}) {
    const auto path = place / mlflow::kPluginFile;
    if (!std::filesystem::exists(path)) continue;
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    fail_without_plugin(::dlerror());
  }
  fail_without_plugin(fmt::format("there is no {} in '{}', which is built where libcurl is found",
                                  mlflow::kPluginFile, folder.string()));
}

const mlflow::Plugin& load_plugin() {
  void* library = open_plugin();
  const auto entry = reinterpret_cast<mlflow::PluginEntry>(::dlsym(library, mlflow::kPluginEntry));
  if (entry == nullptr) fail_without_plugin(fmt::format("{} has no entry", mlflow::kPluginFile));
  const mlflow::Plugin* plugin = entry();
  if (std::strcmp(plugin->version, version()) != 0)
    fail_without_plugin(
        fmt::format("{} is of version {}, not {}", mlflow::kPluginFile, plugin->version, version()));
  return *plugin;
}

/// The last name of the folder that means something.
std::string name_after(const std::filesystem::path& folder) {
  auto path = std::filesystem::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename() == "runs") path = path.parent_path();
  return path.filename().string();
}

}  // namespace

MlflowOptions mlflow_options(const Environment& environment, const std::filesystem::path& folder) {
  const auto variable = [&](const char* name, const std::string& otherwise = {}) {
    const std::string value = find_variable(environment, name).value_or("");
    return value.empty() ? otherwise : value;
  };
  MlflowOptions options;
  options.tracking_uri = variable("MLFLOW_TRACKING_URI");
  if (!options.tracking_uri.starts_with("http://") && !options.tracking_uri.starts_with("https://")) {
    throw UsageError(fmt::format(
        "the tracker mlflow needs the address of an MLflow server in MLFLOW_TRACKING_URI, such as "
        "http://localhost:5000 ('mlflow server' starts one); it is {}.",
        options.tracking_uri.empty() ? "not set" : "'" + options.tracking_uri + "'"));
  }
  options.experiment_name = variable("MLFLOW_EXPERIMENT_NAME", options.experiment_name);
  options.experiment_id = variable("MLFLOW_EXPERIMENT_ID");
  options.run_id = variable("MLFLOW_RUN_ID");
  options.run_name = variable("MLFLOW_RUN_NAME", name_after(folder));
  options.token = variable("MLFLOW_TRACKING_TOKEN");
  options.username = variable("MLFLOW_TRACKING_USERNAME");
  options.password = variable("MLFLOW_TRACKING_PASSWORD");
  options.server_certificates = variable("MLFLOW_TRACKING_SERVER_CERT_PATH");
  options.insecure_tls = variable("MLFLOW_TRACKING_INSECURE_TLS") == "true";
  return options;
}

std::unique_ptr<Tracker> make_mlflow_tracker(const std::filesystem::path& folder,
                                             const MlflowOptions& options) {
  static const mlflow::Plugin& plugin = load_plugin();
  return opened_in_time([folder, options] {
    file_system::make_folders(folder);
    return plugin.make_tracker(folder, options);
  });
}

}  // namespace lockstep
