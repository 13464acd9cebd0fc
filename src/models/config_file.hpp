#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/generation.hpp"

namespace lockstep::models {

/// Reader of a model's config.json. Missing and null fields keep their defaults; fields of the wrong type or
/// out of range are DataErrors that name the file and the field.
class ConfigFile {
 public:
  /// `path` is the file, or its folder.
  explicit ConfigFile(const std::filesystem::path& path);
  /// The object `json`, under this name in errors.
  ConfigFile(std::string name, nlohmann::ordered_json json);

  /// The settings of generate() of the model in `path`: generation_config.json if there is one, otherwise the
  /// file itself.
  static ConfigFile of_generation(const std::filesystem::path& path);

  /// The file, for messages.
  const std::string& name() const { return file_; }

  /// Throws DataError unless the field "model_type" is `type` or absent.
  void require_type(const std::string& type) const;
  /// Whether there is such a field, and it is not null.
  bool has(const char* field) const { return find(field) != nullptr; }
  /// Whether the field is there, and null.
  bool is_null(const char* field) const { return json_.contains(field) && find(field) == nullptr; }
  /// The object in this field; none if there is no such field.
  std::optional<ConfigFile> section(const char* field) const;
  /// The field "model_type". Throws DataError, listing the `known` types, if it is none of them or absent.
  std::string model_type(const std::vector<std::string>& known) const;
  /// An integer of at least `least`.
  void number(const char* field, std::int64_t& value, std::int64_t least = 1) const;
  /// Same; null in the file is no value.
  void number(const char* field, std::optional<std::int64_t>& value, std::int64_t least) const;
  /// The id of a token, or a list of them; no or null: none.
  void tokens(const char* field, TokenIds& value) const;
  /// A number from 0 to `most`.
  void real(const char* field, double& value, double most) const;
  /// Same; without a number in the file, the value is kept.
  void real(const char* field, std::optional<double>& value, double most) const;
  /// Numbers from 0 to `most`.
  void reals(const char* field, std::vector<double>& values, double most) const;
  /// Integers of at least `least`.
  void numbers(const char* field, std::vector<std::int64_t>& values, std::int64_t least) const;
  /// Two integers of at least `least`, or one that stands for both: height and width.
  void pair(const char* field, std::int64_t& first, std::int64_t& second, std::int64_t least = 1) const;
  void text(const char* field, std::string& value) const;
  /// Texts that must be of `known`.
  void choices(const char* field, std::vector<std::string>& values,
               std::initializer_list<const char*> known) const;
  void flag(const char* field, bool& value) const;
  /// A text that must be one of `known`.
  void choice(const char* field, std::string& value, std::initializer_list<const char*> known) const;
  /// Throws DataError unless the field is `value`, the only one that is implemented, or absent.
  void require(const char* field, bool value) const;
  /// Throws DataError if there is such a field, which is not null: the field is what it is, expected `what`.
  void require_none(const char* field, const std::string& what) const;
  /// Throws DataError: the field, which is there, is what it is, expected `what`.
  [[noreturn]] void fail(const char* field, const std::string& what) const;
  /// Throws DataError unless there is such a field, which is not null.
  void require_some(const char* field) const;
  /// Throws DataError unless `value`, that of a field, is a multiple of that of the field `of`.
  void require_multiple(const char* field, std::int64_t value, const char* of, std::int64_t divisor) const;
  /// The class names by number ("id2label") and their number; without names, "num_labels". If the two differ,
  /// the names count, as in transformers.
  void labels(std::int64_t& count, std::vector<std::string>& names) const;

 private:
  const nlohmann::ordered_json* find(const char* field) const;
  /// What kind of model this is, in brackets, if it is one of those that are not implemented.
  std::string kind() const;

  std::string file_;
  nlohmann::ordered_json json_;
};

/// A field of a configuration, and whether the family's config.json can say it.
struct SaidField {
  const char* name;
  bool is_said;
};

/// Throws UsageError that lists the fields which config.json of a `model_type` cannot say: in Python, the
/// weights would be those of another model.
void require_said(const std::string& model_type, const std::vector<SaidField>& fields);

/// As ConfigFile::tokens() reads them.
nlohmann::ordered_json token_ids(const TokenIds& ids);

}  // namespace lockstep::models
