#include <cuda.h>
#include <cudaTypedefs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/cuda_driver.hpp"
#include "xstage/mem/gpu_share.hpp"

namespace xs {
namespace {

// Whole pages of the GPU. What cudaMalloc gives is cut from such a page, and an ipc handle opens all of it.
constexpr std::size_t kGpuPage = std::size_t{2} << 20;

struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 granularity =
      driver_function<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity");
  PFN_cuMemCreate_v10020 create = driver_function<PFN_cuMemCreate_v10020>("cuMemCreate");
  PFN_cuMemRelease_v10020 release = driver_function<PFN_cuMemRelease_v10020>("cuMemRelease");
  PFN_cuMemExportToShareableHandle_v10020 export_to =
      driver_function<PFN_cuMemExportToShareableHandle_v10020>("cuMemExportToShareableHandle");
  PFN_cuMemImportFromShareableHandle_v10020 import_from =
      driver_function<PFN_cuMemImportFromShareableHandle_v10020>("cuMemImportFromShareableHandle");
  PFN_cuMemAddressReserve_v10020 reserve = driver_function<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve");
  PFN_cuMemAddressFree_v10020 free_address = driver_function<PFN_cuMemAddressFree_v10020>("cuMemAddressFree");
  PFN_cuMemMap_v10020 map = driver_function<PFN_cuMemMap_v10020>("cuMemMap");
  PFN_cuMemUnmap_v10020 unmap = driver_function<PFN_cuMemUnmap_v10020>("cuMemUnmap");
  PFN_cuMemSetAccess_v10020 set_access = driver_function<PFN_cuMemSetAccess_v10020>("cuMemSetAccess");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

// The driver numbers its answers as the runtime does.
void check_driver(CUresult result, const char* what) { check_cuda(static_cast<cudaError_t>(result), what); }

// What one rank tells the others of its part.
struct Offer {
  GpuShareBy by;
  std::uint64_t bytes;         // asked for
  std::uint64_t mapped_bytes;  // whole pages
  std::array<std::byte, 64> handle;
};
static_assert(sizeof(Offer::handle) == sizeof(cudaIpcMemHandle_t) &&
              sizeof(Offer::handle) == sizeof(CUmemFabricHandle));

// How a process lets go of a part. Errors have nobody to go to: the process's end lets go as well.
struct LetGo {
  enum { allocated, opened, mapped } how;
  std::size_t bytes;
  void operator()(std::byte* part) const {
    switch (how) {
      case allocated:
        cudaFree(part);
        break;
      case opened:
        cudaIpcCloseMemHandle(part);
        break;
      case mapped:
        driver().unmap(reinterpret_cast<CUdeviceptr>(part), bytes);
        driver().free_address(reinterpret_cast<CUdeviceptr>(part), bytes);
        break;
    }
  }
};
using Part = std::unique_ptr<std::byte, LetGo>;

// --- by ipc ---

Part allocate(Offer& offer) {
  offer.mapped_bytes = ceil_div<std::uint64_t>(offer.bytes, kGpuPage) * kGpuPage;
  void* data = nullptr;
  check_cuda(cudaMalloc(&data, offer.mapped_bytes), "allocating it");
  Part part(static_cast<std::byte*>(data), {LetGo::allocated, offer.mapped_bytes});
  cudaIpcMemHandle_t handle;
  check_cuda(cudaIpcGetMemHandle(&handle, data), "a handle for it");
  std::memcpy(offer.handle.data(), &handle, sizeof handle);
  return part;
}

Part open(const Offer& offer) {
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, offer.handle.data(), sizeof handle);
  void* data = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess),
             "opening the part of a peer, which must be another process");
  return {static_cast<std::byte*>(data), {LetGo::opened, offer.mapped_bytes}};
}

// --- by file and by fabric: memory of the driver, mapped by hand ---

// Memory without an address. It stays while it is mapped anywhere.
class Allocation {
 public:
  Allocation() = default;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() {
    if (handle != 0) driver().release(handle);
  }
  CUmemGenericAllocationHandle handle = 0;
};

CUmemAllocationHandleType handle_type(GpuShareBy by) {
  return by == GpuShareBy::fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

CUmemAllocationProp properties(GpuShareBy by, int device) {
  CUmemAllocationProp of{};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.requestedHandleTypes = handle_type(by);
  of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  of.location.id = device;
  return of;
}

Part map(const Allocation& allocation, std::size_t bytes, int device) {
  CUdeviceptr address = 0;
  check_driver(driver().reserve(&address, bytes, 0, 0, 0), "an address for it");
  Part part(reinterpret_cast<std::byte*>(address), {LetGo::mapped, bytes});
  check_driver(driver().map(address, bytes, 0, allocation.handle, 0), "mapping it");
  CUmemAccessDesc access{};
  access.location = properties(GpuShareBy::file, device).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver().set_access(address, bytes, &access, 1), "access to it");
  return part;
}

