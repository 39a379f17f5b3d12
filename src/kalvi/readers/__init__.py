"""Files of many kinds into tables of a few rows at a time, never whole."""
