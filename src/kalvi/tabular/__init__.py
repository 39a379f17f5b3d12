"""Models of tables: columns into numbers, numbers into a posterior, what the pass said of it."""
