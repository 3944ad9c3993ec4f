// Puts compiled code into the history: what autograd finds behind the outputs of a call, and behind inputs that it wrote.
#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "executor/autograd.h"
#include "executor/training_parts.h"

namespace dyncomp::executor {

namespace {

// An input that is no view takes its new value and its place in the history right here.
void rebase(const at::Tensor& input, const at::Tensor& value, uint32_t times, const CompiledBackward::Ref& node) {
  {
    at::AutoDispatchBelowADInplaceOrView below;
    input.copy_(value);
  }
  torch::autograd::increment_version(input);
  count_writes(input, times);
  torch::autograd::impl::rebase_history(input, {node, node->add_input_metadata(input)});
}

bool has_hooks(const at::Tensor& leaf) {
  if (!torch::autograd::impl::hooks(leaf).empty() || torch::autograd::impl::post_acc_grad_hooks(leaf)) {
    return true;
  }
  auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return accumulator && (!accumulator->pre_hooks().empty() || !accumulator->post_hooks().empty());
}

// Nodes before the leaves, by position in `requiring`, if hooks could tell the order of leaves.
std::vector<CompiledBackward::Ref> nodes_before_leaves(const Training& training, const std::vector<at::Tensor>& inputs) {
  std::vector<CompiledBackward::Ref> nodes;
  auto hooked = [&](int index) { return inputs[index].requires_grad() && inputs[index].is_leaf() && has_hooks(inputs[index]); };
  if (training.leaf_order.size() < 2 || std::none_of(training.requiring.begin(), training.requiring.end(), hooked)) {
    return nodes;
  }
  nodes.resize(training.requiring.size());
  for (auto place = training.leaf_order.rbegin(); place != training.leaf_order.rend(); ++place) {
    const at::Tensor& leaf = inputs[training.requiring[*place]];
    if (leaf.requires_grad() && leaf.is_leaf()) {
      nodes[*place] = own_node(new BeforeLeaf);
      nodes[*place]->add_input_metadata(leaf);
      nodes[*place]->add_next_edge(torch::autograd::impl::gradient_edge(leaf));
    }
  }
  return nodes;
}

using NodeRef = CompiledBackward::Ref;
using torch::autograd::Edge;

Edge edge_to(const at::Tensor& input) { return input.requires_grad() ? torch::autograd::impl::gradient_edge(input) : Edge(); }

// The nodes behind the differentiable outputs. The engine runs the greatest sequence number first, so what is to run first is made last.
std::vector<NodeRef> make_nodes(const TrainingPtr& training, const std::shared_ptr<CompiledCall>& call, const std::vector<at::Tensor>& inputs,
                                const std::vector<at::Tensor>& values) {
  std::vector<NodeRef> before = nodes_before_leaves(*training, inputs);
  auto edge_of = [&](int place) {
    return !before.empty() && before[place] ? Edge{before[place], 0} : edge_to(inputs[training->requiring[place]]);
  };
  std::size_t outputs = training->differentiable.size(), exits = training->exits.size();
  std::vector<NodeRef> nodes(outputs), leaving(outputs == 1 ? 0 : exits);
  for (std::size_t i = leaving.size(); i-- > 0;) {
    const Exit& exit = training->exits[i];
    leaving[i] = own_node(new CompiledGradients(call, i));
    for (int place : exit.outputs) {
      leaving[i]->add_input_metadata(values[training->differentiable[place]]);
    }
    for (int place : exit.inputs) {
      leaving[i]->add_next_edge(edge_of(place));
    }
  }
  for (int place : training->output_order) {
    auto* node = new CompiledBackward(call, place);
    nodes[place] = own_node(node);
    call->set_entry(place, node);
    for (std::size_t i = 0; i < leaving.size(); ++i) {
      const std::vector<int>& from = training->exits[i].outputs;
      if (auto found = std::find(from.begin(), from.end(), place); found != from.end()) {
        node->add_next_edge({leaving[i], static_cast<uint32_t>(found - from.begin())});
      }
    }
    for (int other : training->through[place]) {  // an older one
      node->add_next_edge(Edge(nodes[other], 0));
    }
  }
  if (outputs == 1) {
    for (std::size_t place = 0; place < training->requiring.size(); ++place) {
      nodes[0]->add_next_edge(training->reach[0].has(place) ? edge_of(static_cast<int>(place)) : Edge());
    }
  }
  return nodes;
}

}  // namespace

void count_writes(const at::Tensor& input, uint32_t times) {
  for (uint32_t i = 1; i < times && !input.is_inference(); ++i) {
    input.unsafeGetTensorImpl()->bump_version();
  }
}

void give_history(const TrainingPtr& training, const Values& given, std::vector<at::Tensor>& values, at::Tensor state,
                  std::vector<at::Tensor> originals) {
  const std::vector<at::Tensor>& inputs = given.tensors;
  auto call = std::make_shared<CompiledCall>(training);
  std::vector<NodeRef> nodes = make_nodes(training, call, inputs, values);
  std::vector<int> views;
  for (std::size_t place = 0; place < nodes.size(); ++place) {
    int index = training->differentiable[place];
    at::Tensor& value = values[index];
    if (int target = training->rebased[index]; target >= 0) {
      if (!inputs[target].is_view()) {
        rebase(inputs[target], value, training->times[target], nodes[place]);
        continue;
      }
      views.push_back(index);
    }
    if (value.is_view()) {  // of fresh memory: to autograd it is a tensor of its own
      at::Tensor own = value.detach();
      for (at::Tensor& other : values) {
        if (&other != &value && other.is_same(value)) {
          other = own;
        }
      }
      value = own;
    }
    torch::autograd::set_history(value, nodes[place]);
  }
  for (int index : views) {  // autograd has rules of its own for writes to views
    const at::Tensor& input = inputs[training->rebased[index]];
    input.copy_(values[index]);
    count_writes(input, training->times[training->rebased[index]]);
  }
  call->keep(given, values, std::move(state), std::move(originals));
}

}  // namespace dyncomp::executor
