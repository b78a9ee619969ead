#include "base/fault_point.h"

namespace perdure::base {

std::atomic<FaultHandler*> fault_handler = nullptr;
FaultTime fault_time;

ScopedFaultHandler::ScopedFaultHandler(FaultHandler& handler) {
  CHECK(fault_handler.exchange(&handler) == nullptr) << "there is a fault handler already";
}

ScopedFaultHandler::~ScopedFaultHandler() { fault_handler.store(nullptr); }

}  // namespace perdure::base
