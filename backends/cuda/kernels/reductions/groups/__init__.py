"""Convolutions in groups: tiles of the image pass through shared memory, from where a thread reads several pixels."""
