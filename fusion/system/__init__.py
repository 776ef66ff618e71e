"""The process and its machine: CPUs, memory, files, locks, interrupts and forks. Imports only `fusion.errors`."""
