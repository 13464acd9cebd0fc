#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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

/// Copies the content of the failed rank's error file to `to`, the launcher's own TORCHELASTIC_ERROR_FILE,
/// with the exit code in `message.errorCode`, as torchrun does. So a scheduler that runs the launcher as its
/// own "rank" gets the cause. Does nothing if `to` is empty or `content` is null. Throws lockstep::Error that
/// names the file if `to` cannot be written; it is then unchanged. *Local*.
void pass_on_error_file(nlohmann::json content, const std::string& to, int exit_code);

}  // namespace lockstep::launch
