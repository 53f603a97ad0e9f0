#include "lib/train/text_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/base/error.h"

namespace narrowgauge::train {

std::vector<int32_t> prompt_tokens(const std::string& prompt, const data::Tokenizer* tokenizer,
                                   int64_t vocab_size, int32_t end_of_document) {
  std::vector<int32_t> ids;
  if (tokenizer != nullptr) {
    ids = tokenizer->encode(prompt);
  } else {
    const char* at = prompt.data();
    const char* const end = at + prompt.size();
    while (at != end) {
      if (*at == ' ' || *at == ',') {
        ++at;
        continue;
      }
      int32_t id = -1;
      const auto [rest, error] = std::from_chars(at, end, id);
      if (error != std::errc() || id < 0 || id >= vocab_size) {
        throw UserError(
            fmt::format("the run has no tokenizer, so the prompt must be token ids from 0 to {} such as "
                        "\"12 7 301\", but it is \"{}\"",
                        vocab_size - 1, prompt));
      }
      ids.push_back(id);
      at = rest;
    }
  }
  if (ids.empty()) ids.push_back(std::max<int32_t>(0, end_of_document));
  return ids;
}

}  // namespace narrowgauge::train
