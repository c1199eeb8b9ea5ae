"""The pure core: what to ask the store, and how to read its answer. No I/O, no clock, no log."""
