#include "lib/bench/tables.h"

#include <fmt/format.h>

#include <stdexcept>

#include "lib/base/units.h"
#include "lib/bench/chunked_loss.h"

namespace narrowgauge::bench {
namespace {

std::string microseconds(const Json& value) {
  if (!value.is_number()) return "-";
  return fmt::format("{:.1f}", value.get<double>());
}

std::string text(const Json& value) { return value.get<std::string>(); }

std::string yes_or_no(const Json& value) {
  if (!value.is_boolean()) return "-";
  return value.get<bool>() ? "yes" : "no";
}

std::string percent(const Json& fraction) {
  if (!fraction.is_number()) return "-";
  return fmt::format("{:.1f} %", 100 * fraction.get<double>());
}

// "NVIDIA H200, driver 580.159.04, torch 2.11.0, cap 14.0 GiB, commit ..."
std::string machine_line(const Json& result) {
  std::string line =
      fmt::format("{}, driver {}, torch {}, cap {} of allocations", result.value("device", "?"),
                  result.value("driver", "?"), result.value("torch", "?"),
                  format_bytes(result.value("memory_cap", int64_t{0})));
  if (result.contains("commit")) line += ", commit " + text(result["commit"]);
  return line + '.';
}

std::string clocks_line(const Json& result) {
  const auto reading = [&](const char* key) -> std::string {
    if (!result.contains(key) || !result[key].is_object()) return "not readable";
    const Json& c = result[key];
    return fmt::format("SM {} MHz, memory {} MHz, {:.0f} W, {} C", c.value("sm_mhz", 0),
                       c.value("memory_mhz", 0), c.value("watts", 0.0), c.value("celsius", 0));
  };
  return fmt::format("Clocks at the start: {}; at the end: {}.", reading("clocks_start"),
                     reading("clocks_end"));
}

Table kernels_table(const Json& result) {
  const double copy = result["copy"]["best_gb_s"];
  Table table{.title = fmt::format(
                  "Kernels, cold, against the fastest device-to-device copy of this run: {:.0f} GB/s", copy),
              .columns = {"kernel", "shape", "MB", "µs", "p20", "p80", "GB/s", "of copy", "of an equal copy",
                          "target", "", "plain ATen, µs"}};
  for (const Json& k : result["kernels"]) {
    table.rows.push_back(
        {text(k["name"]), text(k["shape"]), fmt::format("{:.0f}", k["bytes"].get<double>() * 1e-6),
         microseconds(k["median_us"]), microseconds(k["p20_us"]), microseconds(k["p80_us"]),
         fmt::format("{:.0f}", k["gb_s"].get<double>()), percent(k["of_copy"]), percent(k["of_equal_copy"]),
         text(k["target"]), text(k["verdict"]), microseconds(k["eager_us"])});
  }
  return table;
}

Table copies_table(const Json& result) {
  Table table{.title = "Device-to-device copies (bytes read and written)",
              .columns = {"size", "µs", "p20", "p80", "GB/s"}};
  for (const Json& c : result["copy"]["sizes"]) {
    table.rows.push_back({format_bytes(c["bytes"]), microseconds(c["median_us"]), microseconds(c["p20_us"]),
                          microseconds(c["p80_us"]), fmt::format("{:.0f}", c["gb_s"].get<double>())});
  }
  return table;
}

Table gemm_table(const Json& run) {
  Table table{.title = fmt::format("Matrix products at {} rows: {:.2f} µs a token over the model",
                                   run["rows"].get<int64_t>(), run["us_per_token"].get<double>()),
              .columns = {"product", "direction", "rows x out x in", "times", "µs", "p20", "p80", "TFLOP/s",
                          "workspace"}};
  for (const Json& p : run["products"]) {
    table.rows.push_back(
        {text(p["name"]), text(p["direction"]), text(p["shape"]), std::to_string(p["count"].get<int64_t>()),
         microseconds(p["median_us"]), microseconds(p["p20_us"]), microseconds(p["p80_us"]),
         fmt::format("{:.0f}", p["tflops"].get<double>()), yes_or_no(p.value("workspace", Json()))});
  }
  return table;
}

// "1 x 8 heads, 256.0 MiB"
std::string group_text(const Json& at) {
  return fmt::format("{} x {} heads, {}", at["batch"].get<int64_t>(), at["heads"].get<int64_t>(),
                     format_bytes(at["bytes"].get<int64_t>()));
}

void add_cudnn_notes(Table& table, const Json& cudnn, bool deterministic) {
  table.notes.push_back(fmt::format("cudnn, {}deterministic: backward by {}; plans {} and {}",
                                    deterministic ? "" : "not ", group_text(cudnn),
                                    text(cudnn["forward_plan"]), text(cudnn["backward_plan"])));
  for (const Json& group : cudnn["groups"])
    table.notes.push_back(
        fmt::format("  backward by {}: {} µs", group_text(group), microseconds(group["us"])));
  for (const char* direction : {"forward_plans", "backward_plans"}) {
    for (const Json& plan : cudnn[direction]) {
      table.notes.push_back(fmt::format(
          "  {} {}, {}: {} µs", direction == std::string("forward_plans") ? "forward" : "backward",
          text(plan["plan"]), format_bytes(plan["bytes"].get<int64_t>()), microseconds(plan["us"])));
    }
  }
}

Table attention_table(const Json& run) {
  Table table{.title = fmt::format("Attention of one layer over {} x {} tokens", run["batch"].get<int64_t>(),
                                   run["context"].get<int64_t>()),
              .columns = {"kernel", "deterministic", "forward, µs", "TFLOP/s", "backward, µs", "TFLOP/s",
                          "µs a token, all layers"}};
  for (const Json& k : run["kernels"]) {
    const std::string deterministic = k["deterministic"].get<bool>() ? "yes" : "no";
    if (k.contains("refused")) {
      table.rows.push_back({text(k["kernel"]), deterministic, "-"});
      table.notes.push_back(fmt::format("{}, {}deterministic: {}", text(k["kernel"]),
                                        k["deterministic"].get<bool>() ? "" : "not ", text(k["refused"])));
      continue;
    }
    table.rows.push_back({text(k["kernel"]), deterministic, microseconds(k["forward"]["median_us"]),
                          fmt::format("{:.0f}", k["forward_tflops"].get<double>()),
                          microseconds(k["backward"]["median_us"]),
                          fmt::format("{:.0f}", k["backward_tflops"].get<double>()),
                          fmt::format("{:.2f}", k["us_per_token"].get<double>())});
  }
  for (const Json& k : run["kernels"]) {
    if (k.contains("cudnn")) add_cudnn_notes(table, k["cudnn"], k["deterministic"].get<bool>());
  }
  return table;
}

Table speed_table(const Json& s) {
  const Json& rate = s["tokens_per_second"];
  const Json& peak = s["peak_bytes"];
  Table table{.title = "Training step on random tokens", .columns = {"what", "measured"}};
  const std::string why = s.value("determinism", "");
  table.rows = {
      {"model", fmt::format("{} parameters, context {}",
                            format_count(static_cast<double>(s["parameters"].get<int64_t>())),
                            s["context"].get<int64_t>())},
      {"step", fmt::format("{} tokens, micro-batch {}, recompute {}", s["tokens_per_step"].get<int64_t>(),
                           s["micro_batch"].get<int64_t>(), text(s["recompute"]))},
      {"numbers", fmt::format("{}, master {}, gradients {}, {}{}", text(s["dtype"]), text(s["master"]),
                              text(s["grad_dtype"]),
                              s["deterministic"].get<bool>() ? "deterministic" : "not deterministic",
                              why.empty() ? "" : " (" + why + ")")},
      {"attention, CUDA graphs",
       fmt::format("{}, {}", text(s["attention"]), s["cuda_graphs"].get<bool>() ? "on" : "off")},
      {"matrix products", text(s["algorithms"])},
      {"tokens/s, median (p20, p80)", fmt::format("{:.0f} ({:.0f}, {:.0f})", rate["median"].get<double>(),
                                                  rate["p20"].get<double>(), rate["p80"].get<double>())},
      {"optimizer step, ms", fmt::format("{:.1f}", s["step_ms"].get<double>())},
      {"model FLOPs used of the card's bf16 rate", percent(s["mfu"])},
      {"peak memory: allocated, reserved, device",
       fmt::format("{}, {}, {}", format_bytes(peak["allocated"]), format_bytes(peak["reserved"]),
                   format_bytes(peak["device"]))},
      {"loss, skipped steps", fmt::format("{:.3f}, {}", s["loss"].is_number() ? s["loss"].get<double>() : 0.0,
                                          s["skipped"].get<int64_t>())},
  };
  if (const int64_t spilled = s.value("spilled_bytes", int64_t{0}); spilled > 0) {
    table.rows.push_back({"memory that has left the card", format_bytes(spilled)});
  }
  if (s.contains("launch_delay_us")) {
    table.rows.push_back({"artificial delay of every launch, µs", microseconds(s["launch_delay_us"])});
  }
  if (s.contains("launch_overlap")) table.rows.push_back({"kernels set up while the one before ends", "no"});
  return table;
}

Table breakdown_table(const Json& b, const Json& speed) {
  const double span = b["span_ms"];
  const auto tokens = static_cast<double>(speed["tokens_per_step"].get<int64_t>());
  Table table{.title = "Where one recorded optimizer step goes",
              .columns = {"category", "ms", "of the span", "µs a token"}};
  const auto add = [&](const std::string& name, double ms) {
    table.rows.push_back({name, fmt::format("{:.2f}", ms), fmt::format("{:.1f} %", 100 * ms / span),
                          fmt::format("{:.3f}", ms * 1e3 / tokens)});
  };
  for (const auto& [name, ms] : b["categories_ms"].items()) add(name, ms);
  add("gaps (span less busy)", b["gaps_ms"]);
  add("span", span);
  table.notes.push_back(fmt::format("Recording slows the host; without it a step takes {:.2f} ms.",
                                    speed["step_ms"].get<double>()));
  return table;
}

Table wall_table(const Json& w) {
  Table table{.title = fmt::format("The wall: bare kernels of the same run, {:.0f} tokens/s; reached: {}",
                                   w["tokens_per_second"].get<double>(), percent(w["reached"])),
              .columns = {"part", "µs a token"}};
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"gemm", "matrix products"},
      {"attention", "fastest attention"},
      {"traffic", "least traffic of norms, RoPE, SwiGLU, embedding at copy speed"},
      {"loss", "cross-entropy"},
      {"optimizer", "norm and AdamW"},
      {"us_per_token", "sum"}};
  for (const auto& [key, name] : kParts) {
    table.rows.push_back({name, fmt::format("{:.3f}", w[key].get<double>())});
  }
  return table;
}

