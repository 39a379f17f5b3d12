"""Arrays and functions of numbers; nothing here knows of probability models or of data.

namespaces        one formula for NumPy and for JAX, by the arrays it is given
precision         float32 and float64 side by side, whatever JAX's global setting
program_cache     compiled programs on disk, for later processes
sharding          arrays cut over several devices
pytrees           trees of arrays as one vector
linalg            roots, Cholesky solves, Woodbury, low rank plus diagonal
rows              the rows J = ∂f/∂θ of observations with one output or several
tridiagonal       block-tridiagonal systems
expectations      quadrature
projections       from low rank plus rows back to low rank
natural_gradient  the ascent of a bound over Gaussians
"""
