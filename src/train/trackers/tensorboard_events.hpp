#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/trackers.hpp"

namespace lockstep::events {

// The messages of TensorBoard's event files, as bytes. The field numbers are those of TensorFlow's
// event.proto, summary.proto and tensor.proto, and of the hparams plugin's proto files. Times are in seconds
// since 1970.

/// The first event of every file.
std::string file_version(double time);
/// Invalidates what earlier files have from `step` on.
std::string session_start(double time, std::int64_t step);
std::string scalar(double time, std::int64_t step, const std::string& tag, double value);
std::string text(double time, std::int64_t step, const std::string& tag, const std::string& text);
std::string histogram(double time, std::int64_t step, const std::string& tag, const Histogram& histogram);

/// For the hparams plugin: the types of the parameters and the metrics of the run; the values; and that the
/// run ended successfully.
std::string experiment(double time, const HyperParameters& parameters,
                       const std::vector<std::string>& metrics);
std::string session_values(double time, const HyperParameters& parameters);
std::string session_end(double time);

/// An event as stored in the file: its length, its bytes, and a masked CRC-32C of each (TFRecord).
std::string record(const std::string& event);

}  // namespace lockstep::events
