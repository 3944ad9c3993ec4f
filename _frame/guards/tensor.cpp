#include "guards/tensor.h"

#include <algorithm>

#include "ref.h"

#if DYNCOMP_TORCH
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <new>
#include <vector>
#endif

namespace dyncomp {

bool TensorGuard::operator==(const TensorGuard& other) const {
  return type == other.type && keys == other.keys && dims == other.dims && closed_count == other.closed_count &&
         dtype == other.dtype && device_type == other.device_type && device_index == other.device_index &&
         requires_grad == other.requires_grad && open == other.open &&
         std::equal(numbers(), numbers() + 2 * dims, other.numbers()) &&
         std::equal(closed(), closed() + closed_count, other.closed());
}

#if !DYNCOMP_TORCH

namespace {
std::nullptr_t no_torch() {
  PyErr_SetString(PyExc_RuntimeError, "this dyncomp runtime was built without torch (DYNCOMP_WITHOUT_TORCH=1)");
  return nullptr;
}
}  // namespace

bool tensor_init() { return true; }
PyObject* tensor_describe(PyObject*) { return no_torch(); }
TensorGuardPointer tensor_guard(PyObject*) { no_torch(); return nullptr; }
bool tensor_holds(const TensorGuard&, PyObject*) { return false; }
bool tensor_numbers(PyObject*, TensorNumbers*) { return false; }

#else

namespace {

size_t impl_offset = 0;            // bytes from the start of a tensor object to its TensorImpl pointer
PyTypeObject* tensor_type = nullptr;
PyObject* torch_module = nullptr;

const c10::TensorImpl* impl_of(PyObject* tensor) {
  return *reinterpret_cast<const c10::TensorImpl* const*>(reinterpret_cast<const char*>(tensor) + impl_offset);
}

// Sizes of these may be symbolic or not exist; reading them natively could run Python code or throw.
bool is_plain(const c10::TensorImpl* impl) {
  return impl->layout() == c10::kStrided && !impl->key_set().has_any(c10::DispatchKeySet({
                                                c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                                c10::DispatchKey::NestedTensor, c10::DispatchKey::FuncTorchBatched,
                                                c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize,
                                            }));
}

PyObject* int_tuple(c10::IntArrayRef numbers) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  if (!tuple) return nullptr;
  for (size_t i = 0; i < numbers.size(); ++i) {
    PyObject* number = PyLong_FromLongLong(numbers[i]);
    if (number == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), i, number);
  }
  return tuple.release();
}

// Keeps the user's function and dispatch modes from seeing what is done here.
class WithoutModes {
 public:
  WithoutModes() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutModes() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
  c10::impl::ExcludeDispatchKeyGuard no_dispatch_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

PyObject* dtype_numbers() {  // dtype -> native number, for all dtypes met so far
  static PyObject* known = PyDict_New();
  return known;
}

bool learn_dtype(PyObject* dtype, const c10::TensorImpl* impl) {
  Ref number = Ref::steal(PyLong_FromLong(static_cast<long>(impl->dtype().toScalarType())));
  return number && PyDict_SetItem(dtype_numbers(), dtype, number.get()) == 0;
}

// For a spec that was not made from a tensor in this process.
bool learn_dtype_from_torch(PyObject* dtype) {
  WithoutModes quiet;
  Ref empty = Ref::steal(PyObject_GetAttrString(torch_module, "empty"));
  Ref args = Ref::steal(Py_BuildValue("(i)", 0));
  Ref kwargs = Ref::steal(Py_BuildValue("{s:O,s:s}", "dtype", dtype, "device", "cpu"));
  if (!empty || !args || !kwargs) return false;
  Ref tensor = Ref::steal(PyObject_Call(empty.get(), args.get(), kwargs.get()));
  return tensor && learn_dtype(dtype, impl_of(tensor.get()));
}

bool read_dtype(PyObject* dtype, uint16_t* number) {
  PyObject* found = PyDict_GetItemWithError(dtype_numbers(), dtype);
  if (found == nullptr) {
    if (PyErr_Occurred() || !learn_dtype_from_torch(dtype)) return false;
    found = PyDict_GetItemWithError(dtype_numbers(), dtype);
  }
  *number = static_cast<uint16_t>(PyLong_AsLong(found));
  return true;
}

bool read_device(PyObject* device, TensorGuard& guard) {
  Ref text = Ref::steal(PyObject_Str(device));
  const char* name = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (name == nullptr) return false;
  try {
    c10::Device parsed{std::string(name)};
    guard.device_type = static_cast<int16_t>(parsed.type());
    guard.device_index = static_cast<int16_t>(parsed.index());
    return true;
  } catch (const std::exception& error) {
    PyErr_Format(PyExc_ValueError, "tensor spec: unknown device %R", device);
    return false;
  }
}

// Sizes, then strides; and which of them are compared.
struct Numbers {
  std::vector<int64_t> all;
  std::vector<uint32_t> closed;
};

bool read_numbers(PyObject* numbers, Numbers& read) {
  Ref sequence = Ref::steal(PySequence_Fast(numbers, "tensor spec: sizes and strides must be sequences"));
  if (!sequence) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence.get(), i);
    bool any = item == Py_None;
    long long number = any ? 0 : PyLong_AsLongLong(item);
    if (number == -1 && PyErr_Occurred()) return false;
    if (!any) read.closed.push_back(static_cast<uint32_t>(read.all.size()));
    read.all.push_back(number);
  }
  return true;
}

