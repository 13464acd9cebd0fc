#pragma once

#include "tokenizers/pretrained/recipe_parts.hpp"

namespace lockstep::tokenizer::recipe {

// The recipes of the classes of SentencePiece's vocabularies, and of BPE on characters, named like these; see
// ClassRecipe.

ClassRecipe llama(ClassFields& fields, const FileParts& file);
ClassRecipe code_llama(ClassFields& fields, const FileParts& file);
ClassRecipe gemma(ClassFields& fields, const FileParts& file);
ClassRecipe herbert(ClassFields& fields, const FileParts& file);
ClassRecipe nllb(ClassFields& fields, const FileParts& file);
ClassRecipe mbart(ClassFields& fields, const FileParts& file);
ClassRecipe mbart50(ClassFields& fields, const FileParts& file);
ClassRecipe t5(ClassFields& fields, const FileParts& file);
ClassRecipe xlm_roberta(ClassFields& fields, const FileParts& file);
ClassRecipe camembert(ClassFields& fields, const FileParts& file);
ClassRecipe albert(ClassFields& fields, const FileParts& file);
ClassRecipe xlnet(ClassFields& fields, const FileParts& file);
ClassRecipe deberta_v2(ClassFields& fields, const FileParts& file);
ClassRecipe barthez(ClassFields& fields, const FileParts& file);
ClassRecipe big_bird(ClassFields& fields, const FileParts& file);
ClassRecipe pegasus(ClassFields& fields, const FileParts& file);
ClassRecipe rembert(ClassFields& fields, const FileParts& file);

}  // namespace lockstep::tokenizer::recipe
