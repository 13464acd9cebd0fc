#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

/// The largest file that is read: those of the largest vocabularies in use have some 40 MB.
inline constexpr std::uint64_t kLargestFile = 256U << 20;

/// The whole of a file that is text. Throws DataError, naming it, when it cannot be read, is too large or is
/// no valid UTF-8.
std::string read_text_file(const std::filesystem::path& path);

/// The JSON of a text, which came from `file`. Throws DataError, naming the file and the byte, for what is no
/// JSON, lies too deep, or gives one name twice in an object. Reads without recursion.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// A value of such a file, with its place in it for error texts. Refers to the JSON: does not outlive it.
class Node {
 public:
  Node(const nlohmann::json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  /// The field of an object; throws DataError when this is no object or has no such field.
  Node operator[](const std::string& field) const;
  /// The same, or nothing where the field is absent or null.
  std::optional<Node> find(const std::string& field) const;
  /// The elements of a list.
  std::vector<Node> elements() const;
  /// The single elements of a list, without making a list of all.
  std::size_t size() const;
  Node element(std::size_t index) const;
  /// A member of this object that the caller has at hand already.
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
  /// As an object; throws DataError when it is none.
  const nlohmann::json& object() const;

  std::string text(const std::string& field, const std::string& otherwise) const;
  bool flag(const std::string& field, bool otherwise) const;
  std::uint32_t number(const std::string& field, std::uint32_t otherwise) const;
  char32_t character(const std::string& field, char32_t otherwise) const;
  /// The field "type" of a part.
  const std::string& type() const { return (*this)["type"].text(); }

  /// Throws DataError: the file, this place, what is wrong with it.
  [[noreturn]] void fail(const std::string& what) const;
  const std::string& file() const { return file_; }
  /// The file and this place in it, for errors that come later.
  std::string place() const;

 private:
  Node(const nlohmann::json& json, std::string file, std::string place)
      : json_(&json), file_(std::move(file)), place_(std::move(place)) {}

  const nlohmann::json* json_;
  std::string file_;
  std::string place_;
};

}  // namespace lockstep::tokenizer
