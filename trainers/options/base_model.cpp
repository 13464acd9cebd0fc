#include "options/base_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/core/error.hpp"

namespace program_options {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using lockstep::DataError;

constexpr std::size_t kDifferencesShown = 4;

[[noreturn]] void fail_to_read(const fs::path& path) {
  throw DataError("'" + path.string() + "' cannot be read.");
}

/// Files up to this size are hashed whole; of larger ones, the beginning, where a format has its names and
/// shapes, and samples at equal distances: one per 4 MiB of a file of 16 GiB.
constexpr std::uint64_t kWhole = std::uint64_t{16} << 20;
constexpr std::uint64_t kBeginning = std::uint64_t{1} << 20;
constexpr std::uint64_t kSamples = 4096;
constexpr std::uint64_t kSampleBytes = 4096;

/// FNV-1a over words of eight bytes, mixed so that each bit of a word reaches those below it.
class WeightHash {
 public:
  explicit WeightHash(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) fail_to_read(path);
  }

  std::uint64_t of(std::uint64_t bytes) {
    if (bytes <= kWhole) {
      add(0, bytes);
      return hash_;
    }
    add(0, kBeginning);
    const auto distance = (bytes - kBeginning - kSampleBytes) / (kSamples - 1);
    for (std::uint64_t i = 0; i < kSamples; ++i) add(kBeginning + i * distance, kSampleBytes);
    return hash_;
  }

 private:
  void add(std::uint64_t begin, std::uint64_t bytes) {
    std::vector<std::uint64_t> words((bytes + 7) / 8);
    file_.seekg(static_cast<std::streamoff>(begin));
    file_.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(bytes));
    if (!file_) fail_to_read(path_);
    for (const auto word : words) {
      hash_ = (hash_ ^ word) * 0x100000001b3;
      hash_ ^= hash_ >> 29;
    }
  }

  fs::path path_;
  std::ifstream file_;
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

/// The fields of a configuration but those that say who wrote it, and where its model was.
Json config_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  auto config = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) throw DataError("'" + path.string() + "' is not JSON.");
  if (config.is_object()) {
    for (const char* field : {"_name_or_path", "transformers_version", "base_model_name_or_path"})
      config.erase(field);
  }
  return config;
}

bool is_config(const std::string& name) {
  static const std::set<std::string> names{"config.json", "adapter_config.json", "modules.json",
                                           "sentence_bert_config.json"};
  return names.contains(name);
}

bool is_weights(const std::string& name) {
  static const std::regex form(
      R"((adapter_)?model(-\d+-of-\d+)?\.safetensors|(pytorch|adapter)_model(-\d+-of-\d+)?\.bin)");
  return std::regex_match(name, form);
}

/// A module of sentence-transformers: "2_Dense".
bool is_module(const std::string& name) {
  static const std::regex form(R"(\d+_\w+)");
  return std::regex_match(name, form);
}

class Description {
 public:
  explicit Description(const fs::path& path)
      : content_{{"path", path.string()}, {"configs", Json::object()}, {"weights", Json::object()}} {
    if (!fs::is_directory(path)) {
      add_file(path, path.filename().string(), path.extension() != ".json");
      return;
    }
    add_folder(path, "");
    for (const auto& entry : fs::directory_iterator(path)) {
      const auto name = entry.path().filename().string();
      if (entry.is_directory() && is_module(name)) add_folder(entry.path(), name + "/");
    }
  }

  const Json& content() const { return content_; }

 private:
  void add_folder(const fs::path& folder, const std::string& prefix) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const auto name = entry.path().filename().string();
      if (!entry.is_regular_file() || (!is_config(name) && !is_weights(name))) continue;
      add_file(entry.path(), prefix + name, is_weights(name));
    }
  }

  void add_file(const fs::path& path, const std::string& name, bool has_weights) {
    if (has_weights) {
      const auto bytes = fs::file_size(path);
      content_["weights"][name] = {{"bytes", bytes},
                                   {"hash", fmt::format("{:016x}", WeightHash(path).of(bytes))}};
    } else {
      content_["configs"][name] = config_in(path);
    }
  }

  Json content_;
};

