"""The operating system: Ctrl-C, forked processes, threads of linear algebra, a folder of bounded size."""
