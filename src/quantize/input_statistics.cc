#include "quantize/input_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {
namespace {

constexpr int64_t kHeldRows = 2048;  // of x, before their products are added up
constexpr int64_t kColumnsAtOnce = 64;

}  // namespace

Status InputCollector::begin(std::span<const MatrixStack> sites) {
  sites_.clear();
  for (const MatrixStack& stack : sites) {
    Site& site = sites_.emplace_back();
    for (const MatrixStack::Rows& rows : stack.rows) {
      site.sums.matrices.push_back(rows.name + ".weight");
    }
    const int64_t columns = stack.columns;
    site.sums.magnitudes.resize(static_cast<size_t>(columns));
    site.sums.squares.resize(static_cast<size_t>(columns));
    if (!with_products_) continue;
    site.sums.h = Matrix(columns, columns);
    site.turned = Matrix(columns, kHeldRows);
  }
  return ok_status();
}

void InputCollector::add(int32_t index, const ConstTensorView& x) {
  Site& site = sites_[static_cast<size_t>(index)];
  for (int64_t first = 0; first < x.rows();) {
    const int64_t count = std::min(x.rows() - first, kHeldRows - site.held);
    hold(site, x, first, count);
    first += count;
    if (site.held == kHeldRows && status_.ok()) status_ = add_held(site);
  }
}

void InputCollector::hold(Site& site, const ConstTensorView& x, int64_t first, int64_t count) {
  math_.pool().parallel_for(x.columns(), kColumnsAtOnce, [&](int64_t from, int64_t to) {
    for (int64_t r = 0; r < count; ++r) {
      const float* const row = f32_row(x, first + r);
      for (int64_t c = from; c < to; ++c) {
        const auto value = double{row[c]};
        site.sums.magnitudes[static_cast<size_t>(c)] += std::fabs(value);
        site.sums.squares[static_cast<size_t>(c)] += value * value;
      }
    }
    if (!with_products_) return;
    for (int64_t c = from; c < to; ++c) {
      float* const out = site.turned.row(c) + site.held;
      for (int64_t r = 0; r < count; ++r) out[r] = f32_row(x, first + r)[c];
    }
  });
  site.sums.rows += count;
  site.held = with_products_ ? site.held + count : 0;
}

Status InputCollector::add_held(Site& site) {
  const int64_t held = std::exchange(site.held, 0);
  if (held == 0) return ok_status();
  return math_.add_gram(site.turned.span().part(0, 0, site.turned.rows(), held),
                        site.sums.h.span());
}

Result<std::vector<InputStatistics>> InputCollector::finish() {
  std::vector<InputStatistics> all;
  for (Site& site : sites_) {
    if (status_.ok() && with_products_) status_ = add_held(site);
    HR_RETURN_IF_ERROR(status_);
    Matrix& h = site.sums.h;
    for (int64_t i = 0; i < h.rows(); ++i) {
      for (int64_t j = 0; j < i; ++j) h.row(i)[j] = h.row(j)[i];
    }
    all.push_back(std::move(site.sums));
  }
  sites_.clear();
  return all;
}

}  // namespace headrace
