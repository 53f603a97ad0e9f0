// Matrix products on the GPU and the choice of their algorithms.
#include "lib/ops/gemm.h"

#include <ATen/ops/mm.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "lib/ops/choices.h"
#include "lib/ops/gemm_problem.h"
#include "tests/ops/loss_reference.h"

namespace narrowgauge::test {
namespace {

using nlohmann::json;
using ops::GemmShape;
const at::Device kGpu{at::kCUDA, 0};
const auto kBf16 = at::kBFloat16;
const auto kFloat = at::kFloat;
constexpr int64_t kLimit = int64_t{1} << 28;

struct Types {
  at::ScalarType in;
  at::ScalarType out;
};
constexpr Types kTypes[] = {{kBf16, kBf16}, {kBf16, kFloat}, {kFloat, kFloat}};

// Relative L2: one rounding to bf16; else the tensor cores' truncated fp32 sums, or fp32 arithmetic.
double tolerance(Types types) {
  if (types.out == kBf16) return 4e-3;
  return types.in == kBf16 ? 1e-4 : 1e-5;
}

// A (rows, columns) matrix whose rows lie columns + gap elements apart, and what lies between them.
struct Padded {
  at::Tensor whole;
  at::Tensor matrix;
};
Padded padded(Draws& random, int64_t rows, int64_t columns, int64_t gap, at::ScalarType dtype) {
  const at::Tensor whole = random.normal({rows, columns + gap}, dtype);
  return {.whole = whole, .matrix = whole.narrow(1, 0, columns)};
}

at::Tensor exact_product(const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b) {
  const auto operand = [](const at::Tensor& t, bool transpose) {
    const at::Tensor wide = t.to(at::kDouble);
    return transpose ? wide.t() : wide;
  };
  return at::mm(operand(a, transpose_a), operand(b, transpose_b));
}

void check_gemm(Types types, int64_t m, int64_t n, int64_t k, int64_t gap) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        INFO(types.in << " into " << types.out << " " << m << "x" << n << "x" << k << " gap " << gap << " "
                      << transpose_a << transpose_b << accumulate);
        Draws random(static_cast<uint64_t>(m + 3 * n + 5 * k + gap), kGpu);
        const at::Tensor a = padded(random, transpose_a ? k : m, transpose_a ? m : k, gap, types.in).matrix;
        const at::Tensor b = padded(random, transpose_b ? n : k, transpose_b ? k : n, gap, types.in).matrix;
        const Padded c = padded(random, m, n, gap, types.out);
        if (!accumulate) c.whole.fill_(kNan);
        const at::Tensor before = c.whole.clone();
        at::Tensor exact = exact_product(a, transpose_a, b, transpose_b);
        if (accumulate) exact = exact + c.matrix.to(at::kDouble);

        ops::gemm(c.matrix, a, transpose_a, b, transpose_b, accumulate);
        CHECK(relative_error(c.matrix, exact) < tolerance(types));
        CHECK(same_bits(c.whole.narrow(1, n, gap), before.narrow(1, n, gap)));
        ops::gemm(before.narrow(1, 0, n), a, transpose_a, b, transpose_b, accumulate);
        CHECK(same_bits(before.narrow(1, 0, n), c.matrix));
      }
    }
  }
}

TEST_CASE("GPU products equal fp64 at odd sizes and strides") {
  ops::choices().clear();
  for (const Types types : kTypes) {
    check_gemm(types, 1, 1, 1, 0);
    check_gemm(types, 1, 1, 1, 1);
    check_gemm(types, 7, 41, 123, 0);
    check_gemm(types, 7, 41, 123, 3);
    check_gemm(types, 41, 1, 7, 5);
    check_gemm(types, 1, 512, 256, 0);    // a decoded token
    check_gemm(types, 4097, 64, 72, 8);   // one row beyond whole tiles
    check_gemm(types, 65, 1001, 48, 7);   // padded logits
    check_gemm(types, 64, 128, 8192, 0);  // long sums
  }
}

