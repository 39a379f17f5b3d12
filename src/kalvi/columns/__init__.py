"""Columns of tables as numbers: the types of columns, and how their entries become features."""
