// What tests of pools of models share: models that are made of nothing, and count it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "server/model_fixture.h"
#include "server/model_pool.h"

namespace headrace {

// A model whose loads a test watches, holds up and lets fail.
struct WatchedModel {
  explicit WatchedModel(std::string of) : name(std::move(of)) {}

  // It answers its own name.
  ServedModelSpec spec() {
    ServedModelSpec spec{.names = {name},
                         .facts = {.path = "/secret/" + name + ".gguf", .file_bytes = 100}};
    spec.load = [this] { return load(); };
    return spec;
  }
  Result<ModelInstance> load() {
    ++loads;
    held.lock();  // by a test that wants it to take long
    held.unlock();
    if (failures > 0) {
      --failures;
      return corrupt("/secret/" + name + ".gguf: it is torn");
    }
    if (fits_beside >= 0 && alive_of_all && *alive_of_all > fits_beside) {
      return exhausted("no memory for it");
    }
    auto model = std::shared_ptr<TestModel>(new TestModel(engine, name), [this](TestModel* ends) {
      current = nullptr;
      delete ends;
      --alive;
      if (alive_of_all) --*alive_of_all;
    });
    current = model.get();
    ++alive;
    if (alive_of_all) ++*alive_of_all;
    ServedModel served = model->served();
    served.facts.memory_bytes = memory_bytes;
    return ModelInstance{std::move(served), std::move(model)};
  }

  const std::string name;
  FakeEngineOptions engine;
  int64_t memory_bytes = 150;
  std::atomic<int> loads{0}, failures{0}, alive{0};
  int fits_beside = -1;  // others; -1: any
  std::atomic<int>* alive_of_all = nullptr;
  std::atomic<TestModel*> current{nullptr};
  std::mutex held;
};

}  // namespace headrace