TEST_CASE("GPU products of nothing") {
  for (const Types types : kTypes) {
    const auto in = at::TensorOptions(kGpu).dtype(types.in);
    const at::Tensor c = at::full({3, 5}, 2.0, in.dtype(types.out));
    ops::gemm(c, at::empty({0, 3}, in), true, at::empty({0, 5}, in), false, true);
    CHECK(c.eq(2).all().item<bool>());
    ops::gemm(c, at::empty({3, 0}, in), false, at::empty({0, 5}, in), false, false);
    CHECK(c.eq(0).all().item<bool>());
    ops::gemm(at::empty({0, 5}, c.options()), at::empty({0, 2}, in), false, at::empty({2, 5}, in), false,
              false);
  }
}

TEST_CASE("GPU products refuse what they cannot multiply") {
  const auto options = at::TensorOptions(kGpu).dtype(kBf16);
  const at::Tensor a = at::ones({4, 8}, options);
  const at::Tensor c = at::ones({4, 4}, options);
  const auto run = [&](const at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
    ops::gemm(to, left, false, right, true, false);
  };
  CHECK_THROWS_AS(run(c, a, at::ones({4, 7}, options)), c10::Error);
  CHECK_THROWS_AS(run(c, a.t(), a.t()), c10::Error);
  CHECK_THROWS_AS(run(c, a, a.to(kFloat)), c10::Error);
  CHECK_THROWS_AS(run(c, a.to(kFloat), a.to(kFloat)), c10::Error);
  CHECK_THROWS_AS(run(c, a, at::ones({1, 8}, options).expand({4, 8})), c10::Error);
  CHECK_THROWS_AS(run(c, a, a.cpu()), c10::Error);
  CHECK_THROWS_AS(run(c.to(at::kHalf), a, a), c10::Error);
}

TEST_CASE("a product on the GPU allocates nothing after the first") {
  const at::Tensor a = at::ones({64, 64}, at::TensorOptions(kGpu).dtype(kBf16));
  const at::Tensor c = at::zeros({64, 64}, a.options());
  ops::gemm(c, a, false, a, false, true);
  const auto allocations = [] {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocation[0].allocated;
  };
  const int64_t before = allocations();
  for (int i = 0; i < 3; ++i) ops::gemm(c, a, false, a, false, true);
  CHECK(allocations() == before);
  CHECK(c.eq(256).all().item<bool>());
}

TEST_CASE("every algorithm that may be chosen gives the same bits twice") {
  const GemmShape shapes[] = {
      {.m = 512, .n = 1792, .k = 1792, .transpose_b = true, .lda = 1792, .ldb = 1792, .ldc = 1792},
      {.m = 512, .n = 1792, .k = 1024, .lda = 1024, .ldb = 1792, .ldc = 1792},
      // Few results of long sums: where libraries like to split them.
      {.m = 128,
       .n = 256,
       .k = 8192,
       .transpose_a = true,
       .lda = 128,
       .ldb = 256,
       .ldc = 256,
       .out = kFloat,
       .accumulate = true},
      {.m = 128,
       .n = 256,
       .k = 8192,
       .transpose_a = true,
       .lda = 128,
       .ldb = 256,
       .ldc = 256,
       .accumulate = true},
      {.m = 41, .n = 7, .k = 1001, .lda = 1001, .ldb = 7, .ldc = 7, .alignment = 2},
      {.m = 200, .n = 300, .k = 400, .lda = 400, .ldb = 300, .ldc = 300, .in = kFloat, .out = kFloat}};
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(0).stream();
  for (const GemmShape& s : shapes) {
    INFO(ops::gemm_key(s));
    Draws random(5, kGpu);
    const at::Tensor a = random.normal({s.transpose_a ? s.k : s.m, s.lda}, s.in);
    const at::Tensor b = random.normal({s.transpose_b ? s.n : s.k, s.ldb}, s.in);
    const at::Tensor start = random.normal({s.m, s.ldc}, s.out);
    at::Tensor exact = exact_product(a, s.transpose_a, b, s.transpose_b);
    if (s.accumulate) exact = exact + start.to(at::kDouble);
    const ops::GemmProblem problem(s, ops::gemm_device(kGpu));
    const auto algorithms = problem.algorithms(64, /*both=*/true);
    for (size_t i = 0; i < algorithms.size(); ++i) {
      INFO("algorithm " << i << " of " << algorithms.size());
      CHECK(problem.takes(algorithms[i]));
      at::Tensor first;
      for (int run = 0; run < 3; ++run) {
        const at::Tensor c = start.clone();
        REQUIRE(problem.run(algorithms[i], c.mutable_data_ptr(), a.const_data_ptr(), b.const_data_ptr(),
                            stream) == CUBLAS_STATUS_SUCCESS);
        if (run == 0) {
          first = c;
          CHECK(relative_error(c, exact) < tolerance({s.in, s.out}));
        }
        CHECK(same_bits(c, first));
      }
    }
  }
}

