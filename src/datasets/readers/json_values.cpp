#include "datasets/readers/json_values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/json.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

using Json = nlohmann::json;

/// A name that an object has twice; null if all differ.
const std::string* name_given_twice(const Value::Fields& fields) {
  std::vector<const std::string*> names;
  names.reserve(fields.size());
  for (const auto& field : fields) names.push_back(&field.first);
  const auto before = [](const std::string* a, const std::string* b) { return *a < *b; };
  const auto same = [](const std::string* a, const std::string* b) { return *a == *b; };
  std::sort(names.begin(), names.end(), before);
  const auto twice = std::adjacent_find(names.begin(), names.end(), same);
  return twice == names.end() ? nullptr : *twice;
}

/// Builds a value from the parser's events, without recursion over the input.
class ValueBuilder final : public nlohmann::json_sax<Json> {
 public:
  ValueBuilder(const std::string& what, LongIntegers long_integers)
      : what_(what), long_integers_(long_integers) {}

  bool null() override { return put(Value()); }
  bool boolean(bool value) override { return put(Value(value)); }
  bool number_integer(number_integer_t value) override { return put(Value(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return put(Value(std::uint64_t{value})); }
  bool number_float(number_float_t value, const string_t& digits) override {
    const bool is_integer = digits.find_first_of(".eE") == std::string::npos;
    if (is_integer && long_integers_ == LongIntegers::as_digits) return put(Value(Bytes{digits}));
    return put(Value(value));
  }
  bool string(string_t& value) override { return put(Value(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool key(string_t& name) override {
    open_.back().fields.emplace_back(std::move(name), Value());
    return true;
  }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_array() override {
    auto list = std::move(open_.back().list);
    open_.pop_back();
    return put(Value(std::move(list)));
  }
  bool end_object() override {
    auto fields = std::move(open_.back().fields);
    open_.pop_back();
    if (const auto* twice = name_given_twice(fields))
      fail(
          fmt::format("it gives the name '{}' twice in one object", twice->substr(0, json_tree::kNameShown)));
    return put(Value(std::move(fields)));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(fmt::format("it is not valid JSON at its byte {} ({})", position, error.what()));
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw DataError(fmt::format("{} cannot be read: {}.", what_, why));
  }

  Value take() { return std::move(root_); }

 private:
  /// A list or an object that has begun.
  struct Part {
    bool is_list = false;
    Value::List list = {};
    Value::Fields fields = {};
  };

  bool put(Value&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_list) {
      open_.back().list.push_back(std::move(value));
    } else {
      open_.back().fields.back().second = std::move(value);
    }
    return true;
  }

  bool open(bool is_list) {
    if (open_.size() == json_tree::kDeepest)
      fail(fmt::format("its lists and objects are nested more than {} levels deep", json_tree::kDeepest));
    open_.push_back({.is_list = is_list});
    return true;
  }

  const std::string& what_;
  LongIntegers long_integers_;
  Value root_;
  std::vector<Part> open_;
};

}  // namespace

Value parse_json(std::string_view text, const std::string& what, LongIntegers long_integers) {
  ValueBuilder builder(what, long_integers);
  const auto bad = std::min(first_not_utf8(text), text.find('\0'));
  if (bad != std::string_view::npos) builder.fail(fmt::format("its byte {} is not UTF-8", bad));
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

bool is_json(std::string_view text) { return Json::accept(text.begin(), text.end()); }

}  // namespace lockstep::readers
