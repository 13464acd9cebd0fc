#include "train/mlflow/run_record.hpp"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::mlflow {

RunRecord RunRecord::read(const std::filesystem::path& path) {
  RunRecord record;
  std::ifstream file(path, std::ios::binary);
  if (!file) return record;
  try {
    const auto content = nlohmann::json::parse(file);
    record.tracking_uri = content.at("tracking_uri").get<std::string>();
    record.experiment_id = content.at("experiment_id").get<std::string>();
    record.run_id = content.at("run_id").get<std::string>();
    record.run_key = content.at("run_key").get<std::string>();
    record.sent = content.at("sent").get<std::uint64_t>();
    record.last_step = content.at("last_step").get<std::int64_t>();
    record.has_ended = content.at("has_ended").get<bool>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format(
        "'{}' does not say which MLflow run the folder belongs to: {}. Move it away to begin a new run.",
        path.string(), error.what()));
  }
  return record;
}

void RunRecord::write(const std::filesystem::path& path) const {
  const nlohmann::ordered_json content{{"tracking_uri", tracking_uri},
                                       {"experiment_id", experiment_id},
                                       {"run_id", run_id},
                                       {"run_key", run_key},
                                       {"sent", sent},
                                       {"last_step", last_step},
                                       {"has_ended", has_ended}};
  write_atomically(path, json_text(content, 2) + "\n");
}

}  // namespace lockstep::mlflow
