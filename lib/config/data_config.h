#pragma once
#include <cstdint>
#include <string>

namespace narrowgauge {

struct DataConfig {
  std::string train;             // shard file, folder or glob
  std::string val;               // the same; empty: split off the end of train by val_fraction
  double val_fraction = 0.01;    // used only when val is empty; 0: no validation
  int64_t context = 4096;        // tokens of one sample
  bool document_mask = false;    // attention stays inside a document, positions restart
  int64_t end_of_document = -1;  // token id; -1: what the shards say
  bool shuffle = true;
  int64_t prefetch = 2;  // global batches read ahead
};

}  // namespace narrowgauge