TensorGuardPointer in_one_block(const TensorGuard& head, const Numbers& numbers) {
  size_t bytes = sizeof(TensorGuard) + numbers.all.size() * sizeof(int64_t) + numbers.closed.size() * sizeof(uint32_t);
  TensorGuardPointer guard(new (::operator new(bytes)) TensorGuard(head));
  guard->closed_count = static_cast<uint32_t>(numbers.closed.size());
  guard->open = numbers.closed.size() != numbers.all.size();
  std::copy(numbers.all.begin(), numbers.all.end(), guard->numbers());
  std::copy(numbers.closed.begin(), numbers.closed.end(), guard->closed());
  return guard;
}

// The accessors of this private member are calls into torch.
template <typename Tag, auto member>
struct Expose {
  friend constexpr auto exposed(Tag) { return member; }
};
struct AutogradOf {
  friend constexpr auto exposed(AutogradOf);
};
template struct Expose<AutogradOf, &c10::TensorImpl::autograd_meta_>;

bool has_tangent(const torch::autograd::AutogradMeta* meta) { return meta->fw_grad_ != nullptr && !meta->fw_grad_->empty(); }

// True for a dual tensor of forward-mode differentiation; a view may have its tangent from its base.
bool is_dual(const c10::TensorImpl* impl) {
  const c10::AutogradMetaInterface* data = (impl->*exposed(AutogradOf())).get();
  if (data == nullptr) return false;
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(data);
  if (has_tangent(meta)) return true;
  if (!meta->is_view_) return false;
  const auto* view = static_cast<const torch::autograd::DifferentiableViewMeta*>(meta);
  if (!view->has_fw_view()) return false;
  const auto* base = view->get_forward_view().base_.unsafeGetTensorImpl();
  const c10::AutogradMetaInterface* below = (base->*exposed(AutogradOf())).get();
  return below != nullptr && has_tangent(static_cast<const torch::autograd::AutogradMeta*>(below));
}

// `impl->requires_grad()` for torch's kinds of autograd data: a view also asks its base, which the inlined form leaves out.
bool requires_grad(const c10::TensorImpl* impl) {
  const c10::AutogradMetaInterface* data = (impl->*exposed(AutogradOf())).get();
  if (data == nullptr) return false;
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(data);
  return meta->torch::autograd::AutogradMeta::requires_grad() || (meta->is_view_ && meta->requires_grad());
}

bool find_offset(PyObject* tensor) {
  Ref address = Ref::steal(PyObject_GetAttrString(tensor, "_cdata"));
  void* impl = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  if (impl == nullptr) return false;
  constexpr size_t kWords = 4;  // torch has kept it in the first or second word after the object's head
  for (size_t word = 0; word < kWords; ++word) {
    impl_offset = sizeof(PyObject) + word * sizeof(void*);
    if (impl_offset + sizeof(void*) > static_cast<size_t>(Py_TYPE(tensor)->tp_basicsize)) break;
    if (impl_of(tensor) == impl) return true;
  }
  return false;
}

// Reads a tensor of known metadata through the found offset.
bool self_test() {
  Ref tensor = Ref::steal(PyObject_CallMethod(torch_module, "empty_strided", "((ii)(ii))", 3, 5, 7, 2));
  if (!tensor || !find_offset(tensor.get())) return false;
  const c10::TensorImpl* impl = impl_of(tensor.get());
  return impl->dim() == 2 && impl->sizes() == c10::IntArrayRef({3, 5}) && impl->strides() == c10::IntArrayRef({7, 2}) &&
         impl->device().is_cpu() && !impl->requires_grad();
}

}  // namespace

bool tensor_init() {
  torch_module = PyImport_ImportModule("torch");
  if (torch_module == nullptr) return false;
  tensor_type = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(torch_module, "Tensor"));
  if (tensor_type == nullptr) return false;
  if (self_test()) return true;
  PyErr_Clear();
  PyErr_SetString(PyExc_ImportError,
                  "dyncomp's native runtime cannot read tensors of this torch; it was built for torch " DYNCOMP_TORCH_VERSION
                  ". Rebuild it beside the torch you use: python -m pip install --no-build-isolation --force-reinstall dyncomp");
  return false;
}

