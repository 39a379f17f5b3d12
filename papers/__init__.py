"""The papers' experiments, one function per figure or table."""
