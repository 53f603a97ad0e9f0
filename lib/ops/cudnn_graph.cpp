#include "lib/ops/cudnn_graph.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

// cuDNN and the CUDA runtime are looked up in the process: nothing to link, no second copy of either.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/launch_delay.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace narrowgauge::ops::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

void require(fe::error_t status) {
  if (status.is_bad()) throw Refusal(status.get_message());
}

// Handles are never destroyed: the driver may be gone before statics are.
std::mutex& handle_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

// The current device's handle. Call with the mutex held.
cudnnHandle_t current_handle() {
  static auto& handles = *new std::map<int, cudnnHandle_t>;
  if (!fe::cudnn_dlhandle) {
    const std::string runtime = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.c_str(), /*overwrite=*/0);
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    if (!fe::cudnn_dlhandle) throw Refusal("LibTorch has not loaded libcudnn.so.9");
  }
  int device = 0;
  if (fe::detail::cuda_get_device(&device) != cudaSuccess) throw Refusal("no CUDA device is current");
  const auto found = handles.find(device);
  if (found != handles.end()) return found->second;
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = fe::detail::create_handle(&handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    throw Refusal("cudnnCreate failed with status " + std::to_string(static_cast<int>(status)));
  }
  return handles[device] = handle;
}

// Tensors are numbered from 1 in the order of Plan::run.
class Builder {
 public:
  explicit Builder(const Problem& problem) : p_(problem) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  Tensor packed(int64_t heads) { return input(heads, p_.packed_row); }
  Tensor out_rows() { return input(p_.heads, p_.out_row); }
  Tensor lse() { return graph_->tensor(as_lse(fe::graph::Tensor_attributes().set_uid(++uid_))); }

  void put_packed(const Tensor& tensor, int64_t heads) { put_rows(tensor, heads, p_.packed_row); }
  void put_out_rows(const Tensor& tensor) { put_rows(tensor, p_.heads, p_.out_row); }
  void put_lse(const Tensor& tensor) { as_lse(tensor->set_output(true).set_uid(++uid_)); }

  template <class Attributes>
  Attributes attention(Attributes attributes) const {
    return attributes.set_attn_scale(1.0f / std::sqrt(static_cast<float>(p_.head_dim)))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }

  Graph& graph() { return *graph_; }
  std::shared_ptr<Graph> take() { return std::move(graph_); }

 private:
  // (sequences, heads, context, head_dim) as cuDNN wants it, wherever the elements lie.
  fe::graph::Tensor_attributes& as_rows(fe::graph::Tensor_attributes& tensor, int64_t heads,
                                        int64_t row) const {
    return tensor.set_dim({p_.sequences, heads, p_.context, p_.head_dim})
        .set_stride({p_.context * row, p_.head_dim, row, 1});
  }
  fe::graph::Tensor_attributes& as_lse(fe::graph::Tensor_attributes& tensor) const {
    return tensor.set_dim({p_.sequences, p_.heads, p_.context, 1})
        .set_stride({p_.heads * p_.context, p_.context, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }
  Tensor input(int64_t heads, int64_t row) {
    auto attributes = fe::graph::Tensor_attributes().set_uid(++uid_);
    return graph_->tensor(as_rows(attributes, heads, row));
  }
  void put_rows(const Tensor& tensor, int64_t heads, int64_t row) {
    as_rows(tensor->set_output(true).set_uid(++uid_), heads, row);
  }

  Problem p_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  int64_t uid_ = 0;
};

}  // namespace

struct Plan::Impl {
  std::shared_ptr<const Graph> graph;
  cudnnHandle_t handle;
  int64_t index;
  std::string name;
  int64_t workspace;
};

struct Pass::Impl {
  std::shared_ptr<Graph> graph;
  cudnnHandle_t handle;
  std::vector<std::string> names;
  std::vector<int64_t> indices;  // among the graph's plans, of each name

  explicit Impl(std::shared_ptr<Graph> described) : graph(std::move(described)) {
    const std::lock_guard lock(handle_mutex());
    handle = current_handle();
    require(graph->validate());
    require(graph->build_operation_graph(handle));
    require(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK}));
    for (int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
      std::string name;
      require(graph->get_plan_name_at_index(i, name));
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      names.push_back(name);
      indices.push_back(i);
    }
  }

  Plan build(size_t which) const {
    const std::lock_guard lock(handle_mutex());
    Plan::Impl plan{
        .graph = graph, .handle = handle, .index = indices[which], .name = names[which], .workspace = 0};
    require(graph->build_plan_at_index(plan.index));
    require(graph->get_workspace_size_plan_at_index(plan.index, plan.workspace));
    return Plan(std::make_shared<const Plan::Impl>(std::move(plan)));
  }
};

Pass Pass::forward(const Problem& problem) {
  Builder b(problem);
  const Tensor q = b.packed(problem.heads);
  const Tensor k = b.packed(problem.kv_heads);
  const Tensor v = b.packed(problem.kv_heads);
  const auto [out, lse] =
      b.graph().sdpa(q, k, v, b.attention(fe::graph::SDPA_attributes().set_generate_stats(true)));
  b.put_out_rows(out);
  b.put_lse(lse);
  return Pass(std::make_shared<const Impl>(b.take()));
}

Pass Pass::backward(const Problem& problem, bool deterministic) {
  Builder b(problem);
  const Tensor q = b.packed(problem.heads);
  const Tensor k = b.packed(problem.kv_heads);
  const Tensor v = b.packed(problem.kv_heads);
  const Tensor out = b.out_rows();
  const Tensor dout = b.out_rows();
  const Tensor lse = b.lse();
  const auto [dq, dk, dv] = b.graph().sdpa_backward(
      q, k, v, out, dout, lse,
      b.attention(fe::graph::SDPA_backward_attributes().set_deterministic_algorithm(deterministic)));
  b.put_packed(dq, problem.heads);
  b.put_packed(dk, problem.kv_heads);
  b.put_packed(dv, problem.kv_heads);
  return Pass(std::make_shared<const Impl>(b.take()));
}

const std::vector<std::string>& Pass::plan_names() const { return impl_->names; }

Plan Pass::build(const std::string& plan_name) const {
  const auto found = std::find(impl_->names.begin(), impl_->names.end(), plan_name);
  if (found == impl_->names.end()) throw Refusal("it does not offer the plan " + plan_name);
  return impl_->build(static_cast<size_t>(found - impl_->names.begin()));
}

Plan Pass::build_first() const {
  std::string reason = "it offers no plan";
  for (size_t i = 0; i < impl_->names.size(); ++i) {
    try {
      return impl_->build(i);
    } catch (const Refusal& refusal) {
      if (i == 0) reason = refusal.what();
    }
  }
  throw Refusal(reason);
}

const std::string& Plan::name() const { return impl_->name; }

int64_t Plan::workspace_bytes() const { return impl_->workspace; }

void Plan::run(std::span<void* const> tensors, void* workspace, cuda::Stream stream) const {
  std::vector<void*> pointers(tensors.begin(), tensors.end());  // in the order of their numbers
  cuda::launch_delay();
  const std::lock_guard lock(handle_mutex());
  if (fe::detail::set_stream(impl_->handle, stream) != CUDNN_STATUS_SUCCESS) {
    throw std::runtime_error("cuDNN does not accept the stream");
  }
  fe::error_t status = impl_->graph->execute_plan_at_index(
      impl_->handle, pointers.data(), static_cast<int>(pointers.size()), workspace, impl_->index);
  if (status.is_bad()) throw std::runtime_error("cuDNN attention: " + status.get_message());
}

}  // namespace narrowgauge::ops::cudnn
