#include "lib/data/dataset.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <stdexcept>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/data/shard_format.h"

namespace narrowgauge::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_shard_name(entry->path()) && entry->is_regular_file()) paths.push_back(entry->path());
  }
  if (error) throw_io_error("read folder", folder, error.value());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<fs::path> expand_glob(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      const fs::path path = found.gl_pathv[i];
      if (is_shard_name(path) && fs::is_regular_file(path)) paths.push_back(path);
    }
  }
  globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<fs::path> find_shards(const std::string& pattern) {
  if (pattern.empty()) throw UserError("no data given: set data.train to a token file, a folder or a glob");
  std::error_code ignored;
  const auto status = fs::status(pattern, ignored);
  if (fs::is_directory(status)) {
    auto paths = list_folder(pattern);
    if (paths.empty()) {
      throw UserError(
          fmt::format("{}: no token files (*.ngt, *.bin, *.npy) in this folder; make them with narrowgauge "
                      "prepare --input TEXT --out {}",
                      pattern, pattern));
    }
    return paths;
  }
  if (fs::exists(status)) return {pattern};
  if (pattern.find_first_of("*?[") == std::string::npos) {
    throw UserError(
        fmt::format("{}: no such token file or folder; make it with narrowgauge prepare --input TEXT "
                    "--out FOLDER, or correct data.train or data.val",
                    pattern));
  }
  auto paths = expand_glob(pattern);
  if (paths.empty()) {
    throw UserError(
        fmt::format("{}: no token file (*.ngt, *.bin, *.npy) matches this pattern; correct data.train or "
                    "data.val",
                    pattern));
  }
  return paths;
}

void check_agreement(const Shard& one, const Shard& other) {
  const auto& a = one.info();
  const auto& b = other.info();
  const auto refuse = [&](const std::string& what) {
    throw UserError(
        fmt::format("{} and {} differ in {}, but one set of shards needs one tokenizer; put them into "
                    "separate folders or prepare all of them again",
                    one.path().string(), other.path().string(), what));
  };
  if (a.vocab_size != b.vocab_size)
    refuse(fmt::format("vocabulary size ({} and {})", a.vocab_size, b.vocab_size));
  if (a.tokenizer_hash != b.tokenizer_hash) refuse("tokenizer");
  if (a.end_of_document != b.end_of_document) {
    refuse(fmt::format("end-of-document token ({} and {})", a.end_of_document, b.end_of_document));
  }
}

}  // namespace

std::shared_ptr<Dataset> Dataset::open(const std::string& pattern) {
  std::vector<std::shared_ptr<const Shard>> shards;
  for (const auto& path : find_shards(pattern)) {
    shards.push_back(Shard::open(path));
    check_agreement(*shards.front(), *shards.back());
  }
  return std::shared_ptr<Dataset>(new Dataset(std::move(shards)));
}

Dataset::Dataset(std::vector<std::shared_ptr<const Shard>> shards) : shards_(std::move(shards)), starts_{0} {
  for (const auto& shard : shards_) starts_.push_back(starts_.back() + shard->info().count);
  vocab_limit_ = vocab_size();
}

void Dataset::set_vocab_limit(int64_t limit) {
  if (vocab_size() > limit) {
    throw UserError(
        fmt::format("{}: tokens of a vocabulary of {}, but the model's has {}; set model.vocab_size to at "
                    "least {} or prepare the data with the model's tokenizer",
                    shards_.front()->path().string(), vocab_size(), limit, vocab_size()));
  }
  vocab_limit_ = limit;
}

void Dataset::read(int64_t offset, int64_t count, int32_t* out) const {
  if (offset < 0 || count < 0 || count > token_count() - offset) {
    throw std::out_of_range(fmt::format("tokens [{}, {}) of {}", offset, offset + count, token_count()));
  }
  auto next = std::upper_bound(starts_.begin(), starts_.end(), offset);
  for (auto index = static_cast<size_t>(next - starts_.begin()) - 1; count > 0; ++index) {
    const int64_t inside = offset - starts_[index];
    const int64_t part = std::min(count, starts_[index + 1] - offset);
    shards_[index]->read(inside, part, out);
    check(*shards_[index], inside, part, out);
    offset += part;
    out += part;
    count -= part;
  }
}

void Dataset::check(const Shard& shard, int64_t offset, int64_t count, const int32_t* ids) const {
  uint32_t largest = 0;  // a negative id is larger than any limit
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint32_t>(ids[i]));
  const int64_t limit = vocab_limit_ > 0 ? vocab_limit_ : int64_t{INT32_MAX} + 1;
  if (largest < limit) return;
  const int32_t* bad = std::find_if(ids, ids + count, [&](int32_t id) { return id < 0 || id >= limit; });
  const int64_t position = offset + (bad - ids);
  const int64_t id = shard.id(position);
  throw UserError(fmt::format(
      "{}: token {} has id {}, but ids must lie in [0, {}), the vocabulary; {}", shard.path().string(),
      position, id, limit,
      id < 0 || id >= INT32_MAX
          ? std::string("the file is damaged or no token file")
          : fmt::format("set model.vocab_size to at least {} or prepare the data with the model's "
                        "tokenizer",
                        id + 1)));
}

std::filesystem::path Dataset::folder() const { return shards_.front()->path().parent_path(); }

uint64_t Dataset::fingerprint() const {
  Checksum sum;
  for (const auto& shard : shards_) {
    const auto& info = shard->info();
    sum.update(fmt::format("{}\n{} {} {}\n", shard->path().filename().string(), info.count, info.token_bytes,
                           checksum_hex(info.checksum)));
  }
  return sum.value();
}

}  // namespace narrowgauge::data
