"""From a model to a predictive distribution."""

from bayesdrop.predict.engine import predict
from bayesdrop.predict.prediction import Prediction
from bayesdrop.predict.sampler import PartlyRandom

__all__ = ["PartlyRandom", "Prediction", "predict"]