void run_linear(const ops::LinearShape& s) {
  const auto options = at::TensorOptions(kGpu).dtype(s.dtype);
  const at::Tensor x = at::ones({s.rows, s.in}, options);
  const at::Tensor w = at::ones({s.out, s.in}, options);
  const at::Tensor y = at::empty({s.rows, s.y_stride}, options).narrow(1, 0, s.out);
  ops::linear_forward(y, x, w);
  CHECK(y.eq(static_cast<double>(s.in)).all().item<bool>());
  ops::linear_input_grad(x, y, w);
  const at::Tensor dw = at::zeros({s.out, s.in}, options.dtype(s.grad_dtype));
  ops::linear_weight_grad(dw, y, at::ones({s.rows, s.in}, options));
  CHECK(dw.eq(static_cast<double>(s.in * s.rows)).all().item<bool>());
}

TEST_CASE("the products of a linear layer are timed once and run as chosen") {
  ops::Choices& table = ops::choices();
  table.clear();
  const auto reserved = [] {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
  };
  const ops::LinearShape shape{.rows = 512, .in = 256, .out = 1001, .y_stride = 1008, .grad_dtype = kFloat};
  run_linear(shape);
  CHECK(ops::unchosen_gemms() == 3);
  c10::cuda::CUDACachingAllocator::emptyCache();
  const int64_t before = reserved();
  const auto timed = ops::time_linear(shape, kGpu, kLimit);
  CHECK(reserved() == before);
  CHECK(timed.timed == 3);
  CHECK(timed.products() == 3);
  CHECK(timed.chosen_us > 0);
  CHECK(timed.chosen_us <= timed.first_us);
  run_linear(shape);
  CHECK(ops::unchosen_gemms() == 0);
  CHECK(ops::time_linear(shape, kGpu, kLimit).in_force == 3);

  // As after a restart: through text, from the cache's side and from the checkpoint's.
  const json saved = json::parse(table.to_json().dump());
  table.clear();
  table.remember_json(saved);
  CHECK(ops::time_linear(shape, kGpu, kLimit).recalled == 3);
  CHECK(table.to_json() == saved);
  run_linear(shape);
  CHECK(ops::unchosen_gemms() == 0);

  // An algorithm that the library refuses: the first heuristic runs, and timing chooses anew.
  json broken = saved;
  for (auto& [key, value] : broken.items()) value["algorithm"] = std::string(128, 'f');
  table.load_json(broken);
  run_linear(shape);
  CHECK(ops::unchosen_gemms() == 3);
  const auto again = ops::time_linear(shape, kGpu, kLimit);
  CHECK(again.refused == 3);
  CHECK(again.timed == 3);
  run_linear(shape);
  CHECK(ops::unchosen_gemms() == 0);

  CHECK(ops::time_linear({.rows = 64, .in = 64, .out = 64, .y_stride = 64}, kGpu, 1024).left == 3);
  table.clear();
}

}  // namespace
}  // namespace narrowgauge::test
