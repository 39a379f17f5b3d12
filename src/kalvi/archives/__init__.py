"""Any fitted model, Gaussian, state or tree of plain values as one file; nothing is executed on load.

checkpoints  `kalvi.save` and `kalvi.load`
container    the file: safetensors, signed, replaced all at once
packing      a value as a tree of JSON and named arrays
unpacking    a tree of JSON and named arrays as a value
registry     the classes and functions that a file may name
consistency  whether the parts of a value are what its class declares
older        names and fields of older versions as they are today
"""
