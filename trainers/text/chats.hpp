#pragma once

#include <cstdint>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"

namespace texts {

/// The chat template in the file that --chat-template-path names; empty without a file. Throws DataError if
/// it is no regular file, cannot be read or is empty.
std::string read_chat_template(const std::string& path);

/// Writes that file, if there is one, to the output_dir as the tokenizer's chat template. Rank 0 does it.
void save_chat_template(const lockstep::Trainer& trainer, const std::string& path);

/// Whether the end of an answer is trained on where the template says what the assistant says: whether the
/// last token of its `{% generation %}` block is a special one, whitespace aside. Probed, as trl does, with
/// an answer that another message follows. False if the template refuses such a conversation.
bool is_end_of_turn_trained(const lockstep::Tokenizer& tokenizer, const std::string& chat_template);

/// The token that pads texts of a language model: pad_token, otherwise eos_token, otherwise 0.
std::int64_t padding_token(const lockstep::Tokenizer& tokenizer);

}  // namespace texts
