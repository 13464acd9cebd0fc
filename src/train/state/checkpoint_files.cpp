#include "train/state/checkpoint_files.hpp"

#include <nlohmann/json.hpp>

#include <utility>

#include <fmt/core.h>

#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::train {

namespace fs = std::filesystem;
using nlohmann::json;

void CheckpointFiles::add_json(const std::string& name, json document) {
  add(name, [document = std::move(document)](const fs::path& path) {
    return write_atomically(path, json_text(document, 2) + "\n");
  });
}

void CheckpointFiles::add_tensors(const std::string& name, WriteTensors write) {
  if (gathers_) {
    written_[name] =
        write(folder_ / name, [this](const std::string& tensor) { return gathered_.get(tensor); });
    return;
  }
  add(name, [write = std::move(write)](const fs::path& path) { return write(path, nullptr); });
}

FileDigests CheckpointFiles::write(int threads) {
  written_.merge(waiting_.run(folder_, threads));
  return std::move(written_);
}

std::string numbered_file(const std::string& stem, std::size_t index, const std::string& ending) {
  return index == 0 ? stem + ending : fmt::format("{}_{}{}", stem, index, ending);
}

void check_file_count(const fs::path& checkpoint, const char* what, std::size_t count,
                      const std::function<std::string(std::size_t)>& file) {
  if (count > 0 && !fs::exists(checkpoint / file(count - 1))) {
    throw DataError("'" + checkpoint.string() + "' has no " + file(count - 1) +
                    ": it was written with fewer " + what + " than the program has prepared.");
  }
  if (fs::exists(checkpoint / file(count))) {
    throw DataError("'" + checkpoint.string() + "' has " + file(count) + ": it was written with more " +
                    what + " than the program has prepared. Call prepare() for all before loading.");
  }
}

std::string read_json_text(const fs::path& path) { return json_text(read_json_document(path)); }

}  // namespace lockstep::train
