"""Columns of tables into numbers: what kind a column is, and how its entries are written in a row of x."""
