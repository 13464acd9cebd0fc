#include "checkpoint/safetensors_json.hpp"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::safetensors {
namespace {

constexpr const char* kMetadata = "__metadata__";

/// Checks the parser's events against the only structure that a header may have:
/// {"__metadata__": {text: text}, name: {"dtype": text, "shape": [number], "data_offsets": [number, number]}}
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Header take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (state_ == State::document) {
      state_ = State::root;
    } else if (state_ == State::root_value) {
      state_ = in_metadata_ ? State::metadata : State::entry;
      fields_.clear();
    } else {
      fail("an object where none belongs");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::entry) finish_entry();
    state_ = state_ == State::root ? State::finished : State::root;
    return true;
  }

  bool key(string_t& name) override {
    if (state_ == State::root) {
      begin_root_value(name);
    } else if (state_ == State::metadata) {
      metadata_key_ = name;
      if (!header_.metadata.emplace(name, "").second) fail(fmt::format("the metadata key '{}' twice", name));
      state_ = State::metadata_value;
    } else {
      begin_field(name);
    }
    return true;
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata_value) {
      header_.metadata[metadata_key_] = text;
      state_ = State::metadata;
    } else if (state_ == State::dtype) {
      entry().dtype = text;
      state_ = State::entry;
    } else {
      fail(fmt::format("the text '{}' where none belongs", text));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::shape && state_ != State::offsets) fail("a list where none belongs");
    if (in_list_) fail("a list in a list");
    in_list_ = true;
    offsets_read_ = 0;
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && offsets_read_ != 2) {
      fail(fmt::format("{} data_offsets instead of 2", offsets_read_));
    }
    in_list_ = false;
    state_ = State::entry;
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (!in_list_) fail(fmt::format("the number {} where none belongs", number));
    if (state_ == State::shape) {
      add_dimension(number);
    } else {
      add_offset(number);
    }
    return true;
  }

  bool number_integer(number_integer_t number) override {
    fail(fmt::format("the negative number {} where a size belongs", number));
  }
  bool number_float(number_float_t, const string_t& text) override {
    fail(fmt::format("the number {}, which is not an integer below 2^64", text));
  }
  bool null() override { fail("a null"); }
  bool boolean(bool) override { fail("a boolean"); }
  bool binary(binary_t&) override { fail("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(fmt::format("no valid UTF-8 JSON at its byte {} ({})", position, error.what()));
  }

 private:
  enum class State {
    document,
    root,
    root_value,
    metadata,
    metadata_value,
    entry,
    dtype,
    shape,
    offsets,
    finished
  };

  Entry& entry() { return header_.entries.back(); }

  void begin_root_value(const std::string& name) {
    if (!names_.insert(name).second) fail(fmt::format("the name '{}' twice", name));
    in_metadata_ = name == kMetadata;
    if (!in_metadata_) header_.entries.push_back({.name = name, .dtype = {}, .shape = {}});
    state_ = State::root_value;
  }

  void begin_field(const std::string& name) {
    if (!fields_.insert(name).second) fail(fmt::format("the field '{}' twice", name));
    if (name == "dtype") {
      state_ = State::dtype;
    } else if (name == "shape") {
      state_ = State::shape;
    } else if (name == "data_offsets") {
      state_ = State::offsets;
    } else {
      fail(fmt::format("the field '{}', which the format does not know", name));
    }
  }

  void add_dimension(std::uint64_t size) {
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(fmt::format("a dimension of {}, which exceeds 2^63 - 1", size));
    }
    if (entry().shape.size() == kMostDimensions) {
      fail(fmt::format("more than {} dimensions", kMostDimensions));
    }
    entry().shape.push_back(static_cast<std::int64_t>(size));
  }

  void add_offset(std::uint64_t offset) {
    if (offsets_read_ == 2) fail("more than 2 data_offsets");
    (offsets_read_++ == 0 ? entry().begin : entry().end) = offset;
  }

  void finish_entry() {
    if (fields_.size() != 3) fail("no dtype, shape or data_offsets: all three are needed");
  }

  [[noreturn]] void fail(const std::string& what) const {
    const bool in_entry = state_ != State::root && !in_metadata_ && !header_.entries.empty();
    const std::string where = in_entry ? "tensor '" + header_.entries.back().name + "'" : "the header";
    throw DataError(fmt::format("'{}' is not a valid safetensors file: {} has {}.", file_, where, what));
  }

  const std::string& file_;
  Header header_;
  State state_ = State::document;
  bool in_metadata_ = false;
  bool in_list_ = false;
  int offsets_read_ = 0;
  std::string metadata_key_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
};

}  // namespace

Header read_json(std::string_view json, const std::string& file) {
  // The parser skips a byte order mark and ends at a zero byte; the format allows neither.
  if (json.empty() || json.front() != '{') {
    throw DataError("'" + file + "' is not a valid safetensors file: its header does not begin with '{'.");
  }
  if (json.find('\0') != std::string_view::npos) {
    throw DataError("'" + file + "' is not a valid safetensors file: there is a zero byte in its header.");
  }
  Reader reader(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

std::string write_json(const Header& header) {
  const auto text = [](const auto& value) { return json_text(nlohmann::json(value)); };
  std::string json =
      header.metadata.empty() ? "" : fmt::format("{}:{}", text(kMetadata), text(header.metadata));
  for (const auto& entry : header.entries) {
    json += fmt::format(R"({}{}:{{"dtype":{},"shape":{},"data_offsets":[{},{}]}})", json.empty() ? "" : ",",
                        text(entry.name), text(entry.dtype), text(entry.shape), entry.begin, entry.end);
  }
  return "{" + json + "}";
}

}  // namespace lockstep::safetensors
