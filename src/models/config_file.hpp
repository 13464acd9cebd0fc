#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::models {

/// A model's config.json while it is read: fields that are absent or null keep their defaults, fields of
/// another kind or out of range are DataErrors that name the file and the field.
class ConfigFile {
 public:
  /// `path` is the file, or the folder that it is in.
  explicit ConfigFile(const std::filesystem::path& path);

  /// Throws DataError unless the field "model_type" is `type`, or absent.
  void require_type(const std::string& type) const;
  /// A whole number of at least `least`.
  void number(const char* field, std::int64_t& value, std::int64_t least = 1) const;
  /// A number from 0 to `most`.
  void real(const char* field, double& value, double most) const;
  void text(const char* field, std::string& value) const;
  void flag(const char* field, bool& value) const;
  /// A text that must be one of these.
  void choice(const char* field, std::string& value, std::initializer_list<const char*> known) const;
  /// Throws DataError unless the field is `value`, the only one that is implemented, or absent.
  void require(const char* field, bool value) const;
  /// The class names by number ("id2label") and how many there are; without names "num_labels". Where the two
  /// differ the names rule, as in transformers.
  void labels(std::int64_t& count, std::vector<std::string>& names) const;

 private:
  const nlohmann::ordered_json* find(const char* field) const;
  [[noreturn]] void fail(const char* field, const std::string& what) const;

  std::string file_;
  nlohmann::ordered_json json_;
};

}  // namespace lockstep::models
