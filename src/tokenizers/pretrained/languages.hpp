#pragma once

#include <string>
#include <vector>

namespace lockstep::tokenizer {

/// The language tokens of NLLB, mBART and mBART-50.
const std::vector<std::string>& nllb_languages();
const std::vector<std::string>& mbart_languages();
const std::vector<std::string>& mbart50_languages();

}  // namespace lockstep::tokenizer
