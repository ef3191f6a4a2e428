"""From a model to a predictive distribution."""

from bayesdrop.predict.engine import predict
from bayesdrop.predict.prediction import Prediction

__all__ = ["Prediction", "predict"]
