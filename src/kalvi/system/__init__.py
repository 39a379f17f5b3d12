"""The operating system: names of files, Ctrl-C, and processes that were forked."""
