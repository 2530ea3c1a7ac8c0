"""What is known about the people who answered."""

import pandas as pd
import pytest

from choicegp import ChoiceData, ChoiceGPError


@pytest.fixture
def frame():
    return pd.DataFrame({
        "choice_id": [1, 1, 2, 2], "who": ["ann", "ann", "bo", "bo"], "alt_id": ["pen", "ink"] * 2,
        "choice": [1, 0, 0, 1], "price": [3, 5, 3, 5], "age": [31, 31, 64, 64], "city": ["Bern", "Bern", "Ulm", "Ulm"],
    })  # fmt: skip


@pytest.fixture
def data(frame):
    return ChoiceData.from_long(frame, respondent="who", covariates=["age", "city"])


def test_covariates_belong_to_people_and_come_back(data):
    assert data.feature_names == ("price",)
    assert data.covariates.loc["bo"].tolist() == [64, "Ulm"]
    assert "Known about the respondents: age, city." in str(data.describe())
    table = data.to_long()
    again = ChoiceData.from_long(table, respondent="respondent", covariates=["age", "city"])
    assert again == data
    pd.testing.assert_frame_equal(again.covariates, data.covariates)
    one, other = data.take([0]), data.take([1])
    assert ChoiceData.concat([one, other]).covariates.index.tolist() == ["ann", "bo"]
    assert ChoiceData.concat([one, ChoiceData.from_sets(
        data.encoding.decode(data.X), [[0, 1]], [[0]], respondents=["cy"]
    )]).covariates is None  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda frame: frame.assign(age=[31, 32, 64, 64]),
            "covariate 'age' of respondent 'ann' has several values",
        ),
        (lambda frame: frame.assign(age=[31, 31, None, None]), "covariate 'age' of respondent 'bo' is missing"),
        (lambda frame: frame.drop(columns="city"), "there is no column 'city' \\(covariates\\)"),
    ],
)
def test_what_is_wrong_with_covariates_is_said(frame, change, words):
    with pytest.raises(ChoiceGPError, match=words):
        ChoiceData.from_long(change(frame), respondent="who", covariates=["age", "city"])


def test_covariates_need_respondents(frame, data):
    with pytest.raises(ChoiceGPError, match="pass respondent=COLUMN too"):
        ChoiceData.from_long(frame.drop(columns="who"), covariates=["age"], features=["price"])
    ages = data.covariates[["age"]]
    with pytest.raises(ChoiceGPError, match="do not say who answered"):
        ChoiceData.from_sets([[0.0], [1.0]], [[0, 1]]).with_covariates(ages)
    with pytest.raises(ChoiceGPError, match="no covariates of the respondents 'bo'"):
        data.with_covariates(ages.loc[["ann"]])
    with pytest.raises(ChoiceGPError, match="'ann' has several rows"):
        data.with_covariates(pd.concat([ages, ages]))
    with pytest.raises(ChoiceGPError, match="must be a DataFrame"):
        data.with_covariates({"age": [1]})
