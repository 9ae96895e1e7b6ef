#include "xstage/plan/moe_shape.hpp"

#include <algorithm>

#include "xstage/core/csv.hpp"
#include "xstage/core/embedded.hpp"
#include "xstage/core/error.hpp"

namespace xs {

std::vector<MoeModel> list_moe_models() {
  const auto files = embedded_files();
  const auto file = std::ranges::find(files, "moe_models.csv", &EmbeddedFile::name);
  check(file != files.end(), "moe_models.csv is not embedded");
  const auto csv = Csv::parse(std::string(file->text), "moe_models.csv");
  const auto name = csv.column("name"), hidden = csv.column("hidden"), intermediate = csv.column("intermediate"),
             experts = csv.column("experts"), topk = csv.column("topk"), shared = csv.column("shared"),
             doubt = csv.column("check");
  std::vector<MoeModel> models;
  for (std::size_t row = 0; row < csv.num_rows(); ++row) {
    const MoeShape shape{csv.integer(row, hidden, 1), csv.integer(row, intermediate, 1),
                         static_cast<int>(csv.integer(row, experts, 1)), static_cast<int>(csv.integer(row, topk, 1))};
    models.push_back({std::string(csv.text(row, name)), shape, static_cast<int>(csv.integer(row, shared, 0)),
                      csv.text(row, doubt).empty()});
  }
  return models;
}

MoeModel find_moe_model(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& model : list_moe_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  fail(ErrorKind::usage, "model {}: unknown; expected one of {}", excerpt(name), fmt::join(names, ", "));
}

MoeShape shrink(const MoeShape& shape, int factor) {
  require(factor >= 1, "shrink must be at least 1, found {}", factor);
  require(shape.hidden % factor == 0 && shape.intermediate % factor == 0,
          "shrink {} does not divide hidden {} and intermediate {}; try a power of two", factor, shape.hidden,
          shape.intermediate);
  MoeShape smaller = shape;
  smaller.hidden /= factor;
  smaller.intermediate /= factor;
  return smaller;
}

}  // namespace xs
