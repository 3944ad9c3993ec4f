// What becomes of the results of a call once a backward from them was differentiated (`create_graph=True`).
//
//   r = f(x)            r -> CompiledBackward -> x
//   afterwards:         r -> ExpBackward0 -> ... -> x       and whatever was made of r before: CompiledBackward -> ExpBackward0
//
// The program has run once more by then, in eager's history. Gradients of gradients come to nodes in there, those that keep their own
// results among them, so results, and hooks that were put on them, move there.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <c10/util/Type.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "executor/autograd.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// Which result of its node the hook is for; null for a hook that does not say. torch does not export these classes, so they are told by
// name.
std::size_t* place_of(torch::autograd::FunctionPreHook& hook) {
  std::string name = c10::demangle(typeid(hook).name());
  if (name == "torch::autograd::PyFunctionTensorPreHook") {
    return &static_cast<torch::autograd::PyFunctionTensorPreHook&>(hook).value_idx;
  }
  if (name == "torch::autograd::CppFunctionTensorPreHook") {
    return &static_cast<torch::autograd::CppFunctionTensorPreHook&>(hook).value_idx_;
  }
  return name == "torch::autograd::CppFunctionSingleTensorPreHook" ? &static_cast<torch::autograd::CppFunctionSingleTensorPreHook&>(hook).value_idx_
                                                                    : nullptr;
}

// From a node with one result to where that result is now.
void move_hooks(Node& from, const Edge& to) {
  auto place = [&](torch::autograd::FunctionPreHook& hook) {
    std::size_t* place = place_of(hook);
    if (place != nullptr) {
      *place = to.input_nr;
    }
    return place != nullptr || to.input_nr == 0;
  };
  auto& hooks = from.tensor_pre_hooks();
  for (auto hook = hooks.begin(); hook != hooks.end();) {
    if (!place(**hook)) {
      ++hook;
      continue;
    }
    to.function->add_tensor_pre_hook(std::move(*hook));
    hook = hooks.erase(hook);
  }
  if (auto kept = from.retains_grad_hooks().find(0); kept != from.retains_grad_hooks().end() && place(*kept->second)) {
    to.function->add_retains_grad_hook(from.pop_retains_grad_hook(0), static_cast<int>(to.input_nr));
  }
  if (to.function->num_inputs() != 1) {
    return;  // hooks on nodes take the gradients of all results
  }
  for (auto& hook : std::exchange(from.pre_hooks(), {})) {
    to.function->add_pre_hook(std::move(hook));
  }
  for (auto& hook : std::exchange(from.post_hooks(), {})) {
    to.function->add_post_hook(std::move(hook));
  }
}

}  // namespace

void CompiledCall::set_result(std::size_t end, const at::Tensor& tensor) {
  results_.resize(training_->through.size());
  results_[end].emplace(tensor.getIntrusivePtr());
}

// A view is put into eager's history where nothing but the call's own results knows its node: of what was made of the view before,
// gradients go on to come to that node.
void CompiledCall::adopt_views(const std::vector<std::pair<Weak, Edge>>& views) const {
  std::vector<std::pair<at::Tensor, Edge>> found;
  std::map<const Node*, std::size_t> known;  // by node, how many of the call's own results and nodes know it
  for (const auto& [weak, edge] : views) {
    auto result = weak.lock();
    at::Tensor view = result ? at::Tensor(std::move(result)) : at::Tensor();
    const Node* node = view.defined() ? torch::autograd::impl::grad_fn_unsafe(view) : nullptr;
    auto is_its_own = [&](const Gate& gate) { return gate.first == node; };
    if (node != nullptr && std::any_of(gates_.begin() + static_cast<std::ptrdiff_t>(entries_.size()), gates_.end(), is_its_own)) {
      ++known[node];
      found.emplace_back(std::move(view), edge);
    }
  }
  auto count = [&](const torch::autograd::edge_list& edges) {
    for (const Edge& edge : edges) {
      if (auto one = known.find(edge.function.get()); one != known.end()) {
        ++one->second;
      }
    }
  };
  for (const auto& [node, _] : known) {
    count(node->next_edges());
  }
  for (const Node* entry : entries_) {
    if (entry != nullptr) {
      count(static_cast<const CompiledBackward*>(entry)->own_edges());
    }
  }
  auto is_free = [&](const at::Tensor& view) {
    Node* node = torch::autograd::impl::grad_fn_unsafe(view);
    return references(node) == known[node] && node->tensor_pre_hooks().empty() && node->retains_grad_hooks().empty();
  };
  found.erase(std::remove_if(found.begin(), found.end(), [&](const auto& one) { return !is_free(one.first); }), found.end());
  for (const auto& [view, edge] : found) {
    torch::autograd::impl::set_gradient_edge(view, edge);
  }
}

// `ends`: by end, a tensor of eager's graph, or None. `close`: called before.
void CompiledCall::follow(const py::tuple& ends, const py::object& close) {
  using Ref = CompiledBackward::Ref;
  struct Way {
    Ref node;
    Edge edge;
    std::optional<Weak> result;
  };
  std::vector<Way> ways;
  std::vector<std::pair<Weak, Edge>> views;
  {
    std::lock_guard lock(runs_mutex_);
    for (std::size_t end = 0; end < results_.size(); ++end) {
      if (!results_[end] || !THPVariable_Check(ends[end].ptr())) {
        continue;
      }
      Edge edge = torch::autograd::impl::gradient_edge(THPVariable_Unpack(ends[end].ptr()));
      if (end >= entries_.size()) {
        views.emplace_back(*results_[end], std::move(edge));
      } else if (Ref node = entries_[end] == nullptr ? Ref() : alive(const_cast<Node*>(entries_[end]))) {
        ways.push_back({std::move(node), std::move(edge), results_[end]});
      }
    }
  }
  auto go = [ways = std::move(ways), views = std::move(views), close = std::make_shared<SharedObject>(close.ptr()), call = shared_from_this()] {
    py::gil_scoped_acquire locked;
    if (close->get() != Py_None) {
      checked(PyObject_CallNoArgs(close->get()));
    }
    for (const Way& way : ways) {
      static_cast<CompiledBackward*>(way.node.get())->follow(way.edge);
      move_hooks(*way.node, way.edge);
      if (auto result = way.result->lock()) {
        at::Tensor tensor(std::move(result));
        if (torch::autograd::impl::grad_fn_unsafe(tensor) == way.node.get()) {
          torch::autograd::impl::set_gradient_edge(tensor, way.edge);
        }
      }
    }
    call->adopt_views(views);
  };
  if (torch::autograd::get_current_graph_task_id() >= 0) {
    torch::autograd::Engine::get_default_engine().queue_callback(go);
  } else {
    go();
  }
}

}  // namespace dyncomp::executor
