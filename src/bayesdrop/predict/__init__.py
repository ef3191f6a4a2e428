"""From a model to a predictive distribution."""

from bayesdrop.inputs import NotFinite
from bayesdrop.predict.call import predict
from bayesdrop.predict.compiled import Compiled, compile
from bayesdrop.predict.prediction import Prediction
from bayesdrop.predict.sampler import PartlyRandom

__all__ = ["Compiled", "NotFinite", "PartlyRandom", "Prediction", "compile", "predict"]
