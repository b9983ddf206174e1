// The whole state of the scheduler, read from outside: its invariants, and where its memory is.
// Changes nothing.
#pragma once

#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/kv_demand.h"
#include "kv/prefix_cache.h"
#include "sched/page_supply.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"

namespace headrace {

struct SchedulerAudit {
  const SchedulerOptions& options;
  const BlockPool& pool;
  const PrefixCache* cache;  // null: off
  const PageSupply& supply;
  const SequenceTable& table;

  // kInternal names the first invariant that fails.
  Status check() const;
  KvWaste kv_waste() const;

  // check(), by subject.
  Status check_lists() const;
  Status check_states() const;
  Status check_requests() const;
  Status check_slots() const;
  Status check_pages() const;
  Status check_cache() const;
};

}  // namespace headrace
