#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "lib/data/shard.h"

namespace narrowgauge::data {

// Our own shard: this header, then `count` little-endian unsigned tokens. Files are called *.ngt.
struct ShardHeader {
  std::array<char, 8> magic;  // kShardMagic
  uint32_t version;           // kShardVersion
  uint32_t token_bytes;       // 2 or 4
  int64_t count;              // tokens
  int64_t vocab_size;         // of the tokenizer
  uint64_t tokenizer_hash;    // Tokenizer::hash()
  int64_t end_of_document;    // token id, -1: none
  uint64_t payload_checksum;  // XXH3-64 of the tokens
  uint64_t header_checksum;   // XXH3-64 of the 56 bytes before it
};
static_assert(sizeof(ShardHeader) == 64);
inline constexpr std::array<char, 8> kShardMagic = {'N', 'G', 'T', 'O', 'K', 'E', 'N', 'S'};
inline constexpr uint32_t kShardVersion = 1;
inline constexpr const char* kShardExtension = ".ngt";

// True for the extensions that a folder or glob of data is searched for.
bool is_shard_name(const std::filesystem::path& path);

// What the file's header and size say. UserErrors as Shard::open.
ShardInfo read_shard_info(const FileBytes& file, const std::filesystem::path& path);

// Type, count and payload offset of a .npy file (formats 1.0 and 2.0; numpy/lib/format.py), from its first
// bytes.
ShardInfo parse_npy_header(std::string_view head, const std::filesystem::path& path);

int token_bytes(TokenType type);

}  // namespace narrowgauge::data
