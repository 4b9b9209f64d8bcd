"""scikit-learn faces of ``polyattn.fit`` for sequences: thin, no algebra."""

from polyattn.estimators.classifier import LinearAttentionClassifier
from polyattn.estimators.regressor import LinearAttentionRegressor

__all__ = ["LinearAttentionClassifier", "LinearAttentionRegressor"]
