"""The families of the generated parity test, one a module; each has `FAMILY`."""
