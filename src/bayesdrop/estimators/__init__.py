"""scikit-learn estimators over all kinds of dropout posteriors."""

from bayesdrop.estimators.classifier import DropoutClassifier
from bayesdrop.estimators.regressor import DropoutRegressor

__all__ = ["DropoutClassifier", "DropoutRegressor"]
