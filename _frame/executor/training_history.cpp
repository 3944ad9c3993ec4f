// Puts compiled code into the history: what autograd finds behind the outputs of a call, and behind inputs that it wrote.
#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
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

// To the base of a view, past the view.
Edge edge_to_part(const at::Tensor& view) {
  return view._base().requires_grad() ? edge_to(same_part(view)) : Edge();
}

// Puts the nodes of a call behind its outputs, the oldest first: what younger ones pass by has its place in the history then. The engine
// runs the greatest sequence number first, so what is to run first is made last.
class Histories {
 public:
  Histories(const TrainingPtr& training, const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& values, OutputMaker& outputs,
            std::vector<Edge> early)
      : training_(*training), call_(std::make_shared<CompiledCall>(training)), inputs_(inputs), values_(values), outputs_(outputs),
        early_(std::move(early)), before_(nodes_before_leaves(*training, inputs)) {}

  std::shared_ptr<CompiledCall> make() {
    if (!training_.single) {
      make_exits();
    }
    for (int end : training_.output_order) {
      if (auto place = static_cast<std::size_t>(end); place >= nodes_.size()) {
        note_view(place, outputs_.view(static_cast<std::size_t>(training_.shown[place - nodes_.size()].index)));
        continue;
      }
      nodes_[end] = make_node(end);
      put_behind(end);
    }
    call_->set_places(std::move(early_));
    return std::move(call_);
  }

 private:
  Edge edge_of(int place) const {
    if (!early_.empty() && early_[place].function) {
      return early_[place];
    }
    return !before_.empty() && before_[place] ? Edge{before_[place], 0} : edge_to(inputs_[training_.requiring[place]]);
  }

  void make_exits() {
    exits_.resize(training_.exits.size());
    for (std::size_t i = exits_.size(); i-- > 0;) {
      const Exit& exit = training_.exits[i];
      exits_[i] = own_node(new CompiledGradients(call_, i));
      for (int place : exit.outputs) {
        exits_[i]->add_input_metadata(values_[training_.differentiable[place]]);
      }
      for (int place : exit.inputs) {
        exits_[i]->add_next_edge(edge_of(place));
      }
    }
  }

  NodeRef make_node(int place) {
    auto* node = new CompiledBackward(call_, place);
    NodeRef owned = own_node(node);
    call_->set_entry(place, node);
    if (training_.single) {
      for (std::size_t i = 0; i < training_.requiring.size(); ++i) {
        node->add_next_edge(training_.reach[0].has(i) ? edge_of(static_cast<int>(i)) : Edge());
      }
      node->deepen(training_.depth);
      return owned;
    }
    for (std::size_t i = 0; i < exits_.size(); ++i) {
      const std::vector<int>& from = training_.exits[i].outputs;
      if (auto found = std::find(from.begin(), from.end(), place); found != from.end()) {
        node->add_next_edge({exits_[i], static_cast<uint32_t>(found - from.begin())});
      }
    }
    for (int end : training_.through[place]) {
      node->add_next_edge(edge_by(end));
    }
    node->deepen(training_.depth);
    return owned;
  }

  // Where a gradient passes by an end, an older one.
  Edge edge_by(int end) {
    auto outputs = static_cast<int>(nodes_.size());
    if (end >= outputs) {
      for (int base : training_.through[end]) {
        edge_by(base);  // where it is noted
      }
      const Shown& shown = training_.shown[end - outputs];
      const at::Tensor& view = shown.input ? inputs_[shown.index] : outputs_.view(static_cast<std::size_t>(shown.index));
      Edge edge = edge_to(view);
      if (shown.input || shown.item >= 0) {
        call_->set_gate(end, edge.function.get());
      } else {
        note_view(static_cast<std::size_t>(end), view);
      }
      return shown.item < 0 ? edge : Edge(edge.function, static_cast<uint32_t>(shown.item));
    }
    int target = training_.rebased[training_.differentiable[end]];
    if (target < 0 || !inputs_[target].is_view()) {
      return Edge(nodes_[end], 0);
    }
    Edge& part = parts_[end];
    if (!part.function) {
      part = edge_to_part(inputs_[target]);
      call_->set_gate(end, edge_to(at::Tensor(inputs_[target]._base())).function.get());
    }
    return part;
  }

  // Autograd is not asked for the node here: it would make a new one where the memory was written since.
  void note_view(std::size_t end, const at::Tensor& view) {
    call_->set_result(end, view);
    call_->set_gate(static_cast<int>(end), torch::autograd::impl::grad_fn_unsafe(view));
  }

  void put_behind(int place) {
    int index = training_.differentiable[place], target = training_.rebased[index];
    at::Tensor& value = values_[index];
    if (target >= 0 && !inputs_[target].is_view()) {
      rebase(inputs_[target], value, training_.times[target], nodes_[place]);
      call_->set_result(static_cast<std::size_t>(place), inputs_[target]);
      return;
    }
    if (value.is_view()) {  // of fresh memory: to autograd it is a tensor of its own
      at::Tensor own = value.detach();
      for (at::Tensor& other : values_) {
        if (&other != &value && other.is_same(value)) {
          other = own;
        }
      }
      value = own;
    }
    torch::autograd::set_history(value, nodes_[place]);
    call_->set_result(static_cast<std::size_t>(place), value);
    if (target >= 0) {  // autograd has rules of its own for writes to views, and hooks move where it is the view itself
      Itself itself = training_.itself[target];
      (itself != Itself::kNever ? inputs_[target] : same_part(inputs_[target])).copy_(value);
      count_writes(inputs_[target], training_.times[target]);
      if (itself == Itself::kEarlier) {
        make_stale(inputs_[target]);
      }
    }
  }

  const Training& training_;
  std::shared_ptr<CompiledCall> call_;
  const std::vector<at::Tensor>& inputs_;
  std::vector<at::Tensor>& values_;
  OutputMaker& outputs_;
  std::vector<Edge> early_;
  std::vector<NodeRef> before_;
  std::vector<NodeRef> nodes_ = std::vector<NodeRef>(training_.differentiable.size());
  std::vector<NodeRef> exits_;
  std::map<int, Edge> parts_;  // by end that is the new value of a view: to its base
};

}  // namespace

std::vector<Edge> places_now(const Training& training, const std::vector<at::Tensor>& inputs) {
  std::vector<Edge> edges(training.viewed.empty() ? 0 : training.requiring.size());
  for (std::size_t place = 0; place < edges.size(); ++place) {
    int index = training.requiring[place];
    if (training.sides[place] != Side::kAfter && std::find(training.viewed.begin(), training.viewed.end(), index) != training.viewed.end()) {
      edges[place] = training.sides[place] == Side::kBase ? edge_to_part(inputs[index]) : edge_to(inputs[index]);
    }
  }
  return edges;
}

void count_writes(const at::Tensor& input, uint32_t times) {
  for (uint32_t i = 1; i < times && !input.is_inference(); ++i) {
    input.unsafeGetTensorImpl()->bump_version();
  }
}

void give_history(const TrainingPtr& training, const Values& given, std::vector<at::Tensor>& values, OutputMaker& outputs,
                  std::vector<Edge> early, at::Tensor state, std::vector<at::Tensor> originals) {
  std::shared_ptr<CompiledCall> call = Histories(training, given.tensors, values, outputs, std::move(early)).make();
  call->keep(given, values, std::move(state), std::move(originals));
}

}  // namespace dyncomp::executor
