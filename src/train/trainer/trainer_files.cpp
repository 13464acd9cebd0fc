#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "train/rules/python_json.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError("'" + path.string() + "' cannot be read: is the checkpoint one of a Trainer?");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::ordered_json read_results(const fs::path& path) {
  if (!fs::exists(path)) return nlohmann::ordered_json::object();
  try {
    return parse_python_json(read_text(path));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("'" + path.string() + "' is not JSON: " + error.what());
  }
}

}  // namespace

void Trainer::save_state() {
  const fs::path folder = impl_->args.output_dir;
  impl_->accelerator.on_main_process([&] {
    fs::create_directories(folder);
    write_atomically(folder / kTrainerStateFileName, trainer_state_text(impl_->state));
  });
}

void Trainer::save_metrics(const std::string& split, const LogValues& metrics) {
  const fs::path folder = impl_->args.output_dir;
  impl_->accelerator.on_main_process([&] {
    fs::create_directories(folder);
    auto own = nlohmann::ordered_json::object();
    for (const auto& [name, value] : metrics) own[name] = value;
    write_atomically(folder / (split + "_results.json"), python_json_text(own));
    auto all = read_results(folder / "all_results.json");
    all.update(own);
    write_atomically(folder / "all_results.json", python_json_text(all));
  });
}

}  // namespace lockstep
