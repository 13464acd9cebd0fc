#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace {

using lockstep::Tokenizer;

/// What every encoding promises: as many of everything as tokens, and places inside the text.
void check(const lockstep::tokenizer::Encoding& encoding, std::size_t bytes) {
  const auto count = encoding.size();
  const bool even = encoding.type_ids.size() == count && encoding.attention_mask.size() == count &&
                    encoding.special_tokens_mask.size() == count && encoding.offsets.size() == count &&
                    encoding.word_ids.size() == count && encoding.sequence_ids.size() == count &&
                    encoding.tokens.size() == count;
  if (!even) std::abort();
  for (const auto& place : encoding.offsets) {
    if (place.end > bytes) std::abort();
  }
}

}  // namespace

/// The input: a tokenizer.json, a zero byte, a text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto end = input.find('\0');
  try {
    const auto tokenizer = Tokenizer::from_json(input.substr(0, end), "fuzz").with_padding(std::nullopt);
    const auto text =
        end == std::string::npos ? std::string("some TEXT, na\xC3\xAFve") : input.substr(end + 1);
    const auto encoding = tokenizer.encode(text, {.return_tokens = true});
    check(encoding, text.size());
    static_cast<void>(tokenizer.decode(encoding.ids));
  } catch (const lockstep::Error&) {
  }
  return 0;
}
