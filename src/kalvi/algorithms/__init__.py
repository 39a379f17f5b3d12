"""The algorithms, one file each.

R-VGA: Lambert, Bonnabel & Bach (2022), "The recursive variational Gaussian approximation".
L-RVGA: Lambert, Bonnabel & Bach (2023), "The limited-memory recursive variational Gaussian
approximation".
MultiSWAG: Brownlie (2021), "Extending the Bayesian deep learning method MultiSWAG".
KL-prox: Khan, Baqué, Fleuret & Fua (2015), "Kullback-Leibler proximal variational inference".
SILK: document 004, "Scaleable inference for logistic Kalmans" (2019).

| paper  | section                                     | class or function                  |
|--------|---------------------------------------------|------------------------------------|
| R-VGA  | 3.2, 5.2: implicit scheme                   | `rvga.RVGA`, `sites.Implicit`      |
|        | 3.2, 5.4.1: explicit scheme                 | `sites.Explicit`                   |
|        | 4.1: Kalman filter, Theorem 2               | any scheme with `likelihoods.Normal` |
|        | 4.2, 5.4.2: EKF, natural gradient, Theorem 3 | `sites.EKF`                       |
|        | 5.4.3: quadratic Kalman filter              | `sites.QKF`                        |
|        | Corollary 1.1: forms of order 2, 1 and 0    | `general.GeneralRVGA`              |
|        | 6: batch Laplace, batch optimum             | `laplace.laplace`, `vga.vga`       |
| L-RVGA | 4.2, appendix E: mirror prox, corrected     | `sites.MirrorProx`                 |
|        | 5.1, Algorithm 1: covariance of a stream    | `factor_analysis.RecursiveFA`      |
|        | 3.1, appendix A: batch EM                   | `factor_analysis.batch_em`         |
|        | appendix C: online EM, corrected            | `factor_analysis.OnlineEM`         |
| MultiSWAG | 3: SWA, SWAG, of SGD iterates           | `swag.SWA`, `swag.SWAG`            |
|        | 4.1, 4.2: factor analysis of SGD iterates   | `swag.FASWAG`                      |
|        | 6.1: means of windows of iterates           | `swag.WindowAverage`               |
| KL-prox | 3, Theorem 1: conjugate models           | `proximal_point.ProximalPoint`     |
|        | 5, eqs. 16, 17: weight space; minibatches   | `klprox.KLProximal`                |
|        | 5, eqs. 18, 19, Algorithm 1, corrected      | `klprox.fixed`                     |
|        | 5: Gaussian processes, at the optimum       | `klprox.klprox`                    |
| SILK   | 2: smoothness prior                         | `kernels.OrnsteinUhlenbeck`        |
|        | 3, 4: bound, means and variances            | `silk.elbo`, `silk.update_rows`    |
|        | 5, 6: mean, variance, rate of the prior     | `silk.learned`                     |
|        | 7: first guess                              | `silk.start`                       |
|        | 9: interface (table in the package)         | `silk`                             |
|        | sweeps; random pieces                       | `silk.SILK`, `silk.StochasticSILK` |
"""
