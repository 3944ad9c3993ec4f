// The node of autograd behind the outputs of a compiled function.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/training.h"

namespace dyncomp::executor {

class CompiledBackward final : public torch::autograd::Node {
 public:
  // How this torch counts references to nodes.
  using Ref = decltype(torch::autograd::Edge::function);

  explicit CompiledBackward(TrainingPtr training) : training_(std::move(training)) {}

  // Keeps what the backward needs. `values`: what the forward returned. Called once the outputs have their history.
  void keep(const Values& given, const std::vector<at::Tensor>& values, at::Tensor generator_state);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "CompiledBackward"; }
  void release_variables() override;
  void will_release_variables() override { last_run_ = true; }

  // For who runs the backward in another way: the program, and a new tuple of what its backward is given before the gradients.
  const Training* program() const { return training_.get(); }
  py::tuple saved_objects();
  bool has_saved_hooks() const;

 private:
  using Gradients = torch::autograd::variable_list;

  Gradients compute(const std::vector<bool>& pattern, Gradients& gradients);
  void leave_out_unreached(const std::vector<bool>& pattern, const Gradients& results);
  void check_not_released();
  bool is_given_up();
  void check_outputs(const std::vector<bool>& pattern) const;
  Values unpack_saved(const Backward* backward = nullptr);
  Gradients run(const Backward& backward, Gradients& gradients);
  Gradients call_python(PyObject* call, const Values& arguments) const;
  Gradients rerun(const Gradients& gradients, bool create_graph);
  const Backward* find(const std::vector<bool>& pattern, uint64_t autocast) const;
  const Backward* prepare(const std::vector<bool>& pattern, uint64_t autocast);
  Gradients spread(PyObject* results) const;

  TrainingPtr training_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<at::Tensor> inputs_;   // for a backward that is itself differentiated
  std::vector<PlacedNumber> numbers_;  // those among the inputs
  std::vector<uint32_t> versions_;
  struct Watched {
    c10::VariableVersion counter;
    uint32_t version;
    uint32_t output;  // of this node
  };
  std::vector<Watched> watched_;
  at::Tensor generator_state_;
  // By differentiable output. In eager each operation gives up what it keeps when a backward has gone through it, so what one
  // backward was not asked for may still be there for another.
  std::vector<bool> asked_;  // what the backward that runs, or ran last, is asked for; empty where that is not known
  std::vector<bool> ran_;    // what backwards were asked for after which nothing is to be kept
  std::vector<std::pair<std::size_t, torch::autograd::Edge>> left_out_;  // edges that are not there while this backward runs
  bool released_ = false, last_run_ = false;
};

// Stands before a leaf, so that leaves that a node reaches at once get their gradients in the order of eager's backward: the engine
// runs ready nodes by the greatest sequence number, and a leaf right away.
class BeforeLeaf final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "BeforeLeaf"; }
};

// A node as this torch owns it: by an intrusive or a shared pointer.
template <typename Own, typename Ref = CompiledBackward::Ref>
Ref own_node(Own* node) {
  if constexpr (std::is_same_v<Ref, std::shared_ptr<torch::autograd::Node>>) {
    return Ref(node, [](auto* dead) { deleteNode(dead); });
  } else {
    return Ref::unsafe_steal_from_new(node);
  }
}

}  // namespace dyncomp::executor
