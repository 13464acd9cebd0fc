#include "failure/error_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <ctime>

#include "core/json_text.hpp"
#include "core/text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

/// A longer file contains something else.
constexpr std::size_t kLongestFile = 4 << 20;
/// Contents are sent to other nodes, so longer ones are reduced.
constexpr std::size_t kLongestContent = 32 * 1024;
constexpr std::size_t kLongestErrorText = 8 * 1024;
constexpr int kDeepest = 8;

/// Deep nesting is left out by the parser: copying or writing it would need a deep stack.
Json parse_content(const std::string& text) {
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) { return depth < kDeepest; };
  Json json = Json::parse(text, shallow, false);
  const bool in_form = json.is_object() && json.contains("message");
  return in_form ? json : Json(nullptr);
}

/// The value at a JSON pointer; null if there is none.
const Json& value_at(const Json& content, const char* path) {
  static const Json kNothing;
  const Json::json_pointer pointer(path);
  return content.contains(pointer) ? content.at(pointer) : kNothing;
}

std::string to_plain_text(const Json& value) {
  return value.is_string() ? shorten_text(value.get_ref<const std::string&>(), kLongestErrorText) : "";
}

Json reduce_content(const Json& content) {
  Json extra = {{"timestamp", std::to_string(time_of(content))}};
  if (const std::string traceback = traceback_of(content); !traceback.empty())
    extra["py_callstack"] = traceback;
  if (is_secondary(content)) extra["is_secondary"] = true;
  return {{"message", {{"message", message_of(content)}, {"extraInfo", extra}}}};
}

}  // namespace

nlohmann::json error_content(const std::string& path) {
  const auto text = read_end(path, kLongestFile);
  if (!text) return nullptr;
  Json content = parse_content(*text);
  return content.is_null() || text->size() <= kLongestContent ? content : reduce_content(content);
}

std::string named_error_file(const std::string& path, bool kept) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "";
  if (!S_ISREG(status.st_mode)) return path + " (not read, as it is not a regular file)";
  if (static_cast<std::size_t>(status.st_size) > kLongestFile) return path + " (not read, as it is too long)";
  if (status.st_size == 0) return path + " (empty)";
  if (parse_content(read_end(path, kLongestFile).value_or("")).is_null())
    return path + " (damaged: not JSON in torchrun's format)";
  return kept ? path : "";
}

std::string message_of(const nlohmann::json& content) {
  const Json& inner = value_at(content, "/message/message");
  return to_plain_text(inner.is_null() ? value_at(content, "/message") : inner);
}

std::string traceback_of(const nlohmann::json& content) {
  return to_plain_text(value_at(content, "/message/extraInfo/py_callstack"));
}

std::int64_t time_of(const nlohmann::json& content) {
  const Json& inner = value_at(content, "/message/extraInfo/timestamp");
  const Json& time = inner.is_null() ? value_at(content, "/timestamp") : inner;
  if (time.is_number_integer()) return time.get<std::int64_t>();
  return parse_number<std::int64_t>(to_plain_text(time)).value_or(0);
}

bool is_secondary(const nlohmann::json& content) {
  return value_at(content, "/message/extraInfo/is_secondary") == Json(true);
}

std::string pass_on_error(nlohmann::json error, const Environment& environment, int exit_code) {
  const std::string file = find_variable(environment, "TORCHELASTIC_ERROR_FILE").value_or("");
  if (file.empty() || error.is_null()) return "";
  if (error.is_string()) {
    Json extra = {{"timestamp", fmt::to_string(std::time(nullptr))}};
    // After a signal: if an outer launcher sent it, something else was the cause.
    if (exit_code > 128) extra["is_secondary"] = true;
    error = {{"message", {{"message", error}, {"extraInfo", extra}}}};
  }
  Json& message = error["message"];
  // The older format, a plain string, cannot hold the code.
  if (message.is_object()) message["errorCode"] = exit_code;
  try {
    write_atomically(file, json_text(error));
  } catch (const Error& failure) {
    return fmt::format("the error is not passed on to TORCHELASTIC_ERROR_FILE: {}", failure.what());
  }
  return "";
}

}  // namespace lockstep::launch
