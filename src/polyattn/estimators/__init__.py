"""Estimators and transformers of scikit-learn for sequences: thin, no algebra."""

from polyattn.estimators.classifier import LinearAttentionClassifier
from polyattn.estimators.imputer import SequenceImputer
from polyattn.estimators.regressor import LinearAttentionRegressor, SoftmaxAttentionRegressor
from polyattn.estimators.scaler import SequenceScaler

__all__ = [
    "LinearAttentionClassifier",
    "LinearAttentionRegressor",
    "SequenceImputer",
    "SequenceScaler",
    "SoftmaxAttentionRegressor",
]
