#include "xstage/cli/program.hpp"

// doctor from outside: it tells and succeeds whatever is there.

namespace xs::cli {
namespace {

class DoctorCommand : public Program {
 protected:
  Json command(const Json& told, const std::string& name) const {
    for (const auto& entry : told.at("commands")) {
      if (entry.at("command") == name) return entry;
    }
    ADD_FAILURE() << told << " lacks " << name;
    return {};
  }
};

TEST_F(DoctorCommand, EitherTellsOfGpusOrWhyThereAreNone) {
  const auto told = expect_json({"doctor"});
  EXPECT_EQ(told.at("gpus").empty(), told.at("why_no_gpus").is_string());
  for (const auto& gpu : told.at("gpus")) {
    EXPECT_GT(gpu.at("num_sms").get<int>(), 0);
    EXPECT_EQ(gpu.at("reaches").size(), told.at("gpus").size());
  }
  const bool has_cuda = told.at("built_in").get<std::string>().find("cuda") != std::string::npos;
  EXPECT_EQ(told.at("cuda").is_object(), has_cuda);
}

TEST_F(DoctorCommand, WhatItSaysOfCommandsIsWhatTheyDo) {
  const auto told = expect_json({"doctor"});
  for (const char* name : {"probe --backend cpu", "run moe", "plan", "simulate", "fit"}) {
    EXPECT_TRUE(command(told, name).at("here").get<bool>()) << name;
  }
  const auto gpu_probe = command(told, "probe --backend cuda");
  if (!gpu_probe.at("here")) {
    expect_refused({"probe", "--backend", "cuda"}, {gpu_probe.at("note").get<std::string>()}, 3);
  }
  if (command(told, "run moe --ranks-as processes").at("here")) {
    expect_done(kRun + kTwoRanks + Arguments{"--ranks-as", "processes"});
  }
}

TEST_F(DoctorCommand, LooksForMpsWhereCudaDoes) {
  for (const bool there : {false, true}) {
    if (there) std::ofstream(folder_ / "control");
    ASSERT_EQ(::setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.path().c_str(), 1), 0);
    const auto told = expect_json({"doctor"});
    ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    EXPECT_EQ(told.at("mps").at("there"), there);
    EXPECT_EQ(told.at("mps").at("control_pipe"), (folder_ / "control").string());
  }
}

TEST_F(DoctorCommand, SaysItInWords) {
  const auto out = expect_done({"doctor"});
  for (const char* word :
       {"built in: ", "GPU", "driver", "MPS", "/dev/shm", "memory to lock", "probe --backend cuda"}) {
    EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  }
}

}  // namespace
}  // namespace xs::cli
