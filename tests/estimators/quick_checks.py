"""Those of scikit-learn's checks that are quick for estimators that compile for every size of table."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

UNFITTED = {
    "check_all_zero_sample_weights_error",
    "check_classifiers_regression_target",
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_supervised_y_no_nan",
    "check_valid_tag_types",
}
"""Checks that fit nothing, or to which a fit must be refused."""
ONE_SIZE = {
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_fit2d_predict1d",
}
"""Checks that fit twenty rows of three features."""
LONG = pytest.mark.slow(reason="compiles for a size of table of its own")


def quick_checks(estimators, **how):
    """`parametrize_with_checks`, with all but the quick ones marked as slow."""
    mark = parametrize_with_checks(estimators, **how)
    names, cases = mark.args
    return pytest.mark.parametrize(names, [_marked(case) for case in cases], **mark.kwargs)


def _marked(case):
    values, marks = (case.values, case.marks) if hasattr(case, "values") else (case, ())
    quick = values[1].func.__name__ in UNFITTED | ONE_SIZE
    return pytest.param(*values, marks=[*marks, *([] if quick else [LONG])])
