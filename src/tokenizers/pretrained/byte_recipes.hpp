#pragma once

#include "tokenizers/pretrained/recipe_parts.hpp"

namespace lockstep::tokenizer::recipe {

// The recipes of the classes of WordPiece and byte-level BPE, named like these; see ClassRecipe.

ClassRecipe bert(ClassFields& fields, const FileParts& file);
ClassRecipe distil_bert(ClassFields& fields, const FileParts& file);
ClassRecipe mpnet(ClassFields& fields, const FileParts& file);
ClassRecipe funnel(ClassFields& fields, const FileParts& file);
ClassRecipe roberta(ClassFields& fields, const FileParts& file);
ClassRecipe blenderbot(ClassFields& fields, const FileParts& file);
ClassRecipe deberta(ClassFields& fields, const FileParts& file);
ClassRecipe gpt2(ClassFields& fields, const FileParts& file);
ClassRecipe gpt_neox(ClassFields& fields, const FileParts& file);
ClassRecipe qwen2(ClassFields& fields, const FileParts& file);
ClassRecipe qwen3_5(ClassFields& fields, const FileParts& file);
ClassRecipe cohere(ClassFields& fields, const FileParts& file);

}  // namespace lockstep::tokenizer::recipe
