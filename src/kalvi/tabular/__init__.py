"""Models of tables: they turn columns into numbers, learn from them, and record how well they predicted."""
