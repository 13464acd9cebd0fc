#include "models/bart_form.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

constexpr BartForm kForms[] = {
    {"bart", "BART", "BartForConditionalGeneration", false, true, false, true, BartForm::learned, false},
    {"mbart", "mBART", "MBartForConditionalGeneration", true, true, true, true, BartForm::learned, true},
    {"m2m_100", "M2M100", "M2M100ForConditionalGeneration", true, false, true, false,
     BartForm::sines_without_padding, false},
    {"marian", "Marian", "MarianMTModel", false, false, false, true, BartForm::sines, false},
};

}  // namespace

const BartForm& form_of(const std::string& model_type) {
  for (const auto& form : kForms) {
    if (form.model_type == model_type) return form;
  }
  throw UsageError("BartConfig's model_type is '" + model_type +
                   "', expected bart, mbart, m2m_100 or marian");
}

}  // namespace lockstep::models
