#include "lib/config/data_config.h"

#include "lib/config/key_types.h"

namespace narrowgauge {

ConfigSection data_section() {
  using D = DataConfig;
  SectionRows<D> rows("data", "Where tokens come from and how they are cut into samples.", &Config::data);
  rows.text("train", &D::train,
            "Token shards to train on: a file, a folder or a glob. Resuming refuses other data: shards of "
            "prepare are compared by their checksums, other files by size and 64 samples of 64 KiB.");
  rows.text("val", &D::val,
            "Token shards to evaluate on; empty: the end of data.train, as much as val_fraction says.");
  rows.number("val_fraction", &D::val_fraction, between(0, 0.5), "",
              "Part of data.train kept back for evaluation when data.val is empty; 0: nothing is evaluated.");
  rows.integer("context", &D::context, between(1, 1 << 20), "tokens", "Length of one sample.");
  rows.boolean("document_mask", &D::document_mask,
               "Keep attention inside a document and restart positions at its first token.");
  rows.integer("end_of_document", &D::end_of_document, between(-1, (1 << 24) - 1), "token id",
               "Token that ends a document; -1: the one that the shards name.");
  rows.boolean("shuffle", &D::shuffle, "Visit the samples in a random order, a new one every epoch.");
  rows.integer("prefetch", &D::prefetch, between(1, 64), "global batches", "How far the reader runs ahead.");
  return rows.take();
}

}  // namespace narrowgauge
