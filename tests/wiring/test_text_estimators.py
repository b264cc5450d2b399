"""TextClassifier and TextRegressor as scikit-learn expects estimators to be."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pyarrow as pa
import pytest
from finetune_toy import reviews
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks as checks

import unmask
from unmask import TextClassifier, TextRegressor
from unmask.errors import UnmaskError

QUICK = {"epochs": 1, "batch_size": 32, "fields": {"least_steps": 1, "precision": "fp32"}}
X = [text for text, _ in reviews(40, 1)]
Y = ["good" if label == "1" else "bad" for _, label in reviews(40, 1)]


@pytest.fixture(scope="module")
def fitted(place):
    return TextClassifier(place[0], **QUICK).fit(X, Y)


@pytest.mark.parametrize("kind", [TextClassifier, TextRegressor])
@pytest.mark.parametrize(
    "check",
    [
        checks.check_estimator_cloneable,
        checks.check_estimator_repr,
        checks.check_no_attributes_set_in_init,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_parameters_default_constructible,
        checks.check_estimator_tags_renamed,
        checks.check_valid_tag_types,
        checks.check_mixin_order,
    ],
)
def test_the_checks_of_the_library_that_need_no_numbers(kind, check):
    check(kind.__name__, kind("a folder"))


def test_predictions_are_those_of_the_folder(fitted):
    likely = fitted.predict_proba(X)
    assert list(fitted.classes_) == ["bad", "good"]
    assert likely.sum(1) == pytest.approx(np.ones(len(X)), abs=1e-5)
    answers = unmask.Predictor(fitted.folder_)(X)
    assert likely[:, 1].tolist() == [answer["scores"]["good"] for answer in answers]
    assert fitted.predict(X).tolist() == [answer["label"] for answer in answers]
    assert fitted.score(X, Y) == accuracy_score(Y, fitted.predict(X))
    assert fitted.predict_proba([]).shape == (0, 2)


def test_a_copy_answers_alike_and_a_clone_is_not_fitted(fitted):
    assert (copy.deepcopy(fitted).predict_proba(X[:3]) == fitted.predict_proba(X[:3])).all()
    other = clone(fitted)
    assert other.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        other.predict(X)
    assert is_classifier(fitted)
    assert is_regressor(TextRegressor("a folder"))


def test_a_pickled_estimator_holds_its_model(fitted):
    content = pickle.dumps(fitted)
    other = pickle.loads(content)  # noqa: S301  # written above
    assert other.folder_ != fitted.folder_
    assert other.run_.report.is_file()
    place = other.folder_
    assert (other.predict_proba(X[:3]) == fitted.predict_proba(X[:3])).all()
    del other
    gc.collect()
    assert not place.exists()


def test_only_its_own_folder_is_replaced(place, tmp_path):
    """Labels with outer spaces are fitted here too: every fit takes a second."""
    out, labels = tmp_path / "run", [f" {label}" for label in Y]
    model = TextClassifier(place[0], out=out, **QUICK).fit(X, labels)
    assert model.fit(X, labels).folder_ == out
    assert set(model.predict(X)) <= {" bad", " good"}
    for other in (clone(model), TextClassifier(out, out=out), TextClassifier(place[0], out=place[0])):
        with pytest.raises(UnmaskError, match="this estimator did not write it: choose another folder for out"):
            other.fit(X, Y)
    assert (model.predict_proba(X[:2]) == unmask.TextClassifier.predict_proba(copy.deepcopy(model), X[:2])).all()
    with pytest.raises(UnmaskError, match="differ in more than the spaces"):
        clone(model).fit(X, ["a", "a ", *Y[2:]])


def test_a_table_of_one_column_is_texts(fitted):
    class Table(dict):  # iterates over the names of its columns, as those of pandas
        def to_numpy(self):
            return np.array(list(self.values()), dtype=object).T

    for texts in (Table(text=X[:3]), pa.array(X[:3]), np.array(X[:3])):
        assert (fitted.predict_proba(texts) == fitted.predict_proba(X[:3])).all()


def test_a_grid_search_fits_a_pipeline(place):
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, TextClassifier(place[0], **QUICK))
    search = GridSearchCV(pipeline, {"textclassifier__learning_rate": [1e-3]}, cv=2)
    search.fit([text.upper() for text in X], np.array([label == "good" for label in Y]))
    assert search.best_params_ == {"textclassifier__learning_rate": 1e-3}
    assert search.best_estimator_.classes_.tolist() == [False, True]
    assert search.predict(X[:2]).dtype == bool


def test_numbers_of_pairs_are_predicted(place):
    model = TextRegressor(place[0], **QUICK).fit(list(zip(X, X[::-1], strict=True)), range(len(X)))
    found = model.predict([X[:2], ["a film", "a plot"]])
    assert found.shape == (2,)
    answers = unmask.Predictor(model.folder_)([X[:2], ["a film", "a plot"]])
    assert found.tolist() == [answer["score"] for answer in answers]


def test_other_inputs_are_refused(fitted, place):
    with pytest.raises(UnmaskError, match="Input 2 must be a text, or a pair of texts, not 3"):
        fitted.predict(["a", 3])
    with pytest.raises(UnmaskError, match="X must be a list of texts, not one text"):
        fitted.predict("a text")
    with pytest.raises(UnmaskError, match="40 texts but 1 labels"):
        clone(fitted).fit(X, ["a"])
    with pytest.raises(UnmaskError, match="All texts have one label, 'a'"):
        clone(fitted).fit(X, ["a"] * 40)
