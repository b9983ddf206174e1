#include "server/form_cache.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/grammar/grammar_constraint.h"

namespace headrace {

std::shared_ptr<const TokenTrie> FormCache::trie() {
  std::call_once(once_, [&] { trie_ = std::make_shared<const TokenTrie>(tokenizer_, marks_); });
  return trie_;
}

Result<std::shared_ptr<const TokenConstraint>> FormCache::find(const AnswerPlan& plan) {
  std::string key = plan.key();
  std::list<Entry> forgotten;  // let go behind the lock
  {
    std::lock_guard lock(mutex_);
    const auto known = std::find_if(forms_.begin(), forms_.end(),
                                    [&](const Entry& entry) { return entry.first == key; });
    if (known != forms_.end()) {
      forms_.splice(forms_.begin(), forms_, known);
      forget(forgotten);
      return known->second;
    }
  }
  HR_ASSIGN_OR_RETURN(auto grammar, answer_grammar(plan));
  Result<std::shared_ptr<const TokenConstraint>> form =
      make_grammar_constraint(std::move(grammar), trie(), ends_in_time_);
  if (!form.ok()) {
    const std::string& field = plan.words.field.empty() ? "tools" : plan.words.field;
    return invalid_argument(fmt::format("{}: {}", field, form.status().message()),
                            root_field(field));
  }
  std::lock_guard lock(mutex_);
  forms_.emplace_front(std::move(key), *form);
  forget(forgotten);
  return form;
}

// Forms grow as answers are made of them.
void FormCache::forget(std::list<Entry>& forgotten) {
  size_t bytes = 0;
  auto kept = forms_.begin();
  for (size_t count = 0; kept != forms_.end(); ++kept) {
    bytes += kept->second->bytes();
    if (++count > kFormsMax || (count > 1 && bytes > kBytesMax)) break;
  }
  forgotten.splice(forgotten.end(), forms_, kept, forms_.end());
}

}  // namespace headrace
