"""Generated rows."""

import numpy as np
from scipy.stats import ortho_group


def two_classes(
    dim: int, n_samples: int, separation: float, decay: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two Gaussian classes in random order, as in section 6 of the R-VGA paper, and their labels.

    Half the inputs come from N(m, C), half from N(−m, C), with |2m| = separation and

        C = Mᵀ Diag(1, 2⁻ᶜ, …, d⁻ᶜ) M / Σ k⁻ᶜ,    c = decay                                    (eq. 91)

    for a random rotation M; labels are the components, so the log-odds are linear without a constant.
    The division makes trace C = 1, as the text asks (the authors' script divides by Σ k⁻²ᶜ).
    """
    random = np.random.default_rng(seed)
    rotation = ortho_group.rvs(dim, random_state=random) if dim > 1 else np.eye(1)
    spectrum = np.arange(1, dim + 1.0) ** -decay
    centre = random.normal(size=dim)
    centre *= separation / (2 * np.linalg.norm(centre))
    y = random.permutation(np.arange(n_samples) % 2).astype(float)
    noise = random.normal(size=(n_samples, dim)) * np.sqrt(spectrum / spectrum.sum())
    return (2 * y - 1)[:, None] * centre + noise @ rotation, y
