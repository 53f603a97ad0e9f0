#include "lib/train/sample.h"

#include "lib/model/generate.h"
#include "lib/train/text_stream.h"

namespace narrowgauge::train {

SampleText sample_text(model::Transformer& model, const Corpus& corpus, const TrainConfig& config) {
  const data::Tokenizer* tokenizer = corpus.tokenizer.get();
  const std::vector<int32_t> prompt =
      prompt_tokens(config.sample_prompt, tokenizer, model.config().vocab_size, corpus.end_of_document);
  TextStream stream(tokenizer);
  SampleText sample{.prompt = config.sample_prompt, .text = {}};
  model::generate(model, prompt,
                  {.max_tokens = config.sample_tokens,
                   .temperature = 0.8,
                   .top_k = 0,
                   .top_p = 0.95,
                   .seed = static_cast<uint64_t>(config.seed),
                   .stop_token = corpus.end_of_document,
                   .end_of_document = corpus.end_of_document},
                  [&](int32_t id) { sample.text += stream.push(id); });
  sample.text += stream.finish();
  return sample;
}

}  // namespace narrowgauge::train
