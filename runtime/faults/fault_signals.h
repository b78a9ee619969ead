#pragma once
// What a process does to itself when a fault strikes it from outside: two real-time signals.

namespace perdure::runtime::faults {

int exit_signal();   // _exit(0)
int drop_signal();   // shut_down_connections()
int start_signal();  // to an agent: start the workers that are down (its main handles it)

// Shuts down every TCP connection of this process, both directions; listeners stay. Safe in a
// signal handler.
void shut_down_connections();
// Installs the handlers of the first two.
void handle_fault_signals();

}  // namespace perdure::runtime::faults
