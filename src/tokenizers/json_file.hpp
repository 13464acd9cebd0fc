#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

/// Size limit; the files of the largest vocabularies in use have about 40 MB.
inline constexpr std::uint64_t kLargestFile = 256U << 20;

/// Reads a whole text file. Throws DataError, naming the file, if it cannot be read, is too large or is not
/// valid UTF-8.
std::string read_text_file(const std::filesystem::path& path);

/// Parses JSON text from `file`, without recursion. Throws DataError, naming the file and the byte, if the
/// text is not JSON, is nested too deeply, or has an object with duplicate names.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// A value of a JSON file, with its path for error messages. Refers to the JSON, which must outlive it.
class Node {
 public:
  Node(const nlohmann::json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  /// The field of an object; throws DataError if this is not an object or has no such field.
  Node operator[](const std::string& field) const;
  /// The same, or nothing if the field is absent or null.
  std::optional<Node> find(const std::string& field) const;
  /// The elements of a list.
  std::vector<Node> elements() const;
  /// Size and elements of a list, without creating a list of all.
  std::size_t size() const;
  Node element(std::size_t index) const;
  /// A node for a member of this object that the caller already has.
  Node value(const nlohmann::json& json, const std::string& name) const;

  const std::string& text() const;
  /// A text of a single character.
  char32_t character() const;
  bool flag() const;
  /// A whole number from 0 to 2^31 - 1.
  std::uint32_t number() const;
  /// A finite number.
  double real() const;
  bool is_text() const { return json_->is_string(); }
  bool is_list() const { return json_->is_array(); }
  bool is_zero() const { return json_->is_number() && *json_ == 0; }
  /// Throws DataError if this is not an object.
  const nlohmann::json& object() const;

  std::string text(const std::string& field, const std::string& otherwise) const;
  bool flag(const std::string& field, bool otherwise) const;
  std::uint32_t number(const std::string& field, std::uint32_t otherwise) const;
  char32_t character(const std::string& field, char32_t otherwise) const;
  /// The field "type" of an object.
  const std::string& type() const { return (*this)["type"].text(); }

  /// Throws DataError with the file, this path and the problem.
  [[noreturn]] void fail(const std::string& what) const;
  const std::string& file() const { return file_; }
  /// The file and this path, for later errors.
  std::string location() const;

 private:
  Node(const nlohmann::json& json, std::string file, std::string location)
      : json_(&json), file_(std::move(file)), location_(std::move(location)) {}

  const nlohmann::json* json_;
  std::string file_;
  std::string location_;
};

}  // namespace lockstep::tokenizer
