#include "xstage/tile/copy_engine.hpp"

#include <cudaTypedefs.h>

#include <chrono>
#include <thread>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/cuda_driver.hpp"

namespace xs {
namespace {

using Clock = std::chrono::steady_clock;

// Beside a stream that does not go on.
class SideStream {
 public:
  SideStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  ~SideStream() { cudaStreamDestroy(stream_); }

  Word read(const Word* flag) const {
    Word value = 0;
    check_cuda(cudaMemcpyAsync(&value, flag, sizeof value, cudaMemcpyDefault, stream_), "reading a flag");
    finish();
    return value;
  }
  void write(Word* flag, Word value) const {
    static const auto write_value = driver_function<PFN_cuStreamWriteValue64_v11070>("cuStreamWriteValue64");
    const auto result = write_value(stream_, reinterpret_cast<CUdeviceptr>(flag), value, 0);
    check_cuda(static_cast<cudaError_t>(result), "writing a flag");
    finish();
  }

 private:
  void finish() const { check_cuda(cudaStreamSynchronize(stream_), "a flag"); }
  cudaStream_t stream_ = nullptr;
};

}  // namespace

void CopyQueue::copy(const Copy& one) {
  check_cuda(cudaMemcpyAsync(one.target, one.source, one.bytes, cudaMemcpyDefault, stream_), "a copy");
}

void CopyQueue::copy_batch(std::span<const Copy> copies) {
  std::vector<void*> targets;
  std::vector<const void*> sources;
  std::vector<std::size_t> sizes;
  for (const auto& one : copies) {
    if (one.bytes == 0) continue;
    targets.push_back(one.target);
    sources.push_back(one.source);
    sizes.push_back(one.bytes);
  }
  if (sizes.empty()) return;
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  std::size_t first = 0;  // of the copies with these attributes
  check_cuda(
      cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), sizes.size(), &attributes, &first, 1, stream_),
      "a batch of copies");
}

void CopyQueue::wait_for(Word* flag, Word target, std::string name) {
  static const auto wait_value = driver_function<PFN_cuStreamWaitValue64_v11070>("cuStreamWaitValue64");
  // acquires: pairs with the release add of raise(), system scope; the driver orders what follows in the stream behind
  // it. "Greater or equal" is of the signed difference, as ahead() is.
  const auto result = wait_value(stream_, reinterpret_cast<CUdeviceptr>(flag), target, CU_STREAM_WAIT_VALUE_GEQ);
  check_cuda(static_cast<cudaError_t>(result), "a stream's wait for a flag");
  waits_.push_back({flag, target, std::move(name)});
}

bool CopyQueue::is_done() const {
  const auto status = cudaStreamQuery(stream_);
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "copies");
  return true;
}

void CopyQueue::finish() {
  const auto begin = Clock::now();
  const auto waited = [&] { return Nanos{std::chrono::duration<double, std::nano>(Clock::now() - begin).count()}; };
  while (!is_done() && waited() < timeout_) std::this_thread::sleep_for(std::chrono::microseconds(50));
  const auto waits = std::exchange(waits_, {});
  if (is_done()) return;
  std::string missing;
  const SideStream side;
  for (const auto& [flag, target, name] : waits) {
    const auto seen = side.read(flag);
    if (ahead(seen, target) >= 0) continue;
    if (missing.empty()) {
      missing = fmt::format("copies waited {:.3f} s for {}: expected {}, seen {}", waited().value * 1e-9, name,
                            target & 0xffffffffu, ahead(seen, target & ~Word{0xffffffffu}));
    }
    side.write(flag, target);
  }
  const auto let_go = Clock::now();
  while (!is_done() && Clock::now() - let_go < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (missing.empty()) missing = fmt::format("copies were not done after {:.3f} s", timeout_.value * 1e-9);
  fail(ErrorKind::timeout, "{}", missing);
}

}  // namespace xs
