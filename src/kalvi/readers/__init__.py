"""Files of many formats as tables of a few rows at a time, never whole.

formats        the formats: names, endings, descriptions
files          the files that a user's names, directories and patterns mean
inputs         the bytes of one file or pipe, decompressed
recognition    the format of a file, and its reader
delimited …    the readers, one file a format
column_types   the few types that columns have after reading
notation       how numbers, dates and markers of missing values are written
inference      the type and notation of a column, from its first rows
source         `open_data`: rows of several files, in pieces of one size
matrix         `read_matrix`: a binary matrix instead of a table

Importing the package imports nothing large: `formats` and `files` work without pyarrow.
"""
