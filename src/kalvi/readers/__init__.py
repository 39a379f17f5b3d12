"""Files of many kinds into tables of a few rows at a time, never whole."""

from kalvi.readers.errors import BadData as BadData
from kalvi.readers.source import Piece as Piece
from kalvi.readers.source import Source as Source
from kalvi.readers.source import open_data as open_data
