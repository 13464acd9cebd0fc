#include "json_file.hpp"

#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {
namespace {

using nlohmann::json;

/// Names in a hostile file may be megabytes long; a log line should not be.
constexpr std::size_t kNameShown = 100;

[[noreturn]] void fail_at(const std::string& file, const std::string& what) {
  throw DataError("'" + file + "' is no valid tokenizer file: " + what + ".");
}

/// Builds the values from the parser's events. The parser itself does not recurse over them.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(json& root, const std::string& file) : root_(root), file_(file) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { fail_at(file_, "it has binary data"); }

  bool key(string_t& name) override {
    const auto [place, is_new] = open_.back()->get_ref<json::object_t&>().try_emplace(name);
    if (!is_new) fail_at(file_, "it gives the name '" + name.substr(0, kNameShown) + "' twice in one object");
    member_ = &place->second;
    return true;
  }

  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_at(file_, "it is no valid JSON at its byte " + std::to_string(position) + " (" + error.what() + ")");
  }

 private:
  json& slot() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    return open_.back()->emplace_back();
  }

  template <class Value>
  bool put(Value&& value) {
    slot() = std::forward<Value>(value);
    return true;
  }

  bool open(json&& empty) {
    if (open_.size() == kDeepest) {
      fail_at(file_, "its lists and objects lie in each other more than " + std::to_string(kDeepest) +
                         " levels deep");
    }
    auto& place = slot();
    place = std::move(empty);
    open_.push_back(&place);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  json& root_;
  const std::string& file_;
  std::vector<json*> open_;
  json* member_ = nullptr;
};

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  InputFile file(path);
  if (file.size() > kLargestFile) {
    fail_at(path.string(), "it has " + std::to_string(file.size()) + " bytes, more than the limit of " +
                               std::to_string(kLargestFile));
  }
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  require_utf8(text, "'" + path.string() + "'");
  return text;
}

json parse_json(std::string_view text, const std::string& file) {
  require_utf8(text, "'" + file + "'");
  // The parser takes a zero byte for the end.
  const auto zero = text.find('\0');
  if (zero != std::string_view::npos) {
    fail_at(file, "it is no valid JSON: its byte " + std::to_string(zero) + " is zero");
  }
  json root;
  Builder builder(root, file);
  json::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

Node Node::operator[](const std::string& field) const {
  const auto& fields = object();
  const auto found = fields.find(field);
  if (found == fields.end()) fail("it has no field '" + field + "'");
  return value(*found, field);
}

Node Node::value(const json& json, const std::string& name) const {
  return {json, file_, place_ + (place_.empty() ? "" : ".") + name};
}

std::optional<Node> Node::find(const std::string& field) const {
  const auto& fields = object();
  const auto found = fields.find(field);
  if (found == fields.end() || found->is_null()) return std::nullopt;
  return (*this)[field];
}

std::size_t Node::size() const {
  if (!json_->is_array()) fail(std::string("a list is needed, but it is ") + json_->type_name());
  return json_->size();
}

Node Node::element(std::size_t index) const {
  return {(*json_)[index], file_, place_ + "[" + std::to_string(index) + "]"};
}

std::vector<Node> Node::elements() const {
  std::vector<Node> nodes;
  const auto count = size();
  for (std::size_t index = 0; index < count; ++index) nodes.push_back(element(index));
  return nodes;
}

const std::string& Node::text() const {
  if (!json_->is_string()) fail(std::string("a text is needed, but it is ") + json_->type_name());
  return json_->get_ref<const std::string&>();
}

bool Node::flag() const {
  if (!json_->is_boolean()) fail(std::string("true or false is needed, but it is ") + json_->type_name());
  return json_->get<bool>();
}

std::uint32_t Node::number() const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (!json_->is_number_unsigned() || json_->get<std::uint64_t>() > kMost) {
    fail("a whole number from 0 to 2147483647 is needed, but it is " +
         (json_->is_number() ? json_->dump() : std::string(json_->type_name())));
  }
  return json_->get<std::uint32_t>();
}

const json& Node::object() const {
  if (!json_->is_object()) fail(std::string("an object is needed, but it is ") + json_->type_name());
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

void Node::fail(const std::string& what) const {
  const auto place = place_.empty() ? "the document" : "'" + place_.substr(0, kNameShown) + "'";
  throw DataError("'" + file_ + "' is no tokenizer file that can be read: at " + place + ": " + what + ".");
}

}  // namespace lockstep::tokenizer
