#include "lib/data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/staged_folder.h"
#include "lib/data/replace.h"
#include "lib/data/shard_writer.h"
#include "lib/data/text_reader.h"
#include "lib/data/tokenizer.h"
#include "lib/data/verify.h"

namespace narrowgauge::data {
namespace {

constexpr size_t kBatchBytesPerWorker = size_t{512} * 1024;

size_t worker_count() { return std::max(1U, std::thread::hardware_concurrency()); }

// The tokens of every piece, encoded on all cores.
std::vector<std::vector<int32_t>> encode(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces) {
  std::vector<std::vector<int32_t>> tokens(pieces.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < pieces.size(); i = next++) {
        const auto& piece = pieces[i];
        tokens[i] =
            piece.continues ? tokenizer.encode_continuation(piece.text) : tokenizer.encode(piece.text);
        if (piece.ends) tokens[i].push_back(tokenizer.end_of_document());
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < std::min(worker_count(), pieces.size()); ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
  return tokens;
}

// Fills `pieces` with the next few MiB; false at the end of the text.
bool read_batch(TextReader& reader, std::vector<TextPiece>& pieces) {
  pieces.clear();
  size_t bytes = 0;
  TextPiece piece;
  while (bytes < worker_count() * kBatchBytesPerWorker && reader.next(piece)) {
    bytes += piece.text.size();
    pieces.push_back(std::move(piece));
  }
  return !pieces.empty();
}

}  // namespace

PrepareCounts prepare(const PrepareOptions& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  TextReader reader({options.inputs, options.jsonl, options.field, options.stop}, *tokenizer);
  StagedFolder folder(options.out);
  require_replaceable(folder.target(), options.overwrite);
  ShardWriter writer(folder.path(),
                     {tokenizer->vocab_size(), tokenizer->hash(), tokenizer->end_of_document()},
                     options.shard_tokens);
  PrepareCounts counts;
  std::vector<TextPiece> pieces;
  while (read_batch(reader, pieces)) {
    for (const auto& tokens : encode(*tokenizer, pieces)) writer.append(tokens);
    counts.documents +=
        std::count_if(pieces.begin(), pieces.end(), [](const TextPiece& piece) { return piece.ends; });
    counts.bytes = reader.bytes_read();
    counts.tokens = writer.token_count();
    if (options.on_progress) options.on_progress(counts);
  }
  if (counts.tokens == 0) {
    throw UserError(fmt::format("{}: no text in it, so there is nothing to prepare; correct --input",
                                fmt::join(options.inputs, ", ")));
  }
  writer.finish();
  counts.shards = writer.shard_count();
  tokenizer->save(folder.path());
  require_replaceable(folder.target(), options.overwrite);  // it may have changed since
  folder.publish();
  return counts;
}

int64_t verify_shards(const std::string& pattern) {
  const auto dataset = Dataset::open(pattern);
  verify_contents(*dataset);
  return dataset->token_count();
}

}  // namespace narrowgauge::data
