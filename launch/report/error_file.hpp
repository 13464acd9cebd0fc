#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::launch {

/// The content of an error file; null where there is none, or it is no JSON object with a "message", or is too
/// long to be one. Never throws: a broken file hides no failure. *Local*.
nlohmann::json error_content(const std::string& path);

/// Writes the content of the error file of the rank that failed to the file that whoever started the launcher has
/// named for it (TORCHELASTIC_ERROR_FILE), with the exit code in `message.errorCode`, as torchrun does. So a
/// scheduler that runs the launcher as its own "rank" learns the cause. Does nothing where `to` is empty or
/// `content` is null. Throws lockstep::Error, naming the file, when `to` cannot be written; then it is as it
/// was. *Local*.
void pass_on_error_file(nlohmann::json content, const std::string& to, int exit_code);

/// The last lines of a log file, at most `count` of them and some kilobytes; empty where there is no such
/// file. *Local*.
std::string last_lines(const std::string& path, int count);

}  // namespace lockstep::launch
