// mm, bmm, addmm, baddbmm into an existing slot. On the CPU they enter the kernel past the dispatcher.
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <optional>

#include "executor/opcodes.h"

namespace dyncomp::executor {

namespace {

// `beta` or `alpha`: a constant, or a number of the call.
class Factor {
 public:
  Factor(Builder& builder, PyObject* object, const char* what) {
    if (is_register(object)) {
      number_ = builder.register_named(object);
    } else {
      constant_ = to_scalar(object, what);
    }
  }
  at::Scalar get(const Frame& frame) const { return number_ ? number_->get(frame) : constant_; }

 private:
  at::Scalar constant_;
  std::optional<Number> number_;
};

using Product = at::Tensor& (*)(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
using ScaledProduct = at::Tensor& (*)(at::Tensor& out, const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b,
                                      const at::Scalar& beta, const at::Scalar& alpha);

template <Product cpu, Product any>
class ProductStep final : public Step {
 public:
  ProductStep(int out, int a, int b) : out_(out), a_(a), b_(b) {}

  void run(Frame& frame) const override {
    at::Tensor& out = frame.slots[out_];
    (out.is_cpu() ? cpu : any)(out, frame.slots[a_], frame.slots[b_]);
  }

 private:
  int out_, a_, b_;
};

template <ScaledProduct cpu, ScaledProduct any>
class ScaledProductStep final : public Step {
 public:
  ScaledProductStep(int out, int bias, int a, int b, Factor beta, Factor alpha)
      : out_(out), bias_(bias), a_(a), b_(b), beta_(std::move(beta)), alpha_(std::move(alpha)) {}

  void run(Frame& frame) const override {
    at::Tensor& out = frame.slots[out_];
    (out.is_cpu() ? cpu : any)(out, frame.slots[bias_], frame.slots[a_], frame.slots[b_], beta_.get(frame), alpha_.get(frame));
  }

 private:
  int out_, bias_, a_, b_;
  Factor beta_, alpha_;
};

template <Product cpu, Product any>
StepPtr build_product(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 3);
  int out = fields.read("out"), a = fields.read("a"), b = fields.read("b");
  builder.program.heavy = true;
  return std::make_unique<ProductStep<cpu, any>>(out, a, b);
}

template <ScaledProduct cpu, ScaledProduct any>
StepPtr build_scaled_product(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 6);
  int out = fields.read("out"), bias = fields.read("bias"), a = fields.read("a"), b = fields.read("b");
  Factor beta(builder, fields.object(), "beta"), alpha(builder, fields.object(), "alpha");
  builder.program.heavy = true;
  return std::make_unique<ScaledProductStep<cpu, any>>(out, bias, a, b, std::move(beta), std::move(alpha));
}

}  // namespace

StepPtr build_mm(Builder& b, PyObject* i) { return build_product<at::cpu::mm_out, at::mm_out>(b, i); }
StepPtr build_bmm(Builder& b, PyObject* i) { return build_product<at::cpu::bmm_out, at::bmm_out>(b, i); }
StepPtr build_addmm(Builder& b, PyObject* i) { return build_scaled_product<at::cpu::addmm_out, at::addmm_out>(b, i); }
StepPtr build_baddbmm(Builder& b, PyObject* i) { return build_scaled_product<at::cpu::baddbmm_out, at::baddbmm_out>(b, i); }

}  // namespace dyncomp::executor
