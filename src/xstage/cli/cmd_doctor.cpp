// doctor: what is on this machine, and which commands can run here.

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/version.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/mem/host_facts.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/report/table.hpp"
#include "xstage/sim/planner.hpp"

namespace xs::cli {
namespace {

// What was found, or the sentence that says why nothing was.
template <class T>
struct Finding {
  std::optional<T> found;
  std::string why_not;
};

template <class Call>
auto find(Call&& call) -> Finding<decltype(call())> {
  try {
    return {call(), ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

struct MpsPipe {
  std::filesystem::path path;
  bool there;
};

// Where the daemon of CUDA's multi-process service is spoken to.
MpsPipe mps_pipe() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const auto path = std::filesystem::path(folder != nullptr ? folder : "/tmp/nvidia-mps") / "control";
  std::error_code none;
  return {path, std::filesystem::exists(path, none)};
}

struct Facts {
  Finding<std::vector<GpuInfo>> gpus = find(find_gpus);
  Finding<CudaVersions> cuda = find(cuda_versions);
  Finding<SharedSpace> shm = find(shared_space);
  std::optional<std::uint64_t> lockable = lockable_bytes();
  std::string driver = driver_version();
  std::string gpu_name = name_of_a_gpu();
  MpsPipe mps = mps_pipe();
};

struct Ability {
  std::string command;
  bool here;
  std::string note;  // how, or why not and what to try
};

std::string size_text(std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

Ability ability_to_plan(const std::string& gpu) {
  const auto profile = profile_of_gpu(gpu, "nvlink");
  if (!profile.empty()) return {"plan", true, fmt::format("for the {} here, profile {}", gpu, profile)};
  return {"plan", true,
          fmt::format("with --machine, since {} here: {}",
                      gpu.empty() ? "no GPU was found" : fmt::format("no profile of the {} is known", gpu),
                      fmt::join(embedded_machines(), ", "))};
}

Ability ability_to_run_kernels(const Finding<std::vector<GpuInfo>>& gpus) {
  const char* command = "run moe --backend cuda";
  if (!gpus.found) return {command, false, gpus.why_not};
  for (const auto& gpu : *gpus.found) {
    if (gpu.compute_major == 9) return {command, true, fmt::format("virtual ranks of GPU {}", gpu.device)};
  }
  return {command, false, "its kernel needs compute capability 9.0; use --backend cpu"};
}

std::vector<Ability> abilities(const Facts& facts) {
  const auto& gpus = facts.gpus;
  const auto& shm = facts.shm;
  return {{"probe --backend cpu", true, "a software port of this host"},
          {"probe --backend cuda", gpus.found.has_value(), gpus.found ? "ports of the GPUs above" : gpus.why_not},
          {"run moe", true, "CPU ranks"},
          {"run moe --ranks-as processes", shm.found.has_value(),
           shm.found ? "they share memory through /dev/shm" : shm.why_not + "; use --ranks-as threads"},
          ability_to_run_kernels(gpus),
          ability_to_plan(facts.gpu_name),
          {"simulate", true, "virtual time, of any machine"},
          {"fit", true, "from measured samples"}};
}

std::string yes(bool holds) { return holds ? "yes" : "no"; }

std::string gpu_table(const std::vector<GpuInfo>& gpus) {
  Table table({"GPU", "name", "capability", "SMs", "memory", "GHz", "PCI", "copy engines", "cooperative", "VMM",
               "fd handles", "fabric handles"},
              "rlrrrrlrllll");
  for (const auto& gpu : gpus) {
    table.add({std::to_string(gpu.device), gpu.name, fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor),
               std::to_string(gpu.num_sms), size_text(gpu.memory_bytes), fmt::format("{:.3f}", gpu.clock.value),
               gpu.pci_bus, std::to_string(gpu.copy_engines), yes(gpu.cooperative_launch), yes(gpu.virtual_memory),
               yes(gpu.posix_handles), yes(gpu.fabric_handles)});
  }
  return table.text();
}

// A row per GPU, a column per GPU whose memory its kernels may be given.
std::string peer_table(const std::vector<GpuInfo>& gpus) {
  std::vector<std::string> header{"from GPU to"};
  for (const auto& gpu : gpus) header.push_back(std::to_string(gpu.device));
  Table table(header);
  for (const auto& gpu : gpus) {
    std::vector<std::string> row{std::to_string(gpu.device)};
    for (const bool reaches : gpu.reaches) row.push_back(yes(reaches));
    table.add(std::move(row));
  }
  return table.text();
}

std::string cuda_version(int version) {
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string host_table(const Facts& facts) {
  const auto& [gpus, cuda, shm, lockable, driver, gpu_name, mps] = facts;
  Table table({"what", "here"}, "ll");
  table.add({"CUDA runtime", cuda.found ? cuda_version(cuda.found->runtime) : "none in this build"});
  table.add({"driver", driver.empty() ? "none" : driver});
  if (cuda.found) table.add({"driver takes CUDA", cuda_version(cuda.found->driver)});
  table.add({"MPS", mps.there ? fmt::format("control pipe {}", mps.path.string())
                              : fmt::format("no {}; tools/with_mps starts one", mps.path.string())});
  table.add({"/dev/shm", !shm.found              ? "not there"
                         : shm.found->bytes == 0 ? "no limit"
                                                 : fmt::format("{}, {} free", size_text(shm.found->bytes),
                                                               size_text(shm.found->free_bytes))});
  table.add({"memory to lock", lockable ? size_text(*lockable) : "no limit"});
  return table.text();
}

void print_text(const Facts& facts) {
  fmt::print("xstage {} {}\nbuilt in: {}\n\n", version(), commit(), built_in());
  const auto& gpus = facts.gpus;
  fmt::print("{}\n", gpus.found ? gpu_table(*gpus.found) : fmt::format("No GPU for this program: {}\n", gpus.why_not));
  if (gpus.found && gpus.found->size() > 1) fmt::print("{}\n", peer_table(*gpus.found));
  fmt::print("{}\n", host_table(facts));
  Table table({"command", "here", "how, or why not"}, "lll");
  for (const auto& [command, here, note] : abilities(facts)) table.add({command, yes(here), note});
  fmt::print("{}", table.text());
}

Json to_json(const std::vector<GpuInfo>& gpus) {
  Json entries = Json::array();
  for (const auto& gpu : gpus) {
    entries.push_back({{"device", gpu.device},
                       {"name", gpu.name},
                       {"capability", fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor)},
                       {"num_sms", gpu.num_sms},
                       {"memory_bytes", gpu.memory_bytes},
                       {"clock_ghz", gpu.clock.value},
                       {"pci_bus", gpu.pci_bus},
                       {"copy_engines", gpu.copy_engines},
                       {"cooperative_launch", gpu.cooperative_launch},
                       {"virtual_memory", gpu.virtual_memory},
                       {"posix_handles", gpu.posix_handles},
                       {"fabric_handles", gpu.fabric_handles},
                       {"reaches", gpu.reaches}});
  }
  return entries;
}

Json to_json(const Facts& facts) {
  const auto& [gpus, cuda, shm, lockable, driver, gpu_name, mps] = facts;
  Json document = new_document("doctor");
  document["built_in"] = built_in();
  document["gpus"] = to_json(gpus.found.value_or(std::vector<GpuInfo>{}));
  document["why_no_gpus"] = gpus.found ? Json() : Json(gpus.why_not);
  document["cuda"] = nullptr;
  if (cuda.found) document["cuda"] = {{"runtime", cuda.found->runtime}, {"driver", cuda.found->driver}};
  document["driver"] = driver.empty() ? Json() : Json(driver);
  document["mps"] = {{"control_pipe", mps.path.string()}, {"there", mps.there}};
  document["shm"] = nullptr;
  if (shm.found) document["shm"] = {{"bytes", shm.found->bytes}, {"free_bytes", shm.found->free_bytes}};
  document["memlock_bytes"] = lockable ? Json(*lockable) : Json();
  document["commands"] = Json::array();
  for (const auto& [command, here, note] : abilities(facts)) {
    document["commands"].push_back({{"command", command}, {"here", here}, {"note", note}});
  }
  return document;
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand("doctor", "What is on this machine, and which commands can run here");
  const auto json = std::make_shared<bool>(false);
  add_json(*command, *json);
  command->callback([json] {
    const Facts facts;
    *json ? print(to_json(facts)) : print_text(facts);
  });
}

}  // namespace xs::cli
