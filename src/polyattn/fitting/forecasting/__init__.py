"""Forecasts: a layer that predicts the next token, whose predictions become its tokens."""
