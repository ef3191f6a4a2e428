"""From a model to a predictive distribution."""

from bayesdrop.predict.batches import NotFinite
from bayesdrop.predict.engine import predict
from bayesdrop.predict.prediction import Prediction
from bayesdrop.predict.sampler import PartlyRandom

__all__ = ["NotFinite", "PartlyRandom", "Prediction", "predict"]
