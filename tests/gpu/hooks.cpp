// Tells torch that there is one GPU. What it would compute there, tests.gpu.device computes.
#include <ATen/detail/CUDAHooksInterface.h>

namespace {

struct OneGpu : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return false; }
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
};

OneGpu one_gpu;

}  // namespace

// Replaces torch's table of functions, since the object itself cannot be registered twice.
extern "C" void use_one_gpu() {
  auto table = [](const at::CUDAHooksInterface& hooks) {
    return const_cast<void**>(reinterpret_cast<void* const*>(&hooks));
  };
  *table(at::detail::getCUDAHooks()) = *table(one_gpu);
}
