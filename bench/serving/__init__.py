"""One module under many callers, and beside processes that keep the CPUs busy, against other engines."""
