#include "json_values.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

constexpr std::size_t kDeepest = 64;

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  throw DataError(what + " is no valid JSON: " + why + ".");
}

/// Builds the value from the parser's events, with the open lists and objects in a stack.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const std::string& what) : what_(what) {}
  Value take() { return std::move(root_); }

  bool null() override { return put(Value()); }
  bool boolean(bool value) override { return put(Value(value)); }
  bool number_integer(number_integer_t value) override { return put(Value(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return put(Value(std::uint64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return put(Value(value)); }
  bool string(string_t& value) override { return put(Value(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto& frame = open_.back();
    const bool taken = std::any_of(frame.fields.begin(), frame.fields.end(),
                                   [&](const auto& one) { return one.first == name; });
    if (taken) fail(what_, "it gives the name '" + name.substr(0, 100) + "' twice in one object");
    frame.key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(what_, "an error at its byte " + std::to_string(position));
    return false;
  }

 private:
  struct Frame {
    bool object;
    std::string key;
    Value::List list;
    Value::Fields fields;
  };

  bool put(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().object) {
      open_.back().fields.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }

  bool open(bool object) {
    if (open_.size() == kDeepest)
      fail(what_, "its lists and objects lie more than " + std::to_string(kDeepest) + " levels deep");
    open_.push_back({object, {}, {}, {}});
    return true;
  }

  bool close() {
    Frame frame = std::move(open_.back());
    open_.pop_back();
    return put(frame.object ? Value(std::move(frame.fields)) : Value(std::move(frame.list)));
  }

  const std::string& what_;
  Value root_;
  std::vector<Frame> open_;
};

}  // namespace

Value parse_value(std::string_view text, const std::string& what) {
  const auto bad = std::min(first_not_utf8(text), text.find('\0'));
  if (bad != std::string_view::npos) fail(what, "its byte " + std::to_string(bad) + " is no text in UTF-8");
  Builder builder(what);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace lockstep::readers
