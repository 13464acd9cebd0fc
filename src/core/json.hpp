#pragma once

#include <fmt/core.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/input_file.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::json_tree {

/// Maximum nesting of lists and objects.
inline constexpr std::size_t kDeepest = 64;
/// Maximum length of a name in messages: names in a malicious file may be megabytes long.
inline constexpr std::size_t kNameShown = 100;

/// Builds the values from the parser's events, without recursion over the input. `fail` is called with the
/// reason, and throws.
template <typename Json, typename Fail>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;

  Builder(Json& root, const Fail& fail) : root_(root), fail_(fail) {}

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
    const auto [entry, is_new] = open_.back()->emplace(name, nullptr);
    if (!is_new) fail_(fmt::format("it gives the name '{}' twice in one object", name.substr(0, kNameShown)));
    member_ = &*entry;
    return true;
  }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail_(fmt::format("it is not valid JSON at its byte {} ({})", position, error.what()));
    return false;
  }

 private:
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
    if (open_.size() == kDeepest) {
      fail_(fmt::format("its lists and objects are nested more than {} levels deep", kDeepest));
    }
    auto& target = slot();
    target = std::move(empty);
    open_.push_back(&target);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  const Fail& fail_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

/// Parses JSON that is UTF-8 without zero bytes, which the parser would take for the end. Throws what `fail`
/// throws if the text is not JSON, is nested too deeply, or has a name twice in an object.
template <typename Json, typename Fail>
Json build(std::string_view text, const Fail& fail) {
  Json root;
  Builder<Json, Fail> builder(root, fail);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

/// Parses JSON; `what` names the text in errors ("line 3 of 'a.jsonl'"). Throws DataError if the text is not
/// UTF-8 or not JSON, is nested too deeply, or has a name twice in an object.
template <typename Json>
Json parse(std::string_view text, const std::string& what) {
  const auto fail = [&](const std::string& why) {
    throw DataError(fmt::format("{} cannot be read: {}.", what, why));
  };
  const auto bad = std::min(first_not_utf8(text), text.find('\0'));
  if (bad != std::string_view::npos) fail(fmt::format("its byte {} is not UTF-8", bad));
  return build<Json>(text, fail);
}

}  // namespace lockstep::json_tree

namespace lockstep {

/// Reads a JSON document of at most 64 MiB, such as a model's configuration or a data set's description.
/// Throws DataError, naming the file.
inline nlohmann::ordered_json read_json_document(const std::filesystem::path& path) {
  constexpr std::uint64_t kLargestDocument = std::uint64_t{64} << 20;
  InputFile file(path);
  if (file.size() > kLargestDocument) {
    throw DataError(fmt::format("'{}' has {} bytes, more than the limit of {}.", path.string(), file.size(),
                                kLargestDocument));
  }
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return json_tree::parse<nlohmann::ordered_json>(text, fmt::format("'{}'", path.string()));
}

}  // namespace lockstep
