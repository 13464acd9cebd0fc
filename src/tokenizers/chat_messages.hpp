#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

/// The messages as templates take them: without members that are null, and with the reasoning under each of
/// its names. Throws UsageError if they are not a list of objects, or there are none.
nlohmann::ordered_json prepare_messages(const nlohmann::ordered_json& messages);

/// Marks the end of the last message's text, where the rendered text is to end. Returns that text. Throws
/// UsageError for a message without text.
std::string mark_final_message(nlohmann::ordered_json& messages);

/// The rendered text up to the mark. Throws DataError if the template did not write the message.
std::string cut_at_mark(const std::string& rendered, const std::string& final_text);

}  // namespace lockstep::tokenizer
