#pragma once

#include "tokenizers/pretrained/recipe_parts.hpp"

namespace lockstep::tokenizer::recipe {

// The recipes of the classes, named like these; see ClassRecipe.

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
