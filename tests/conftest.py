"""What every test shares: 64-bit JAX, no silent rank promotion, fixed seeds, real data if it is there."""

import os
from pathlib import Path

# eight devices to spread parameters over; whatever asks for none has the first
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
if cache := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    jax.config.update("jax_compilation_cache_dir", cache)

hypothesis.settings.register_profile(
    "kalvi", derandomize=True, deadline=None, database=None, max_examples=25
)
hypothesis.settings.load_profile("kalvi")

HARD = "tests/algorithms/test_rvga.py::test_hard_binary_problems_leave_a_proper_posterior"
LONGEST = {
    "tests/estimators/test_low_rank.py::test_a_hundred_thousand_sparse_features_never_become_dense",
    "tests/papers/test_rvga.py::test_claims_on_the_stored_rows[10]",
    "tests/papers/test_rvga.py::test_claims_on_the_stored_rows[5]",
    "tests/tabular/test_learn.py::test_an_interrupted_run_goes_on_to_the_same_bits[2]",
    "tests/algorithms/test_laplace.py::test_gradient_vanishes_and_covariance_is_the_inverse_hessian[probit]",
    "tests/papers/test_rvga.py::test_claims_on_the_stored_rows[9]",
    HARD + "[mirror prox-float64]",
    HARD + "[mirror prox-float32]",
    HARD + "[ekf-float64]",
    HARD + "[qkf-float64]",
    "tests/algorithms/test_rvga.py::test_a_block_is_its_rows_one_by_one[mirror prox-bernoulli]",
    "tests/algorithms/test_rvga.py::test_a_block_is_its_rows_one_by_one[mirror prox-poisson]",
    "tests/algorithms/test_rvga.py::test_a_block_is_its_rows_one_by_one[explicit-poisson]",
    "tests/algorithms/test_rvga.py::test_a_block_is_its_rows_one_by_one[ekf-poisson]",
    "tests/estimators/test_linear.py::test_pickle_keeps_every_bit[PoissonRegression]",
    "tests/estimators/test_linear.py::test_numpy_dtypes_are_dtypes",
    "tests/test_projections.py::test_blocks_of_curvature_are_rows_mixed_beforehand[one chunk-EM(loops=2)]",
    "tests/test_projections.py::test_em_is_the_papers_algorithm_1[one chunk-1-None]",
    "tests/test_projections.py::test_em_is_the_papers_algorithm_1[one chunk-1-0.7]",
    "tests/estimators/test_linear.py::test_block_size_does_not_change_the_result[LogisticRegression]",
    "tests/papers/test_rvga.py::test_final_divergences_are_the_authors[6]",
    "tests/test_run.py::test_new_parameters_of_a_likelihood_do_not_recompile",
    "tests/algorithms/test_groups.py::test_a_block_is_its_rows_one_by_one[Implicit]",
    "tests/algorithms/test_groups.py::test_separable_data_and_a_wide_prior[float32-low rank]",
    "tests/algorithms/test_groups.py::test_separable_data_and_a_wide_prior[float64-dense]",
    "tests/algorithms/test_klprox.py::test_gradient_of_the_optimal_bound[laplace]",
    "tests/algorithms/test_klprox.py::test_rows_of_weight_zero_change_nothing_and_weights_are_repeats",
    "tests/algorithms/test_klprox.py::test_starts_from_a_stream_and_hands_over_to_one",
    "tests/algorithms/test_lrvga.py::test_sampled_expectations_approach_the_integrals[scheme0]",
    "tests/algorithms/test_nonlinear.py::test_directions",
    "tests/algorithms/test_nonlinear.py::test_sampled_step_written_out",
    "tests/algorithms/test_revisit.py::test_with_all_the_rank_it_is_the_batch_optimum",
    "tests/algorithms/test_rvga.py::test_forgetting_does_not_depend_on_the_block_size[imp]",
    HARD + "[implicit-float64]",
    "tests/algorithms/test_rvga.py::test_jit_changes_nothing",
    "tests/algorithms/test_vifa.py::test_gauss_newton_of_a_network",
    "tests/algorithms/test_vifa.py::test_the_default_does_not_run_away",
    "tests/estimators/test_classes.py::test_fit_is_the_optimum_of_the_bound",
    "tests/estimators/test_gaussian_process.py::test_restarts_find_a_better_optimum_and_repeat_with_the_seed",
    "tests/estimators/test_low_rank.py::test_further_passes_close_the_gap[1]",
    "tests/estimators/test_low_rank.py::test_learned_noise_does_not_narrow_what_was_never_seen[float64]",
    "tests/estimators/test_neural.py::test_classes",
    "tests/estimators/test_neural.py::test_iterates[swag]",
    "tests/estimators/test_nuts.py::test_fit_agrees_with_nuts[sonar]",
    "tests/estimators/test_nuts.py::test_fit_agrees_with_nuts[weather_noaa]",
    "tests/test_demo.py::test_predictions_are_calibrated",
    "tests/papers/test_klprox.py::test_table_2",
    "tests/papers/test_rvga.py::test_final_divergences_are_the_authors[7]",
    "tests/papers/test_rvga.py::test_final_divergences_are_the_authors[9]",
    "tests/papers/test_vifa.py::test_figure_6_3",
    "tests/test_checkpoints.py::test_save_load_continue_is_uninterrupted[LowRankPrecision]",
    "tests/test_docs.py::test_the_examples_of_the_docstrings_run[kalvi.estimators.gaussian_process]",
    "tests/test_docs.py::test_the_examples_of_the_docstrings_run[kalvi.estimators.neural]",
    "tests/test_implicit.py::test_general_solver_over_wide_ranges[probit]",
    "tests/test_merging.py::test_a_merged_mean_does_not_suffer_from_the_projection",
    "tests/test_merging.py::test_estimators_posteriors_merge",
    "tests/test_projections.py::test_every_further_iteration_lowers_the_divergence",
    "tests/test_projections.py::test_float32_keeps_diag_positive_and_right_where_factors_are_huge[projection0]",
    "tests/papers/test_klprox.py::test_table_3",
    "tests/papers/test_rvga.py::test_claims_on_the_stored_rows[7]",
    "tests/papers/test_rvga.py::test_claims_on_the_stored_rows[6]",
    HARD + "[implicit-float32]",
    "tests/algorithms/test_nonlinear.py::test_a_linear_classifier_is_that_of_rvga",
    "tests/estimators/test_neural.py::test_low_rank",
    "tests/estimators/test_low_rank.py::test_any_batching_gives_the_same_posterior[False]",
    "tests/test_projections.py::test_float32_keeps_diag_positive_and_right_where_factors_are_huge[projection1]",
    "tests/papers/test_rvga.py::test_final_divergences_are_the_authors[8]",
    "tests/algorithms/test_rvga.py::test_rows_of_weight_zero_change_nothing[low rank]",
    "tests/algorithms/test_klprox.py::test_gradient_of_the_optimal_bound[student]",
    "tests/algorithms/test_groups.py::test_a_block_is_its_rows_one_by_one[EKF]",
    "tests/algorithms/test_groups.py::test_separable_data_and_a_wide_prior[float32-dense]",
    "tests/algorithms/test_rvga.py::test_forgetting_does_not_depend_on_the_block_size[mp]",
    "tests/test_implicit.py::test_general_solver_over_wide_ranges[student]",
    "tests/test_implicit.py::test_general_solver_over_wide_ranges[custom]",
    "tests/estimators/test_low_rank.py::test_further_passes_of_a_linear_model_find_its_mean_and_noise",
    "tests/test_checkpoints.py::test_save_load_continue_is_uninterrupted[Dense]",
    "tests/algorithms/test_klprox_fixed.py::test_a_fixed_step_need_not_converge",
    "tests/algorithms/test_silk_fit.py::test_float32_tracks_float64",
    "tests/algorithms/test_silk_large.py::test_a_piece_of_everything_is_a_sweep",
    "tests/estimators/test_binary_places.py::test_what_was_fitted_transforms_whatever_the_parameters_are_now",
    "tests/papers/test_rvga.py::test_final_divergences_are_the_authors[10]",
    "tests/algorithms/test_silk.py::test_no_update_lowers_the_bound[Coupled]",
    "tests/algorithms/test_silk_fit.py::test_the_accelerated_rule_reaches_the_plain_optimum",
    "tests/algorithms/test_klprox_sparse.py::test_every_row_an_inducing_point_is_no_approximation",
    "tests/algorithms/test_vga.py::test_the_bound_never_falls_below_its_start",
    "tests/algorithms/test_silk_large.py::test_pieces_come_near_the_optimum",
    "tests/algorithms/test_klprox_sparse.py::test_normal_noise_gives_the_collapsed_bound_of_titsias_its_gradient_and_predictions",
    "tests/papers/test_silk.py::test_a_fit_against_quadrature",
    "tests/test_docs.py::test_the_examples_of_the_docstrings_run[kalvi.estimators.binary_factorization]",
    "tests/estimators/test_linear.py::test_block_size_does_not_change_the_result[PoissonRegression]",
    "tests/algorithms/test_klprox.py::test_weight_space_and_function_space_have_one_optimum[diagonal]",
    "tests/algorithms/test_klprox_fixed.py::test_all_forms_reach_the_optimum",
    "tests/algorithms/test_nonlinear.py::test_look_ahead_ends_at_the_most_likely_parameters",
    "tests/estimators/test_klprox_linear.py::test_it_is_the_optimum_in_both_spaces[wide]",
    "tests/algorithms/test_swag.py::test_fa_swag_with_a_random_start",
    "tests/papers/test_klprox.py::test_the_command_draws_figure_1",
    "tests/algorithms/test_silk_fit.py::test_ones_everywhere_and_constant_rows",
    "tests/algorithms/test_vga.py::test_rows_in_many_blocks",
    "tests/estimators/test_neural.py::test_weights_are_repeats",
    "tests/estimators/test_klprox_linear.py::test_the_prior_may_be_any_gaussian[_diagonal]",
    "tests/estimators/test_gaussian_process.py::test_a_kernel_of_scikit_learn_is_the_same_kernel",
    "tests/algorithms/test_silk_fit.py::test_exact_solves_need_few_rounds_where_jacobi_steps_need_many",
    "tests/estimators/test_linear.py::test_stream_is_one_pass_whatever_the_batches[PoissonRegression]",
    "tests/algorithms/test_silk_fit.py::test_rows_at_one_location_are_the_limit_of_small_gaps[Coupled]",
    "tests/estimators/test_gaussian_process.py::test_all_rows_as_inducing_points_are_exact",
    "tests/algorithms/test_klprox_rule.py::test_negative_curvatures_that_leave_no_gaussian_are_clipped_and_counted",
    "tests/algorithms/test_general.py::test_forms_share_the_implicit_fixed_point[SecondOrder]",
    "tests/algorithms/test_vifa.py::test_plain_descent_and_optax_reach_it_too",
    "tests/algorithms/test_revisit.py::test_the_prior_is_kept_apart_from_the_start",
    "tests/algorithms/test_silk_fit.py::test_structured_posteriors_have_a_higher_bound[Chains]",
    "tests/algorithms/test_klprox_rule.py::test_minibatches_reach_the_batch_optimum_in_a_few_passes",
    "tests/algorithms/test_klprox_rule.py::test_a_wild_beginning_is_not_averaged",
    "tests/estimators/test_linear.py::test_automatic_prior_scale_has_the_most_evidence[PoissonRegression]",
    "tests/test_kill.py::test_killed",
    "tests/estimators/test_nuts.py::test_fit_agrees_with_nuts[ionosphere]",
    "tests/test_cli.py::test_demo",
    "tests/papers/test_rvga.py::test_claims_on_the_stored_rows[8]",
    "tests/papers/test_rvga.py::test_final_divergences_are_the_authors[3]",
    "tests/tabular/test_ahead.py::test_ctrl_c_on_a_stalled_pipe",
    "tests/algorithms/test_silk_fit.py::test_rows_without_entries_are_where_their_neighbours_lead[Chains]",
    "tests/tabular/test_learn.py::test_a_diagnosis_of_the_sample",
    "tests/algorithms/test_klprox_sparse.py::test_minibatches_come_to_the_same_optimum",
    "tests/algorithms/test_general.py::test_forms_share_the_implicit_fixed_point[FirstOrder]",
    "tests/tabular/test_learn.py::test_models_of_other_units_do_not_merge",
    "tests/estimators/test_saving.py::test_a_model_comes_back_bit_for_bit_and_learns_on[low rank]",
    "tests/test_implicit.py::test_general_solver_is_the_logistic_solver",
    "tests/estimators/test_low_rank.py::test_ragged_calls_compile_nothing_new",
    "tests/estimators/test_low_rank.py::test_any_batching_gives_the_same_posterior[True]",
    "tests/test_cli_columns.py::test_a_full_covariance_does_not_grow_for_ever",
    "tests/estimators/test_gaussian_process.py::test_a_callable_searches_and_the_best_point_it_saw_is_kept",
    "tests/estimators/test_low_rank.py::test_a_posterior_as_prior",
    "tests/estimators/test_linear.py::test_poisson_recovers_rates",
    "tests/algorithms/test_rvga.py::test_hard_problems_for_other_likelihoods[likelihood1]",
    "tests/estimators/test_klprox_linear.py::test_weights_count_rows[wide]",
    "tests/algorithms/test_factor_analysis.py::test_one_pass_comes_close_to_the_optimum",
    "tests/estimators/test_low_rank.py::test_a_diagonal_posterior_has_one_pass",
    "tests/algorithms/test_klprox_rule.py::test_batches_drawn_with_replacement_leave_noise_that_passes_average",
    "tests/test_cli.py::test_reproduce_a_table",
    "tests/algorithms/test_rvga.py::test_forgetting_does_not_depend_on_the_block_size[ekf]",
    "tests/estimators/test_linear.py::test_automatic_prior_scale_has_the_most_evidence[LogisticRegression]",
    "tests/test_cli_columns.py::test_vectors",
    "tests/papers/test_vifa.py::test_the_entropy_is_taken_away",
    "tests/algorithms/test_revisit.py::test_the_bound_never_falls_and_is_the_bound[likelihood0]",
    "tests/test_networks.py::test_spreads_keep_their_digits",
    HARD + "[explicit-float32]",
    HARD + "[explicit-float64]",
    "tests/estimators/test_klprox_linear.py::test_learned_noise_is_the_conjugate_model",
    "tests/algorithms/test_rvga.py::test_a_block_is_its_rows_one_by_one[implicit-poisson]",
    "tests/algorithms/test_rvga.py::test_a_block_is_its_rows_one_by_one[explicit-bernoulli]",
    "tests/estimators/test_linear.py::test_sparse_equals_dense[PoissonRegression]",
    "tests/algorithms/test_klprox_fixed.py::test_weight_space_and_function_space_take_the_same_steps",
    "tests/algorithms/test_klprox_fixed.py::test_a_step_is_the_argmax_of_the_corrected_subproblem[0.25]",
    "tests/test_merging.py::test_dense_shards_of_a_linear_model_merge_exactly[1]",
    "tests/algorithms/test_vifa.py::test_divergence_slopes",
    "tests/algorithms/test_silk_large.py::test_a_piece_needs_a_key",
    "tests/estimators/test_neural.py::test_one_pass_goes_on",
    "tests/algorithms/test_revisit.py::test_a_linear_model_reaches_the_exact_mean_and_the_best_factors",
    "tests/algorithms/test_vga.py::test_the_bound_is_metrics_elbo_whatever_the_start",
    "tests/estimators/test_factor_analysis.py::test_one_pass_in_any_units_is_near_the_maximum_likelihood",
    "tests/algorithms/test_factor_analysis.py::test_eigen_rule_is_a_sum_divided_at_the_end",
    "tests/algorithms/test_klprox.py::test_sites_are_those_that_their_own_gaussian_asks_for[bernoulli]",
    "tests/estimators/test_linear.py::test_float32_agrees",
    "tests/test_merging.py::test_low_rank_shards_merge_exactly_where_the_rank_suffices",
    "tests/algorithms/test_laplace.py::test_gradient_vanishes_and_covariance_is_the_inverse_hessian[bernoulli]",
    "tests/algorithms/test_rvga.py::test_all_zero_rows_teach_nothing_of_theta",
    "tests/estimators/test_gaussian_process.py::test_gradients_of_the_bound_are_its_differences[logit]",
    "tests/estimators/test_linear.py::test_learned_noise_is_the_conjugate_model",
}
"""Cases that take three seconds and more, most of it compilation, of what others test too: slow ones."""
CHECKED_ELSEWHERE = "tests/estimators/test_checks.py::test_sklearn_check[PoissonRegression()"
"""The checks of a class whose code is that of the other regressor, but for the likelihood."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the longest cases before the slow ones are left out."""
    for item in items:
        if item.nodeid in LONGEST or item.nodeid.startswith(CHECKED_ELSEWHERE):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("KALVI_DATA")
    if not folder:
        pytest.skip("KALVI_DATA is not set: it names the folder of the real data sets")
    return Path(folder)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled():
    """A process can hold only so many compiled programs; each file starts with none."""
    yield
    jax.clear_caches()
