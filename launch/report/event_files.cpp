#include "report/event_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/checksum.hpp"
#include "core/input_file.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "report/lenient_json.hpp"
#include "report/number_words.hpp"
#include "report/protobuf_reader.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// Event and SessionLog; Summary.Value; TensorProto; SummaryMetadata; HParamsPluginData. See
// src/train/trackers/tensorboard_events.cpp.
constexpr unsigned kTime = 1, kStep = 2, kSummary = 5, kSessionLog = 7;
constexpr unsigned kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
constexpr unsigned kDtype = 1, kContent = 4, kFloats = 5, kDoubles = 6, kStrings = 8;
constexpr std::uint64_t kSessionStarts = 1, kFloatType = 1, kDoubleType = 2;
constexpr unsigned kSessionStartInfo = 3;

constexpr std::uint64_t kLargestRecord = std::uint64_t{64} << 20;

/// The last field of that number, as readers of protobuf take it.
const ProtobufField* last_of(const std::vector<ProtobufField>& fields, unsigned number) {
  const auto found = std::find_if(fields.rbegin(), fields.rend(),
                                  [number](const ProtobufField& field) { return field.number == number; });
  return found == fields.rend() ? nullptr : &*found;
}

std::vector<ProtobufField> fields_in(const std::vector<ProtobufField>& fields, unsigned number) {
  const auto* const field = last_of(fields, number);
  return field == nullptr ? std::vector<ProtobufField>()
                          : protobuf_fields(field->bytes).value_or(std::vector<ProtobufField>());
}

/// The number in bytes that begin with a float or a double.
std::optional<double> packed_number(std::string_view bytes, bool is_double) {
  const std::size_t size = is_double ? 8 : 4;
  if (bytes.size() != size) return std::nullopt;
  ProtobufField field;
  for (std::size_t i = 0; i < size; ++i)
    field.bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return is_double ? field.as_double() : field.as_float();
}

/// A scalar as TensorFlow 2 writes it: a tensor of one element.
std::optional<double> tensor_number(const std::vector<ProtobufField>& tensor) {
  const auto* const dtype = last_of(tensor, kDtype);
  if (dtype == nullptr || (dtype->bits != kFloatType && dtype->bits != kDoubleType)) return std::nullopt;
  const bool is_double = dtype->bits == kDoubleType;
  if (const auto* const content = last_of(tensor, kContent)) return packed_number(content->bytes, is_double);
  const auto* const value = last_of(tensor, is_double ? kDoubles : kFloats);
  if (value == nullptr) return std::nullopt;
  if (value->is_bytes) return packed_number(value->bytes, is_double);
  return is_double ? value->as_double() : value->as_float();
}

/// google.protobuf.Value.
std::string parameter_text(const std::vector<ProtobufField>& value) {
  if (value.empty()) return "none";
  const ProtobufField& field = value.back();
  if (field.number == 2) return number_words(field.as_double());
  if (field.number == 3) return std::string(field.bytes);
  if (field.number == 4) return field.bits != 0 ? "true" : "false";
  return "none";
}

/// The parameters of the plugin hparams, in the metadata of a value.
void add_parameters(RunLog& log, const std::vector<ProtobufField>& metadata) {
  const auto plugin = fields_in(metadata, 1);
  const auto* const name = last_of(plugin, 1);
  if (name == nullptr || name->bytes != "hparams") return;
  for (const auto& entry : fields_in(fields_in(plugin, 2), kSessionStartInfo)) {
    const auto pair = entry.number == 1 ? protobuf_fields(entry.bytes) : std::nullopt;
    if (!pair) continue;
    if (const auto* const key = last_of(*pair, 1))
      log.add_parameter(std::string(key->bytes), parameter_text(fields_in(*pair, 2)));
  }
}

/// The arguments that transformers' Trainer logs as a text of JSON.
void add_arguments(RunLog& log, const std::vector<ProtobufField>& tensor) {
  const auto* const text = last_of(tensor, kStrings);
  if (text == nullptr) return;
  try {
    const auto arguments = parse_python_text(text->bytes, "the text \"args\"");
    if (!arguments.is_object()) return;
    for (const auto& [name, value] : arguments.items()) log.add_parameter(name, plain_text(value));
  } catch (const DataError& error) {
    log.add_problem(fmt::format("{}: {}", log.source(), error.what()));
  }
}

