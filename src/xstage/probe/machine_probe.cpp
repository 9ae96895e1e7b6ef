#include "xstage/probe/machine_probe.hpp"

#include <chrono>
#include <future>

#include "xstage/core/error.hpp"
#include "xstage/model/hold_out.hpp"

namespace xs {

FittedPort fit_probed(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                      const FitContext& context, const FitProgress& progress) {
  // Of the few patterns of one worker no half shows the whole port, whatever the form of the model.
  constexpr int kParts = 2;
  constexpr std::size_t kEnough = 40;
  if (samples.size() < kEnough || !can_hold_out(samples, kParts))
    return fit_port(samples, path, dst, context, progress);
  auto held_out = std::async(std::launch::async, [&] { return held_out_error(samples, path, dst, context, kParts); });
  auto port = fit_port(samples, path, dst, context, progress);
  port.held_out_error = held_out.get().all().value();
  return port;
}

MachineProbe probe_machine(Machine machine, const std::vector<std::function<ProbeTarget()>>& targets,
                           const ProbeOptions& options, const std::function<void(double)>& progress) {
  constexpr double kMeasuring = 0.5;  // part of the whole, about
  const double count = static_cast<double>(targets.size());
  const auto tell = [&](double done) {
    if (progress) progress(done);
  };
  std::size_t num_patterns = 0;
  const FitContext context{machine.sm_clock, machine.sm_groups};
  std::string samples = samples_head(machine.chip, machine.num_sms, machine.sm_clock);
  std::vector<std::future<FittedPort>> fits;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto target = targets[i]();
    const auto patterns =
        probe_port(target, options, [&](double done) { tell(kMeasuring * (static_cast<double>(i) + done) / count); });
    num_patterns += patterns.size();
    samples += samples_rows(target, patterns);
    fits.push_back(std::async(std::launch::async, [points = to_samples(patterns), path = target.path, dst = target.dst,
                                                   context] { return fit_probed(points, path, dst, context); }));
  }
  for (std::size_t i = 0; i < fits.size(); ++i) {
    while (fits[i].wait_for(std::chrono::milliseconds(500)) != std::future_status::ready) {
      tell(kMeasuring + (1 - kMeasuring) * static_cast<double>(i) / count);
    }
    machine.ports.push_back(fits[i].get());
  }
  tell(1);
  machine.source = fmt::format("xstage probe --all of {} ports ({} patterns)", targets.size(), num_patterns);
  return {machine, samples};
}

}  // namespace xs