Table longest_kernels(const Json& breakdown, size_t most) {
  Table table{.title = "Longest kernels of the step", .columns = {"kernel", "category", "calls", "ms"}};
  for (const Json& k : breakdown["kernels"]) {
    if (table.rows.size() == most) break;
    std::string name = text(k["name"]);
    if (name.size() > 100) name = name.substr(0, 97) + "...";
    table.rows.push_back({name, text(k["category"]), std::to_string(k["count"].get<int64_t>()),
                          fmt::format("{:.3f}", k["ms"].get<double>())});
  }
  return table;
}

}  // namespace

std::vector<Table> tables_of(const Json& result, size_t kernels) {
  const std::string kind = result.value("bench", "");
  std::vector<Table> tables;
  if (kind == "kernels") {
    tables = {copies_table(result), kernels_table(result)};
  } else if (kind == "gemm" || kind == "attention") {
    for (const Json& run : result["runs"]) {
      tables.push_back(kind == "gemm" ? gemm_table(run) : attention_table(run));
      if (run.contains("loss")) tables.push_back(chunked_loss_table(run["loss"]));
    }
  } else if (kind == "step") {
    tables.push_back(speed_table(result["step"]));
    if (result.contains("breakdown")) tables.push_back(breakdown_table(result["breakdown"], result["step"]));
    if (result.contains("breakdown") && kernels > 0) {
      tables.push_back(longest_kernels(result["breakdown"], kernels));
    }
    if (result.contains("wall")) tables.push_back(wall_table(result["wall"]));
  } else {
    throw std::invalid_argument("no result of a bench: \"" + kind + "\"");
  }
  if (!tables.empty()) {
    tables.back().notes.push_back(machine_line(result));
    tables.back().notes.push_back(clocks_line(result));
  }
  return tables;
}

}  // namespace narrowgauge::bench
