#pragma once
// UniqueFunction: a move-only std::function that keeps small callables inside itself.
//
// Completion handlers are move-only, and the simulated world stores millions of them: the inline
// space keeps that free of allocations.

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace perdure::base {

template <typename Signature, size_t kInlineBytes = 48>
class UniqueFunction;

template <typename R, typename... Args, size_t kInlineBytes>
class UniqueFunction<R(Args...), kInlineBytes> {
 public:
  UniqueFunction() = default;
  template <typename F>
  requires(!std::is_same_v<std::decay_t<F>, UniqueFunction> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      UniqueFunction(F&& callable) {  // NOLINT: implicit by design, as std::function is
    using Callable = std::decay_t<F>;
    if constexpr (fits_inline<Callable>()) {
      new (storage_) Callable(std::forward<F>(callable));
      table_ = &kInlineTable<Callable>;
    } else {
      new (storage_) Callable*(new Callable(std::forward<F>(callable)));
      table_ = &kHeapTable<Callable>;
    }
  }
  UniqueFunction(UniqueFunction&& other) noexcept { take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~UniqueFunction() { reset(); }

  explicit operator bool() const { return table_ != nullptr; }
  R operator()(Args... args) {
    CHECK(table_ != nullptr) << "an empty function is called";
    return table_->call(storage_, std::forward<Args>(args)...);
  }
  void reset() {
    if (const Table* table = std::exchange(table_, nullptr)) table->destroy(storage_);
  }

 private:
  struct Table {
    R (*call)(std::byte* storage, Args&&... args);
    void (*move)(std::byte* from, std::byte* to) noexcept;
    void (*destroy)(std::byte* storage) noexcept;
  };

  template <typename Callable>
  static constexpr bool fits_inline() {
    return sizeof(Callable) <= kInlineBytes && alignof(Callable) <= alignof(std::max_align_t) &&
           std::is_nothrow_move_constructible_v<Callable>;
  }
  template <typename T>
  static T& as(std::byte* storage) {
    return *std::launder(reinterpret_cast<T*>(storage));
  }

  template <typename Callable>
  static constexpr Table kInlineTable = {
      [](std::byte* s, Args&&... args) -> R {
        return as<Callable>(s)(std::forward<Args>(args)...);
      },
      [](std::byte* from, std::byte* to) noexcept {
        new (to) Callable(std::move(as<Callable>(from)));
        as<Callable>(from).~Callable();
      },
      [](std::byte* s) noexcept { as<Callable>(s).~Callable(); }};

  template <typename Callable>
  static constexpr Table kHeapTable = {
      [](std::byte* s, Args&&... args) -> R {
        return (*as<Callable*>(s))(std::forward<Args>(args)...);
      },
      [](std::byte* from, std::byte* to) noexcept { new (to) Callable*(as<Callable*>(from)); },
      [](std::byte* s) noexcept { delete as<Callable*>(s); }};

  void take(UniqueFunction& other) {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) table_->move(other.storage_, storage_);
  }

  alignas(std::max_align_t)
      std::byte storage_[kInlineBytes < sizeof(void*) ? sizeof(void*) : kInlineBytes];
  const Table* table_ = nullptr;
};

}  // namespace perdure::base
