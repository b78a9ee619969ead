#pragma once
// exp, log and the logistic function on vectors. Coefficients are minimax fits made for these
// ranges. tests/kernels/cpu_device_test.cc prints their error against libm: below 1 ulp.

#include "kernels/cpu/vec.h"

namespace perdure::kernels::cpu {

// Too small gives 0, too large gives infinity, NaN stays NaN.
template <class V>
inline typename V::F exp_of(typename V::F x) {
  using F = typename V::F;
  const F clamped = V::min(V::set(89.0f), V::max(V::set(-105.0f), x));
  const F n = V::round(V::mul(clamped, V::set(1.44269504f)));
  // ln 2 in two parts: n times the first is exact.
  F r = V::fma(n, V::set(-0.693359375f), clamped);
  r = V::fma(n, V::set(2.12194440e-4f), r);
  F q = V::set(0.000197893329f);
  q = V::fma(q, r, V::set(0.00139457337f));
  q = V::fma(q, r, V::set(0.00833350327f));
  q = V::fma(q, r, V::set(0.0416662805f));
  q = V::fma(q, r, V::set(0.166666657f));
  q = V::fma(q, r, V::set(0.5f));
  const F r2 = V::mul(r, r);
  const F p = V::add(V::fma(q, r2, r), V::set(1.0f));
  return V::scale(p, n);
}

// x positive, finite and normal.
template <class V>
inline typename V::F log_of(typename V::F x) {
  using F = typename V::F;
  F e;
  const F f = V::sub(V::split(x, &e), V::set(1.0f));
  F q = V::set(0.0704561248f);
  q = V::fma(q, f, V::set(-0.119270802f));
  q = V::fma(q, f, V::set(0.118872046f));
  q = V::fma(q, f, V::set(-0.123632945f));
  q = V::fma(q, f, V::set(0.142145365f));
  q = V::fma(q, f, V::set(-0.166702598f));
  q = V::fma(q, f, V::set(0.200024232f));
  q = V::fma(q, f, V::set(-0.249999717f));
  q = V::fma(q, f, V::set(0.333333075f));
  const F f2 = V::mul(f, f);
  // f - f^2/2 + f^3 q + e ln 2, smallest terms first.
  F y = V::mul(V::mul(f, f2), q);
  y = V::fma(e, V::set(-2.12194440e-4f), y);
  y = V::fma(f2, V::set(-0.5f), y);
  y = V::add(y, f);
  return V::fma(e, V::set(0.693359375f), y);
}

// 1 / (1 + exp(-x))
template <class V>
inline typename V::F logistic(typename V::F x) {
  const typename V::F one = V::set(1.0f);
  return V::div(one, V::add(one, exp_of<V>(V::sub(V::zero(), x))));
}

}  // namespace perdure::kernels::cpu
