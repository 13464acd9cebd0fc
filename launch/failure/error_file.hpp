#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::launch {

/// The content of an error file; null where there is none, or it is no JSON object with a "message". One that
/// is very long, or deeply nested, is cut down to what torchrun's form says. Reads regular files only, and so
/// never waits. Never throws: a broken file hides no failure. *Local*.
nlohmann::json error_content(const std::string& path);

/// How a report names the error file: its path where it is `kept`, with what is wrong with it where something
/// is; else empty. *Local*.
std::string named_error_file(const std::string& path, bool kept);

/// The parts of a content in torchrun's form: `{"message": "text"}` or `{"message": {"message": "text",
/// "extraInfo": {"py_callstack": "text", "timestamp": "seconds"}}}`. Empty, and 0, where it does not say.
std::string message_of(const nlohmann::json& content);
std::string traceback_of(const nlohmann::json& content);
std::int64_t time_of(const nlohmann::json& content);
/// Whether the rank says itself that it only lost another one, or waited for it in vain
/// (`extraInfo.is_secondary`, which programs of the library write).
bool is_secondary(const nlohmann::json& content);

/// Writes the content of the error file of the rank that failed to the file that whoever started the launcher
/// has named for it (TORCHELASTIC_ERROR_FILE), with the exit code in `message.errorCode`, as torchrun does.
/// So a scheduler that runs the launcher as its own "rank" learns the cause. Does nothing where `to` is empty
/// or `content` is null. Throws lockstep::Error, naming the file, when `to` cannot be written; then it is as
/// it was. *Local*.
void pass_on_error_file(nlohmann::json content, const std::string& to, int exit_code);

}  // namespace lockstep::launch
