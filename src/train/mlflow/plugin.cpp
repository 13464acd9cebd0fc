#include "train/mlflow/plugin.hpp"

#include "lockstep/core/version.hpp"
#include "train/mlflow/server_tracker.hpp"

extern "C" const lockstep::mlflow::Plugin* lockstep_mlflow_plugin() {
  static const lockstep::mlflow::Plugin plugin{lockstep::version(), &lockstep::mlflow::make_server_tracker};
  return &plugin;
}
