#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "utf8_check.hpp"

namespace lockstep::json_tree {

/// How deep lists and objects may lie in each other.
inline constexpr std::size_t kDeepest = 64;

/// Builds the values from the parser's events; nothing here recurses over what came.
template <typename Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;

  Builder(Json& root, const std::string& what) : root_(root), what_(what) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(typename Sax::number_integer_t value) override { return put(value); }
  bool number_unsigned(typename Sax::number_unsigned_t value) override { return put(value); }
  bool number_float(typename Sax::number_float_t value, const typename Sax::string_t&) override {
    return put(value);
  }
  bool string(typename Sax::string_t& value) override { return put(std::move(value)); }
  bool binary(typename Sax::binary_t&) override { return false; }

  bool key(typename Sax::string_t& name) override {
    if (open_.back()->contains(name))
      fail("it gives the name '" + name.substr(0, 100) + "' twice in one object");
    member_ = &(*open_.back())[name];
    return true;
  }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("it is no valid JSON at its byte " + std::to_string(position));
    return false;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw DataError(what_ + " cannot be read: " + why + ".");
  }

  Json& slot() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    open_.back()->push_back(nullptr);
    return open_.back()->back();
  }

  template <class Value>
  bool put(Value&& value) {
    slot() = std::forward<Value>(value);
    return true;
  }

  bool open(Json&& empty) {
    if (open_.size() == kDeepest)
      fail("its lists and objects lie more than " + std::to_string(kDeepest) + " levels deep");
    auto& place = slot();
    place = std::move(empty);
    open_.push_back(&place);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  const std::string& what_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

/// The JSON of a text; `what` names it in errors ("line 3 of 'a.jsonl'"). Throws DataError for what is no
/// UTF-8, no JSON, too deep, or gives a name twice.
template <typename Json>
Json parse(std::string_view text, const std::string& what) {
  const auto bad = first_not_utf8(text);
  if (bad != std::string_view::npos || text.find('\0') != std::string_view::npos) {
    throw DataError(what + " cannot be read: its byte " + std::to_string(std::min(bad, text.find('\0'))) +
                    " is no text in UTF-8.");
  }
  Json root;
  Builder<Json> builder(root, what);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

}  // namespace lockstep::json_tree