std::string short_text(const Json& value) {
  constexpr std::size_t kLongest = 60;
  const auto text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : "another value";
}

std::set<std::string> names_in(const Json& one, const Json& other) {
  std::set<std::string> names;
  for (const auto* object : {&one, &other}) {
    for (const auto& entry : object->items()) names.insert(entry.key());
  }
  return names;
}

void add_differences(std::vector<std::string>& found, const std::string& file, const Json& before,
                     const Json& now) {
  if (before == now) return;
  if (!before.is_object() || !now.is_object()) {
    found.push_back(file + " differs");
    return;
  }
  for (const auto& field : names_in(before, now)) {
    const auto was = before.value(field, Json()), is = now.value(field, Json());
    if (was != is)
      found.push_back(fmt::format("{}: {} was {}, is {}", file, field, short_text(was), short_text(is)));
  }
}

std::vector<std::string> differences(const Json& before, const Json& now) {
  std::vector<std::string> found;
  for (const char* kind : {"configs", "weights"}) {
    const auto &was = before.at(kind), &is = now.at(kind);
    for (const auto& file : names_in(was, is)) {
      if (!was.contains(file) || !is.contains(file)) {
        found.push_back(fmt::format("{} {}", file, is.contains(file) ? "was not there" : "is not there"));
      } else if (kind == std::string("configs")) {
        add_differences(found, file, was[file], is[file]);
      } else if (was[file] != is[file]) {
        found.push_back(file + " has other weights");
      }
    }
  }
  return found;
}

bool is_one_of(const fs::path& path, const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    std::error_code failure;
    return fs::equivalent(fs::is_directory(path) ? path : path.parent_path(), folder, failure);
  });
}

class BaseModelCallback final : public lockstep::TrainerCallback {
 public:
  BaseModelCallback(const Beginnings& beginnings, const std::vector<std::string>& outputs) {
    for (const auto& [option, path] : beginnings) {
      if (path.empty()) continue;
      own_[option] = is_one_of(path, outputs) ? Json() : Description(path).content();
    }
  }

  std::string name() const override { return "BaseModelCallback"; }

  std::string state_dict() const override {
    return Json{{"args", Json::object()}, {"attributes", own_}}.dump(-1, ' ', false,
                                                                     Json::error_handler_t::replace);
  }

  void load_state_dict(const std::string& text) override {
    try {
      compare(Json::parse(text).at("attributes"));
    } catch (const Json::exception& error) {
      throw DataError(std::string("the checkpoint does not say what its training began from: ") +
                      error.what());
    }
  }

 private:
  void compare(const Json& saved) const {
    for (const auto& option : names_in(saved, own_)) {
      if (!saved.contains(option) || !own_.contains(option)) {
        const bool is_new = own_.contains(option);
        const auto& given = is_new ? own_[option] : saved[option];
        if (given.is_null()) continue;
        refuse(fmt::format("the training began {} {}, and {}", is_new ? "without" : "with",
                           is_new ? option : named(option, given),
                           is_new ? named(option, given) + " is given now" : "none is given now"));
      }
      const Json &before = saved[option], &now = own_[option];
      if (before.is_null() || now.is_null()) continue;
      auto found = differences(before, now);
      if (found.empty()) continue;
      const auto count = found.size();
      found.resize(std::min(count, kDifferencesShown));
      refuse(fmt::format("the training began with {}, and {} is another model: {}{}", named(option, before),
                         named(option, now), fmt::join(found, "; "), count > found.size() ? "; ..." : ""));
    }
  }

  static std::string named(const std::string& option, const Json& description) {
    return fmt::format("{} '{}'", option, description.at("path").get<std::string>());
  }

  [[noreturn]] static void refuse(const std::string& what) {
    throw DataError(
        what +
        ". The checkpoint's weights belong to what the training began with: give that, wherever it "
        "is now. To train anew, give another --output-dir, or --resume-from-checkpoint never");
  }

  Json own_ = Json::object();
};

}  // namespace

std::shared_ptr<lockstep::TrainerCallback> base_model_callback(const Beginnings& beginnings,
                                                               const std::vector<std::string>& outputs) {
  return std::make_shared<BaseModelCallback>(beginnings, outputs);
}

}  // namespace program_options
