#include "tensor/thread_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tensor/spin_wait.h"

namespace headrace {
namespace {

constexpr int kLooks = 2000;

bool is_dense(const ConstTensorView& view) {
  return view.rows() <= 1 || view.row_stride == row_bytes(view.dtype, view.columns());
}

int64_t dense_bytes(const ConstTensorView& view) {
  CHECK(is_dense(view));
  return view.rows() * *row_bytes(view.dtype, view.columns());
}

void copy_columns(const ConstTensorView& from, const TensorView& to, int64_t first, int64_t last) {
  const int64_t bytes = dtype_info(to.dtype).block_bytes;
  for (int64_t row = 0; row < to.rows(); ++row) {
    std::memcpy(to.row(row) + first * bytes, from.row(row) + first * bytes,
                static_cast<size_t>((last - first) * bytes));
  }
}

}  // namespace

int spins_of(int threads) {
  return threads <= static_cast<int>(std::thread::hardware_concurrency()) ? kLooks : 0;
}

// What the ranks show each other. A view is written before a meeting and read behind it.
class ThreadRanks::Shared {
 public:
  explicit Shared(int count)
      : views(static_cast<size_t>(count)),
        spins(spins_of(count)),
        boxes(std::make_unique<Box[]>(static_cast<size_t>(count) * static_cast<size_t>(count))),
        count_(static_cast<uint32_t>(count)) {}

  int size() const { return static_cast<int>(count_); }

  // Returns when all ranks have come: what each wrote before it, all may read behind it.
  void meet() {
    const uint32_t meeting = meeting_.load(std::memory_order_acquire);
    if (come_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      come_.store(0, std::memory_order_relaxed);
      // By an exchange: a plain store may pass the look at who sleeps, which notify_all() begins
      // with.
      meeting_.exchange(meeting + 1, std::memory_order_acq_rel);
      meeting_.notify_all();
      return;
    }
    while (meeting_.load(std::memory_order_acquire) == meeting) spin_wait(meeting_, meeting, spins);
  }

  // What a rank sends to another: full from send() on until it is received.
  struct alignas(64) Box {
    std::atomic<uint32_t> full{0};
    ConstTensorView data;
  };
  Box& box(int from, int to) {
    return boxes[static_cast<size_t>(from) * count_ + static_cast<size_t>(to)];
  }

  std::vector<ConstTensorView> views;  // [ranks] of the collective that runs
  const int spins;

 private:
  std::unique_ptr<Box[]> boxes;  // [from][to]
  const uint32_t count_;
  alignas(64) std::atomic<uint32_t> come_{0};
  alignas(64) std::atomic<uint32_t> meeting_{0};
};

class ThreadRanks::Rank final : public Communicator {
 public:
  void join(Shared& shared, int rank) {
    shared_ = &shared;
    rank_ = rank;
  }
  int rank() const override { return rank_; }
  int size() const override { return shared_->size(); }

  // Each rank adds up a range of the elements, and fetches the others' sums.
  void all_reduce_sum(Stream&, TensorView data) override {
    CHECK(data.dtype == DType::kF32 && is_dense(data));
    const int64_t count = data.rows() * data.columns();
    const auto values = [](const ConstTensorView& view) {
      return reinterpret_cast<const float*>(view.data);
    };
    auto* const own = reinterpret_cast<float*>(data.data);
    show(data);
    const int64_t own_last = share_first(count, rank_ + 1);
    for (int64_t i = share_first(count, rank_); i < own_last; ++i) {
      float sum = values(view_of(0))[i];
      for (int r = 1; r < size(); ++r) sum += values(view_of(r))[i];
      own[i] = sum;
    }
    shared_->meet();
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const int64_t first = share_first(count, r);
      std::copy(values(view_of(r)) + first, values(view_of(r)) + share_first(count, r + 1),
                own + first);
    }
    shared_->meet();
  }

  void all_gather(Stream&, TensorView data, std::span<const int64_t> starts) override {
    show(data);
    fetch(data, starts);
    shared_->meet();
  }

  void gather(Stream&, TensorView data, std::span<const int64_t> starts) override {
    show(data);
    if (rank_ == 0) fetch(data, starts);
    shared_->meet();
  }

  void all_to_all(Stream&, ConstTensorView from, TensorView to) override {
    CHECK(is_dense(to) && from.rows() % size() == 0 && from.rows() == to.rows());
    const int64_t bytes = dense_bytes(from) / size();
    show(from);
    for (int r = 0; r < size(); ++r) {
      std::memcpy(to.data + r * bytes, view_of(r).data + rank_ * bytes, static_cast<size_t>(bytes));
    }
    shared_->meet();
  }

  void send(Stream&, ConstTensorView data, int to) override {
    Shared::Box& box = shared_->box(rank_, to);
    box.data = data;
    box.full.exchange(1, std::memory_order_acq_rel);
    box.full.notify_one();
    while (box.full.load(std::memory_order_acquire) == 1) spin_wait(box.full, 1, shared_->spins);
  }

  void receive(Stream&, TensorView data, int from) override {
    Shared::Box& box = shared_->box(from, rank_);
    while (box.full.load(std::memory_order_acquire) == 0) spin_wait(box.full, 0, shared_->spins);
    CHECK(box.data.dtype == data.dtype && dense_bytes(box.data) == dense_bytes(data));
    std::memcpy(data.data, box.data.data, static_cast<size_t>(dense_bytes(data)));
    box.full.exchange(0, std::memory_order_acq_rel);
    box.full.notify_one();
  }

 private:
  void show(const ConstTensorView& view) {
    shared_->views[static_cast<size_t>(rank_)] = view;
    shared_->meet();
  }
  const ConstTensorView& view_of(int rank) const {
    return shared_->views[static_cast<size_t>(rank)];
  }
  // The columns of all other ranks.
  void fetch(const TensorView& data, std::span<const int64_t> starts) const {
    CHECK(std::ssize(starts) == size() + 1 && starts.back() <= data.columns());
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const auto at = static_cast<size_t>(r);
      CHECK(view_of(r).rows() == data.rows() && view_of(r).dtype == data.dtype);
      copy_columns(view_of(r), data, starts[at], starts[at + 1]);
    }
  }
  int64_t share_first(int64_t count, int rank) const { return count * rank / size(); }

  Shared* shared_ = nullptr;
  int rank_ = 0;
};

ThreadRanks::ThreadRanks(int count)
    : shared_(std::make_unique<Shared>(count)),
      ranks_(std::make_unique<Rank[]>(static_cast<size_t>(count))) {
  for (int r = 0; r < count; ++r) ranks_[static_cast<size_t>(r)].join(*shared_, r);
}

ThreadRanks::~ThreadRanks() = default;

Communicator& ThreadRanks::rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

}  // namespace headrace
