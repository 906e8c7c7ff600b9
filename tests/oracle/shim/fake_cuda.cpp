// A CUDA device that does nothing, for a CPU build of PyTorch.
//
// Fake tensors on "cuda" need no kernels and no memory, but the autograd engine asks for the device
// of each node: it wants a device guard, to switch devices and streams, and the CUDA hooks, to count
// devices. This library registers both; every call answers "device 0, default stream" or does
// nothing. It must be loaded (RTLD_GLOBAL) before libtorch first asks for the hooks, which it keeps.

#include <memory>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

Device only_device() {
  return Device(DeviceType::CUDA, 0);
}

Stream only_stream() {
  return Stream(Stream::DEFAULT, only_device());
}

class IdleGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  DeviceType type() const override { return DeviceType::CUDA; }
  DeviceIndex deviceCount() const noexcept override { return 1; }

  Device getDevice() const override { return only_device(); }
  Device exchangeDevice(Device) const override { return only_device(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}

  Stream getStream(Device) const noexcept override { return only_stream(); }
  Stream getDefaultStream(Device) const override { return only_stream(); }
  Stream getNewStream(Device, int /*priority*/) const override { return only_stream(); }
  Stream exchangeStream(Stream) const noexcept override { return only_stream(); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}

  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

class OneDevice final : public at::CUDAHooksInterface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
};

IdleGuard guard;

std::unique_ptr<at::CUDAHooksInterface> make_hooks(at::CUDAHooksArgs) {
  return std::make_unique<OneDevice>();
}

const bool registered = [] {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&guard);
  at::CUDAHooksRegistry()->Register("CUDAHooks", make_hooks);
  return true;
}();

}  // namespace
