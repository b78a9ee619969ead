#pragma once
// How far sums of gradients are from sums in double, for a choice of numerics.

#include "kernels/device.h"
#include "runtime/engine/numerics.h"

namespace perdure::bench {

// Root mean square error, relative to the root mean square of the sums in the same group, over 2^20
// elements, each the sum of 8 micro-batches' gradients drawn from normal distributions whose widths
// differ by element group over four decades, as they do in a real tensor. Exponents come from the
// same maxima that a training step would use.
double sum_error(kernels::Device& device, const runtime::engine::Numerics& numerics);

}  // namespace perdure::bench
