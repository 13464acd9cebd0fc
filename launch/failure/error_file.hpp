#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The content of an error file; null if there is none, or if it is not a JSON object with a "message". Deep
/// nesting is left out. Of a long file only the fields of torchrun's format are kept. Reads regular files
/// only, so it never blocks. Does not throw: a damaged file hides no failure. *Local*.
nlohmann::json error_content(const std::string& path);

/// The error file in a report: its path if it is `kept`, with what is wrong with it, if anything; otherwise
/// empty. *Local*.
std::string named_error_file(const std::string& path, bool kept);

/// The fields of torchrun's format: `{"message": "text"}` or `{"message": {"message": "text", "extraInfo":
/// {"py_callstack": "text", "timestamp": "seconds"}}}`. Empty, or 0, if missing.
std::string message_of(const nlohmann::json& content);
std::string traceback_of(const nlohmann::json& content);
std::int64_t time_of(const nlohmann::json& content);
/// Whether the rank says that it only lost another rank, or waited for it until the timeout
/// (`extraInfo.is_secondary`, which programs of the library write).
bool is_secondary(const nlohmann::json& content);

/// Writes why the job failed to the launcher's own TORCHELASTIC_ERROR_FILE, as torchrun does: the content of
/// the failed rank's error file, or a text if no rank is the cause, with the exit code in
/// `message.errorCode`. So a scheduler that runs the launcher as its own "rank" gets the cause. Does nothing
/// without that variable, or if `error` is null. Returns why the file cannot be written; it is then
/// unchanged. *Local*.
std::string pass_on_error(nlohmann::json error, const Environment& environment, int exit_code);

}  // namespace lockstep::launch
