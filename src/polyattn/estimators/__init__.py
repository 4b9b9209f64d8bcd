"""Estimators of scikit-learn for sequences: thin, no algebra."""

from polyattn.estimators.classifier import LinearAttentionClassifier
from polyattn.estimators.regressor import LinearAttentionRegressor, SoftmaxAttentionRegressor

__all__ = ["LinearAttentionClassifier", "LinearAttentionRegressor", "SoftmaxAttentionRegressor"]
