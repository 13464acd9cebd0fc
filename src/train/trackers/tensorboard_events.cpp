#include <algorithm>
#include <cmath>

#include "core/checksum.hpp"
#include "lockstep/train/trackers.hpp"
#include "train/trackers/protobuf.hpp"
#include "train/trackers/tensorboard_events.hpp"

namespace lockstep::events {
namespace {

using protobuf::Message;

// Event.
constexpr unsigned kTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
// Summary.Value.
constexpr unsigned kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9;
// HParamsPluginData.
constexpr unsigned kExperiment = 2, kSessionStart = 3, kSessionEnd = 4;
// DataType of a hyper-parameter.
constexpr std::uint64_t kString = 1, kBool = 2, kFloat64 = 3;

constexpr std::uint64_t kTensorOfStrings = 7;
constexpr std::uint64_t kStarted = 1;
constexpr std::uint64_t kSuccess = 1;

Message event(double time, std::int64_t step) {
  Message message;
  message.real(kTime, time);
  if (step != 0) message.number(kStep, static_cast<std::uint64_t>(step));
  return message;
}

std::string with_summary(double time, std::int64_t step, const Message& value) {
  return event(time, step).message(kSummary, Message().message(1, value)).bytes();
}

Message metadata(const std::string& plugin, const Message& content) {
  Message data;
  data.text(1, plugin);
  if (!content.bytes().empty()) data.message(2, content);
  return Message().message(1, data);
}

std::string of_hparams(double time, const std::string& tag, unsigned field, const Message& content) {
  const Message plugin = Message().message(field, content);
  Message value;
  value.text(kTag, "_hparams_/" + tag).message(kMetadata, metadata("hparams", plugin));
  return with_summary(time, 0, value);
}

std::uint64_t kind_of(const HyperParameter& parameter) {
  if (std::holds_alternative<bool>(parameter)) return kBool;
  return std::holds_alternative<std::string>(parameter) ? kString : kFloat64;
}

/// google.protobuf.Value.
Message value_of(const HyperParameter& parameter) {
  Message value;
  if (const auto* flag = std::get_if<bool>(&parameter)) value.number(4, *flag ? 1 : 0);
  if (const auto* whole = std::get_if<std::int64_t>(&parameter)) value.real(2, static_cast<double>(*whole));
  if (const auto* number = std::get_if<double>(&parameter)) value.real(2, *number);
  if (const auto* text = std::get_if<std::string>(&parameter)) value.text(3, *text);
  return value;
}

/// Leaves out zeros, as proto3 does.
void add_unless_zero(Message& message, unsigned field, double value) {
  if (value != 0) message.real(field, value);
}

Message histogram_message(const Histogram& histogram) {
  Message message;
  add_unless_zero(message, 1, histogram.min);
  add_unless_zero(message, 2, histogram.max);
  add_unless_zero(message, 3, histogram.count);
  add_unless_zero(message, 4, histogram.sum);
  add_unless_zero(message, 5, histogram.sum_squares);
  return message.reals(6, histogram.limits).reals(7, histogram.counts);
}

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

/// Masked, because a file of records may itself be a record, and a CRC of a CRC is weak.
std::string masked_crc(const std::string& bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return little_endian(((crc >> 15U) | (crc << 17U)) + 0xa282ead8U, 4);
}

}  // namespace

std::string file_version(double time) { return event(time, 0).text(kFileVersion, "brain.Event:2").bytes(); }

std::string session_start(double time, std::int64_t step) {
  return event(time, step).message(kSessionLog, Message().number(1, kStarted)).bytes();
}

std::string scalar(double time, std::int64_t step, const std::string& tag, double value) {
  return with_summary(time, step, Message().text(kTag, tag).real(kSimpleValue, static_cast<float>(value)));
}

std::string text(double time, std::int64_t step, const std::string& tag, const std::string& text) {
  const Message shape = Message().message(2, Message().number(1, 1));
  const Message tensor = Message().number(1, kTensorOfStrings).message(2, shape).text(8, text);
  const Message value = Message()
                            .text(kTag, tag + "/text_summary")
                            .message(kTensor, tensor)
                            .message(kMetadata, metadata("text", {}));
  return with_summary(time, step, value);
}

std::string histogram(double time, std::int64_t step, const std::string& tag, const Histogram& histogram) {
  return with_summary(time, step,
                      Message().text(kTag, tag).message(kHistogram, histogram_message(histogram)));
}

std::string experiment(double time, const HyperParameters& parameters,
                       const std::vector<std::string>& metrics) {
  Message content;
  for (const auto& [name, value] : parameters)
    content.message(4, Message().text(1, name).number(4, kind_of(value)));
  for (const auto& name : metrics) content.message(5, Message().message(1, Message().text(2, name)));
  return of_hparams(time, "experiment", kExperiment, content);
}

std::string session_values(double time, const HyperParameters& parameters) {
  Message content;
  for (const auto& [name, value] : parameters)
    content.message(1, Message().text(1, name).message(2, value_of(value)));
  return of_hparams(time, "session_start_info", kSessionStart, content);
}

std::string session_end(double time) {
  return of_hparams(time, "session_end_info", kSessionEnd, Message().number(1, kSuccess));
}

std::string record(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  return length + masked_crc(length) + event + masked_crc(event);
}

}  // namespace lockstep::events
