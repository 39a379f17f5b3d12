"""The operating system: Ctrl-C, processes that were forked, and a folder of bounded size on disk."""
