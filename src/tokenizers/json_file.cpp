#include "tokenizers/json_file.hpp"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "core/input_file.hpp"
#include "core/json.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

using nlohmann::json;

[[noreturn]] void fail_at(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("'{}' is not a valid tokenizer file: {}.", file, what));
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  InputFile file(path);
  if (file.size() > kLargestFile) {
    fail_at(path.string(),
            fmt::format("it has {} bytes, more than the limit of {}", file.size(), kLargestFile));
  }
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  require_utf8(text, fmt::format("'{}'", path.string()));
  return text;
}

json parse_json(std::string_view text, const std::string& file) {
  require_utf8(text, fmt::format("'{}'", file));
  // The parser treats a zero byte as the end.
  const auto zero = text.find('\0');
  if (zero != std::string_view::npos) {
    fail_at(file, fmt::format("it is not valid JSON: its byte {} is zero", zero));
  }
  return json_tree::build<json>(text, [&](const std::string& what) { fail_at(file, what); });
}

Node Node::operator[](const std::string& field) const {
  const auto& fields = object();
  const auto found = fields.find(field);
  if (found == fields.end()) fail(fmt::format("it has no field '{}'", field));
  return value(*found, field);
}

Node Node::value(const json& json, const std::string& name) const {
  return {json, file_, location_ + (location_.empty() ? "" : ".") + name};
}

std::optional<Node> Node::find(const std::string& field) const {
  const auto& fields = object();
  const auto found = fields.find(field);
  if (found == fields.end() || found->is_null()) return std::nullopt;
  return (*this)[field];
}

std::size_t Node::size() const {
  if (!json_->is_array()) fail(std::string("expected a list, but it is ") + json_->type_name());
  return json_->size();
}

Node Node::element(std::size_t index) const {
  return {(*json_)[index], file_, fmt::format("{}[{}]", location_, index)};
}

std::vector<Node> Node::elements() const {
  std::vector<Node> nodes;
  const auto count = size();
  for (std::size_t index = 0; index < count; ++index) nodes.push_back(element(index));
  return nodes;
}

const std::string& Node::text() const {
  if (!json_->is_string()) fail(std::string("expected a text, but it is ") + json_->type_name());
  return json_->get_ref<const std::string&>();
}

bool Node::flag() const {
  if (!json_->is_boolean()) fail(std::string("expected true or false, but it is ") + json_->type_name());
  return json_->get<bool>();
}

std::uint32_t Node::number() const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  const bool negative =
      json_->is_number_integer() && !json_->is_number_unsigned() && json_->get<std::int64_t>() < 0;
  if (!json_->is_number_integer() || negative || json_->get<std::uint64_t>() > kMost) {
    fail("expected an integer from 0 to 2147483647, but it is " +
         (json_->is_number() ? json_text(*json_) : std::string(json_->type_name())));
  }
  return json_->get<std::uint32_t>();
}

double Node::real() const {
  if (!json_->is_number()) fail(std::string("expected a number, but it is ") + json_->type_name());
  const auto number = json_->get<double>();
  if (!std::isfinite(number)) fail("expected a finite number");
  return number;
}

const json& Node::object() const {
  if (!json_->is_object()) fail(std::string("expected an object, but it is ") + json_->type_name());
  return *json_;
}

std::string Node::text(const std::string& field, const std::string& otherwise) const {
  const auto found = find(field);
  return found ? found->text() : otherwise;
}

bool Node::flag(const std::string& field, bool otherwise) const {
  const auto found = find(field);
  return found ? found->flag() : otherwise;
}

std::uint32_t Node::number(const std::string& field, std::uint32_t otherwise) const {
  const auto found = find(field);
  return found ? found->number() : otherwise;
}

char32_t Node::character() const {
  const auto& whole = text();
  std::size_t end = 0;
  const auto code = whole.empty() ? char32_t{0} : next_character(whole, end);
  if (whole.empty() || end != whole.size()) fail("expected a single character, not '" + whole + "'");
  return code;
}

char32_t Node::character(const std::string& field, char32_t otherwise) const {
  const auto found = find(field);
  return found ? found->character() : otherwise;
}

void Node::fail(const std::string& what) const {
  const auto location =
      location_.empty() ? "the document" : "'" + location_.substr(0, json_tree::kNameShown) + "'";
  throw DataError(
      fmt::format("'{}' is not a tokenizer file that can be read: at {}: {}.", file_, location, what));
}

std::string Node::location() const {
  return fmt::format("'{}' at '{}'", file_, location_.substr(0, json_tree::kNameShown));
}

}  // namespace lockstep::tokenizer
