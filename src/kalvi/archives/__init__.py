"""Saving of models, Gaussians, states and trees of plain values in one file; loading executes nothing.

checkpoints  `kalvi.save` and `kalvi.load`
container    the file: safetensors with a digest, replaced atomically
packing      turns a value into a tree of JSON and named arrays
unpacking    turns a tree of JSON and named arrays into a value
registry     the classes and functions that a file may name
consistency  whether the parts of a value are what its class declares
older        translates names and fields of older versions into those of today
"""
