"""Reading files of many formats as tables, a few rows at a time.

formats        the formats: names, endings, descriptions
files          the files that names, directories and patterns stand for
inputs         the decompressed bytes of a file or a pipe
recognition    the format of a file, and the reader for it
delimited …    the readers, a module for each format
column_types   the types that columns have after reading
notation       how numbers, dates and markers of missing values are written
inference      the type and notation of a column, from its first rows
source         `open_data`: rows of several files, in pieces of one size
matrix         `read_matrix`: a binary matrix instead of a table

Importing the package imports nothing large: `formats` and `files` work without pyarrow.
"""
