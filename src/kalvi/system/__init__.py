"""The operating system: Ctrl-C, and processes that were forked."""