void add_value(RunLog& log, const std::vector<ProtobufField>& value, double step, double time) {
  add_parameters(log, fields_in(value, kMetadata));
  const auto* const tag = last_of(value, kTag);
  if (tag == nullptr) return;
  if (tag->bytes == "args/text_summary") return add_arguments(log, fields_in(value, kTensor));
  const auto* const simple = last_of(value, kSimpleValue);
  const auto number =
      simple != nullptr ? std::optional(simple->as_float()) : tensor_number(fields_in(value, kTensor));
  if (number) log.add(tag->bytes, {step, *number, time});
}

/// Returns whether the bytes are an Event.
bool add_event(RunLog& log, std::string_view bytes) {
  const auto event = protobuf_fields(bytes);
  if (!event) return false;
  const auto* const step_field = last_of(*event, kStep);
  const auto* const time_field = last_of(*event, kTime);
  const double step =
      step_field == nullptr ? 0 : static_cast<double>(static_cast<std::int64_t>(step_field->bits));
  const double time = time_field == nullptr ? kUnknown : time_field->as_double();
  const auto session = fields_in(*event, kSessionLog);
  if (const auto* const status = last_of(session, 1); status != nullptr && status->bits == kSessionStarts) {
    // It invalidates what earlier files have from its step on.
    log.go_back_to(step - 1);
    const LoggedStart start{std::max(0.0, step - 1), time};
    // The tracker writes each start twice.
    const auto& known = log.starts();
    const bool is_again =
        !known.empty() && known.back().step == start.step && known.back().time == start.time;
    if (!is_again) log.add_start(start);
  }
  for (const auto& entry : fields_in(*event, kSummary)) {
    const auto value = entry.number == 1 ? protobuf_fields(entry.bytes) : std::nullopt;
    if (value) add_value(log, *value, step, time);
  }
  return true;
}

/// As TFRecord masks it.
std::uint32_t masked_checksum(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

std::uint64_t little_endian_number(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

/// The records of a file: length, its checksum, bytes, their checksum.
void read_event_file(RunLog& log, const fs::path& path) {
  InputFile file(path);
  std::uint64_t left = file.size();
  constexpr std::uint64_t kHead = 12, kTail = 4;
  std::string bytes;
  const auto damaged = [&](const char* what) {
    log.add_problem(fmt::format("{}: {} at its byte {}: it was read up to there.", path.filename().string(),
                                what, file.size() - left));
  };
  while (left >= kHead) {
    bytes.resize(kHead);
    file.read(bytes.data(), bytes.size());
    const std::string_view head = bytes;
    const std::uint64_t size = little_endian_number(head.substr(0, 8));
    if (little_endian_number(head.substr(8)) != masked_checksum(head.substr(0, 8)))
      return damaged("the length of a record is damaged");
    if (size > kLargestRecord) return damaged("a record is larger than 64 MiB");
    // The end of a file that is being written.
    if (left < kHead + size + kTail) return;
    bytes.resize(static_cast<std::size_t>(size + kTail));
    file.read(bytes.data(), bytes.size());
    const std::string_view event = std::string_view(bytes).substr(0, static_cast<std::size_t>(size));
    if (little_endian_number(std::string_view(bytes).substr(event.size())) != masked_checksum(event))
      return damaged("a record is damaged");
    if (!add_event(log, event)) return damaged("a record is not an event");
    left -= kHead + size + kTail;
  }
}

}  // namespace

RunLog read_event_files(const std::vector<fs::path>& paths, const std::string& source) {
  RunLog log(source);
  auto sorted = paths;
  std::ranges::sort(sorted);
  for (const auto& path : sorted) {
    try {
      read_event_file(log, path);
    } catch (const DataError& error) {
      log.add_problem(error.what());
    }
  }
  return log;
}

std::string host_in_event_file_name(const std::string& name) {
  // events.out.tfevents.<seconds>.<host>.<process>.<counter>; a host's name may have dots.
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  if (!name.starts_with(kPrefix)) return "";
  const auto begin = name.find('.', kPrefix.size());
  if (begin == std::string::npos) return "";
  std::string host = name.substr(begin + 1);
  for (int numbers = 0; numbers < 2; ++numbers) {
    const auto dot = host.rfind('.');
    if (dot == std::string::npos || !parse_number<long>(std::string_view(host).substr(dot + 1))) break;
    host.erase(dot);
  }
  return host;
}

}  // namespace lockstep::launch