Part create(Offer& offer, OpenFile& file, int device) {
  const auto of = properties(offer.by, device);
  std::size_t page = 0;
  check_driver(driver().granularity(&page, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "its smallest size");
  offer.mapped_bytes = ceil_div<std::uint64_t>(offer.bytes, page) * page;
  Allocation allocation;
  check_driver(driver().create(&allocation.handle, offer.mapped_bytes, &of, 0),
               offer.by == GpuShareBy::fabric
                   ? "allocating it (an NVLink fabric and permission are needed, for file not)"
                   : "allocating it");
  if (offer.by == GpuShareBy::fabric) {
    check_driver(driver().export_to(offer.handle.data(), allocation.handle, handle_type(offer.by), 0),
                 "a handle for it");
  } else {
    int number = -1;
    check_driver(driver().export_to(&number, allocation.handle, handle_type(offer.by), 0), "a file for it");
    file = OpenFile(number);
  }
  return map(allocation, offer.mapped_bytes, device);
}

Part import_part(Offer offer, const OpenFile& file, int device) {
  void* const handle = offer.by == GpuShareBy::fabric ? static_cast<void*>(offer.handle.data())
                                                      : reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get()));
  Allocation allocation;
  check_driver(driver().import_from(&allocation.handle, handle, handle_type(offer.by)), "importing a peer's part");
  return map(allocation, offer.mapped_bytes, device);
}

// --- what they have in common ---

void choose(int device) {
  const auto status = cudaSetDevice(device);
  require(status != cudaErrorInitializationError,
          "the process that started the ranks had called CUDA, which does not survive a fork; start them first");
  check_cuda(status, "choosing it");
}

RankSockets::Parcel to_parcel(const Offer& offer, OpenFile file) {
  const auto bytes = std::as_bytes(std::span(&offer, 1));
  return {{bytes.begin(), bytes.end()}, std::move(file)};
}

Offer to_offer(const RankSockets::Parcel& parcel) {
  Offer offer{};
  require(parcel.bytes.size() == sizeof offer,
          "ranks share different things: {} bytes expected, {} found; they must make and drop their shares in the same "
          "order",
          sizeof offer, parcel.bytes.size());
  std::memcpy(&offer, parcel.bytes.data(), sizeof offer);
  return offer;
}

// Proof that kernels will reach it.
void read_last_byte(const Part& part, std::size_t bytes) {
  std::byte last{};
  check_cuda(cudaMemcpy(&last, part.get() + bytes - 1, 1, cudaMemcpyDeviceToHost), "reading it");
}

}  // namespace

struct GpuShare::State {
  State(RankSockets& with, int on) : sockets(with), device(on), parts(static_cast<std::size_t>(with.num_ranks())) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    Part own = std::move(parts[static_cast<std::size_t>(sockets.rank())]);
    parts.clear();
    try {
      sockets.meet();
    } catch (const Error&) {
      // A peer may still have it open, and what cudaMalloc gave must not be freed then: the end of this process does.
      if (own.get_deleter().how == LetGo::allocated) own.release();
    }
    own.reset();
    cudaGetLastError();  // nobody asks what went wrong here
  }

  RankSockets& sockets;
  int device;
  std::vector<Part> parts;  // by rank
};

GpuShare::GpuShare(RankSockets& sockets, int device, GpuShareBy by, std::size_t bytes)
    : state_(std::make_unique<State>(sockets, device)) {
  auto& parts = state_->parts;
  const auto sharing = [&](auto&& attempt) {
    try {
      return attempt();
    } catch (const Error& error) {
      fail(error.kind(), "{} bytes of GPU {} to share by {}: {}", bytes, device, to_string(by), error.what());
    }
  };
  const auto own = static_cast<std::size_t>(sockets.rank());
  const auto given = sockets.exchange([&] {
    return sharing([&] {
      require(bytes > 0, "at least one byte expected");
      choose(device);
      Offer offer{by, bytes, 0, {}};
      OpenFile file;
      parts[own] = by == GpuShareBy::ipc ? allocate(offer) : create(offer, file, device);
      check_cuda(cudaMemset(parts[own].get(), 0, bytes), "clearing it");
      check_cuda(cudaDeviceSynchronize(), "clearing it");
      return to_parcel(offer, std::move(file));
    });
  });
  sockets.exchange([&] {
    return sharing([&] {
      for (std::size_t rank = 0; rank < given.size(); ++rank) {
        const auto offer = to_offer(given[rank]);
        require(offer.by == by && offer.bytes == bytes, "rank {} shares {} bytes by {}; all ranks need the same", rank,
                offer.bytes, to_string(offer.by));
        if (rank == own) continue;
        parts[rank] = by == GpuShareBy::ipc ? open(offer) : import_part(offer, given[rank].file, device);
        read_last_byte(parts[rank], bytes);
      }
      return RankSockets::Parcel();
    });
  });
  for (const auto& part : parts) addresses_.push_back(part.get());
}

GpuShare::~GpuShare() = default;

}  // namespace xs
