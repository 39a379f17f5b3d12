"""Arrays and functions of numbers; nothing here knows probability models or data.

namespaces        one formula for NumPy and JAX, chosen by its arrays
interpreter       programs of JAX run by NumPy, without compilation
precision         float32 and float64 side by side, whatever JAX's global setting
platforms         the platform that a program is traced for
program_cache     compiled programs on disk, for later processes
sharding          arrays spread over several devices
loops             loops that a CPU runs as one task
pytrees           trees of arrays as one vector
linalg            roots, Cholesky solves, Woodbury, low rank plus diagonal
rows              the rows J = ∂f/∂θ of observations with one output or several
sparse_rows       blocks of rows with few numbers that are not zero
tridiagonal       block-tridiagonal systems
expectations      quadrature
projections       from low rank plus rows back to low rank
projection_steps  one step of a projection, on columns of its target
fused_sweeps      two sweeps of the projections as kernels for a GPU
natural_gradient  the ascent of a bound over Gaussians
"""
