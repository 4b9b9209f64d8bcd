"""Linear attention for labelled series: one layer for each view of them, and the best is kept.

A class token asks: its query is a constant, and the layer learns which products of two coordinates,
averaged over the tokens of a series, tell the labels.  Or the last token asks, as in the papers.
For each of a few views of the series the global optimum, and its error of leaving out one training
series at a time, come in closed form; the view of least error is taken, or plain summaries of the
series where no view is clearly better.  Nothing else is chosen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.model_selection import GridSearchCV
from tokens import Summaries, Tokens, View, are_standardised

import polyattn as pa

#: Directions whose signs are seen: while views are compared, and by the layer in the end.
FEW_SIGNS, MANY_SIGNS = 36, 120

#: The first coordinate of tokens is 1: a constant query, as that of a class token.
CLASS_TOKEN = pa.Form(query=[0], mean=True)

#: The last token asks; features are products of three coordinates.
LAST_TOKEN = pa.Form(mean=True)

#: Of one token only the values are seen: ridge regression on summaries, as a layer.
LINEAR = pa.Form(query=[0], key=[0])

#: Ridges to choose from: with squared error, and with log-loss.
GRID = np.logspace(-4, 6, 21)
RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0)


#: The error of a view counts so much more than that of the summaries.
DOUBT = 1.05


class Attention:
    """One layer, with the view, the scaler, the lags and the ridge that leave-one-out chose."""

    def __init__(self, is_regression):
        self.is_regression = is_regression

    def fit(self, series, y):
        targets = self._centred(y)
        fits = [
            Fitted(name, tokens, self._estimator(form), series, targets)
            for name, tokens, form in candidates(series)
        ]
        self.best = self._refined(min(fits, key=Fitted.error), series, targets)
        self.chosen = {"view": self.best.name}
        return self

    def predict(self, series):
        outputs = self.best.predict(series)
        return outputs + self.mean if self.is_regression else outputs

    def _refined(self, best, series, targets):
        """The same layer with more signs, if it sees any and that is better."""
        fits = [
            Fitted(f"{best.name}, {name}", tokens, self._estimator(best.form), series, targets)
            for name, tokens in with_many_signs(best.tokens).items()
        ]
        return min([best, *fits], key=Fitted.error)

    def _centred(self, y):
        if not self.is_regression:
            return y
        self.mean = y.mean()
        return y - self.mean

    def _estimator(self, form, **options):
        kind = pa.LinearAttentionRegressor if self.is_regression else pa.LinearAttentionClassifier
        by_default = {} if "ridge" in options else {"ridge": "loo", "ridge_grid": GRID}
        return kind(form=form, **by_default, **options)


class SlowAttention(Attention):
    """The same view, then a decay by leave-one-out, and for classes log-loss.

    The ridge of log-loss is chosen by three-fold cross-validation of the training series, with few
    signs; the layer is then fitted with many.
    """

    def _refined(self, best, series, targets):
        if best.form is not LINEAR:
            form = replace(best.form, decay="loo")
            faded = Fitted(best.name, best.tokens, self._estimator(form), series, targets)
            best = min(best, faded, key=Fitted.error)
        if self.is_regression:
            return super()._refined(best, series, targets)
        search = GridSearchCV(
            self._estimator(best.form, loss="logistic", ridge=1.0),
            {"ridge": RIDGES}, scoring="neg_log_loss", cv=3, refit=False,
        )  # fmt: skip
        ridge = search.fit(best.sequences, targets).best_params_["ridge"]
        model = self._estimator(best.form, loss="logistic", ridge=ridge)
        many = list(with_many_signs(best.tokens).items())
        if not many:
            return Fitted(best.name, best.tokens, model, series, targets)
        name, light = many[0]
        return Fitted(f"{best.name}, {name}", light, model, series, targets)

    def fit(self, series, y):
        super().fit(series, y)
        decay = self.best.form.decay
        self.chosen |= {"decay": decay} if decay is None else {"decay": round(decay, 4)}
        if not self.is_regression:
            self.chosen |= {"ridge": self.best.model.ridge}
        return self

    def predict_proba(self, series):
        """Probabilities of the classes."""
        return self.best.model.predict_proba(self.best.tokens.transform(series))


class Fitted:
    """Tokens of a view and the layer fitted to them."""

    def __init__(self, name, tokens, model, series, targets):
        self.name, self.tokens = name, tokens
        self.sequences = tokens.fit_transform(series)
        self.model = model.fit(self.sequences, targets)
        self.form = model.form if model.form.decay != "loo" else model.result_.form

    def error(self):
        """The squared error of leaving out each training series, with doubt of new views."""
        doubt = 1.0 if self.form is LINEAR else DOUBT
        return doubt * self.model.result_.ridge_path.errors.min()

    def predict(self, series):
        return self.model.predict(self.tokens.transform(series))


def candidates(series):
    """The views to compare: name, tokens, form."""
    lags = (6, 12) if series[0].shape[0] == 1 else (1, 2)  # one number is too little of a token
    for n_lags in lags:
        view = View("together", lags=n_lags, normed=True)
        yield f"last token asks, {n_lags} lags", Tokens(view), LAST_TOKEN
    yield "summaries", Summaries(), LINEAR
    for scaled in ("together",) if are_standardised(series) else ("together", "each"):
        plain = View(scaled, n_waves=16, lags=1)
        normed = replace(plain, normed=True)
        signs = replace(normed, n_signs=FEW_SIGNS)
        for name, view in {"values": plain, "normed values": normed, "signs": signs}.items():
            yield f"{name}, scaled {scaled}", Tokens(view), CLASS_TOKEN


def with_many_signs(tokens):
    """The same tokens with many signs, which weigh as much as few or much more, by name."""
    if isinstance(tokens, Summaries) or not tokens.view.n_signs:
        return {}
    light = (FEW_SIGNS / MANY_SIGNS) ** 0.5
    views = {
        f"{MANY_SIGNS} light signs": replace(tokens.view, n_signs=MANY_SIGNS, sign_size=light),
        f"{MANY_SIGNS} signs": View(tokens.view.scaled, n_waves=4, n_signs=MANY_SIGNS),
    }
    return {name: Tokens(view) for name, view in views.items()}
