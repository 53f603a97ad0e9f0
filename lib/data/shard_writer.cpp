#include "lib/data/shard_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "lib/data/shard_format.h"

namespace narrowgauge::data {
namespace {
constexpr size_t kBufferBytes = 1 << 20;
}

ShardWriter::ShardWriter(std::filesystem::path folder, ShardSetInfo set, int64_t shard_tokens)
    : folder_(std::move(folder)),
      set_(set),
      shard_tokens_(shard_tokens),
      token_bytes_(set.vocab_size <= 65536 ? 2 : 4) {
  buffer_.reserve(kBufferBytes + 4);
}

void ShardWriter::append(std::span<const int32_t> tokens) {
  for (const int32_t id : tokens) {
    if (id < 0 || id >= set_.vocab_size) {
      throw std::logic_error(fmt::format("token id {} outside the vocabulary of {}", id, set_.vocab_size));
    }
    if (!file_.is_open()) open_shard();
    const size_t at = buffer_.size();
    buffer_.resize(at + static_cast<size_t>(token_bytes_));
    std::memcpy(buffer_.data() + at, &id, static_cast<size_t>(token_bytes_));  // little-endian
    if (buffer_.size() >= kBufferBytes) flush();
    if (++in_shard_ == shard_tokens_) close_shard();
  }
  total_ += static_cast<int64_t>(tokens.size());
}

void ShardWriter::finish() {
  if (file_.is_open()) close_shard();
}

void ShardWriter::open_shard() {
  path_ = folder_ / fmt::format("shard-{:06}{}", shards_, kShardExtension);
  file_ = open_to_write(path_);
  const ShardHeader blank{};  // its place; no magic, so that an unfinished file is no shard
  write_all(file_.get(), &blank, sizeof(blank), path_);
  sum_ = Checksum();
}

void ShardWriter::flush() {
  sum_.update(buffer_.data(), buffer_.size());
  write_all(file_.get(), buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

void ShardWriter::close_shard() {
  flush();
  ShardHeader header{};
  header.magic = kShardMagic;
  header.version = kShardVersion;
  header.token_bytes = static_cast<uint32_t>(token_bytes_);
  header.count = in_shard_;
  header.vocab_size = set_.vocab_size;
  header.tokenizer_hash = set_.tokenizer_hash;
  header.end_of_document = set_.end_of_document;
  header.payload_checksum = sum_.value();
  header.header_checksum = checksum(&header, offsetof(ShardHeader, header_checksum));
  if (lseek(file_.get(), 0, SEEK_SET) != 0) throw_io_error("write", path_, errno);
  write_all(file_.get(), &header, sizeof(header), path_);
  if (fsync(file_.get()) != 0) throw_io_error("write", path_, errno);
  file_.close();
  ++shards_;
  in_shard_ = 0;
}

}  // namespace narrowgauge::data
