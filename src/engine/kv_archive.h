// KvArchive: the prefix cache in a file, from a shutdown to the next start. Each unit of tokens is
// a record with its pages' bytes and a checksum; what is damaged is not restored, nor what
// continues it, and is computed again. The file holds the tokens of prompts and answers: keep it as
// private as those.
//
//   "HRKV0003"  fingerprint (length, bytes)  page bytes
//   records: header {magic, parent, salt bytes, tokens, pages, adapter, arithmetic}, salt, tokens,
//            page slots, pages, checksum of all that
//
// One thread; the engine's, while nothing runs.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/runner.h"
#include "kv/prefix_cache.h"

namespace headrace {

struct KvArchiveCounts {
  int64_t units = 0;
  int64_t damaged = 0;   // found damaged, or behind what was
  int64_t left_out = 0;  // sound, and the pool had no room
  int64_t bytes = 0;
};

// Writes all that the cache keeps beside `path`, then puts it there: a crash or a full disk
// (kExhausted) leaves the file that was there. `fingerprint` says for which model and layout it is.
Result<KvArchiveCounts> save_kv(const std::string& path, const std::string& fingerprint,
                                const PrefixCache& cache, Runner& runner);

// Reads it into the cache, as much as the pool has free pages for. kNotFound: there is none;
// kInvalidArgument: it is of another model or layout, or no archive. Damage is no error: it is
// counted.
Result<KvArchiveCounts> restore_kv(const std::string& path, const std::string& fingerprint,
                                   PrefixCache& cache, Runner& runner);

}  // namespace headrace