PyObject* tensor_describe(PyObject* tensor) {
  if (!PyType_IsSubtype(Py_TYPE(tensor), tensor_type)) {
    return PyErr_Format(PyExc_TypeError, "expected a tensor, got %.200s", Py_TYPE(tensor)->tp_name);
  }
  const c10::TensorImpl* impl = impl_of(tensor);
  if (!is_plain(impl)) {
    return PyErr_Format(PyExc_TypeError, "only plain strided tensors can be guarded, not %.200s", Py_TYPE(tensor)->tp_name);
  }
  WithoutModes quiet;
  Ref dtype = Ref::steal(PyObject_GetAttrString(tensor, "dtype"));
  Ref device = Ref::steal(PyObject_GetAttrString(tensor, "device"));
  Ref sizes, strides;
  unsigned long long keys;
  bool requires_grad;
  try {
    sizes = Ref::steal(int_tuple(impl->sizes()));
    strides = Ref::steal(int_tuple(impl->strides()));
    keys = impl->key_set().raw_repr();
    requires_grad = impl->requires_grad();
  } catch (const std::exception& error) {
    return PyErr_Format(PyExc_TypeError, "this tensor's metadata cannot be read: %.500s", error.what());
  }
  if (!dtype || !device || !sizes || !strides || !learn_dtype(dtype.get(), impl)) return nullptr;
  return Py_BuildValue("(OOONKOO)", Py_TYPE(tensor), dtype.get(), device.get(), PyBool_FromLong(requires_grad), keys,
                       sizes.get(), strides.get());
}

TensorGuardPointer tensor_guard(PyObject* spec) {
  PyObject *type, *dtype, *device, *sizes, *strides;
  int requires_grad;
  unsigned long long keys;
  if (!PyTuple_Check(spec)) {
    PyErr_SetString(PyExc_TypeError, "a tensor check takes a TensorSpec");
    return nullptr;
  }
  if (!PyArg_ParseTuple(spec, "O!OOpKOO:TensorSpec", &PyType_Type, &type, &dtype, &device, &requires_grad, &keys,
                        &sizes, &strides)) {
    return nullptr;
  }
  TensorGuard guard{};
  Numbers numbers;
  guard.type = reinterpret_cast<PyTypeObject*>(type);
  guard.keys = keys;
  guard.requires_grad = requires_grad != 0;
  if (!PyType_IsSubtype(guard.type, tensor_type)) {
    PyErr_Format(PyExc_TypeError, "tensor spec: %R is not a tensor class", type);
    return nullptr;
  }
  if (!read_dtype(dtype, &guard.dtype) || !read_device(device, guard)) return nullptr;
  if (!read_numbers(sizes, numbers)) return nullptr;
  guard.dims = static_cast<uint32_t>(numbers.all.size());
  if (!read_numbers(strides, numbers)) return nullptr;
  if (numbers.all.size() != 2 * size_t{guard.dims}) {
    PyErr_SetString(PyExc_ValueError, "tensor spec: sizes and strides differ in length");
    return nullptr;
  }
  return in_one_block(guard, numbers);
}

bool tensor_holds(const TensorGuard& guard, PyObject* value) {
  if (Py_TYPE(value) != guard.type) return false;
  const c10::TensorImpl* impl = impl_of(value);
  if (impl == nullptr || impl->key_set().raw_repr() != guard.keys) return false;
  if (static_cast<uint16_t>(impl->dtype().toScalarType()) != guard.dtype) return false;
  try {
    if (static_cast<uint32_t>(impl->dim()) != guard.dims) return false;
    c10::Device device = impl->device();
    if (static_cast<int16_t>(device.type()) != guard.device_type || device.index() != guard.device_index) return false;
    if (requires_grad(impl) != guard.requires_grad || is_dual(impl)) return false;
    const int64_t* sizes = impl->sizes().data();
    const int64_t* strides = impl->strides().data();
    const int64_t* expected = guard.numbers();
    uint32_t dims = guard.dims;
    if (guard.open) {
      const uint32_t* closed = guard.closed();
      for (uint32_t n = 0; n < guard.closed_count; ++n) {
        uint32_t i = closed[n];
        if ((i < dims ? sizes[i] : strides[i - dims]) != expected[i]) return false;
      }
      return true;
    }
    int64_t difference = 0;
    for (uint32_t i = 0; i < dims; ++i) difference |= (sizes[i] ^ expected[i]) | (strides[i] ^ expected[dims + i]);
    return difference == 0;
  } catch (const std::exception&) {
    return false;  // a tensor without sizes or strides of its own
  }
}

bool tensor_numbers(PyObject* value, TensorNumbers* numbers) {
  if (Py_TYPE(value) != tensor_type && !PyType_IsSubtype(Py_TYPE(value), tensor_type)) return false;
  const c10::TensorImpl* impl = impl_of(value);
  if (impl == nullptr || !is_plain(impl)) return false;
  c10::IntArrayRef sizes = impl->sizes();
  *numbers = {sizes.data(), impl->strides().data(), static_cast<int64_t>(sizes.size()), impl->storage_offset()};
  return true;
}

#endif

}  // namespace dyncomp
