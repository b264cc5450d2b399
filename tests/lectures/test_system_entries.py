"""Entries on published systems: their means, sizes and costs by other ways."""

from __future__ import annotations

import pytest

from unmask.runs.lectures import systems


def test_means_of_glue_are_those_of_the_paper():
    """Devlin et al. 2019, table 1, column "Average"."""
    [table] = systems.glue.show(True).tables
    means = {row[0]: row[-1] for row in table.rows}
    published = {"best before GPT": 74.0, "BiLSTM + ELMo": 71.0, "GPT": 75.1, "BERT-base": 79.6, "BERT-large": 82.1}
    for name, mean in published.items():
        assert means[name] == pytest.approx(mean, abs=0.11), name


def test_operations_of_bert_are_near_those_of_the_paper():
    """6 operations a weight and a token (Kaplan et al. 2020, section 2.1) leave out attention and the output layer."""
    table = systems.glue_operations.show(True).tables[1]
    for (_, paper, counted), weights in zip(table.rows, (12 * 12 * 768**2, 24 * 12 * 1_024**2), strict=True):
        six = 6 * weights * 256e6 * 512
        assert 1 < float(counted) / six < 1.25
        assert 1 < float(counted) / float(paper) < 1.5


def test_parameters_are_near_the_published_ones():
    [table] = systems.parameters.show(False).tables
    for name, _, published, here in table.rows:
        ratio = float(here.replace(",", "")) / float(published.replace(",", ""))
        assert ratio == pytest.approx(1, abs=0.13 if "ALBERT" in name else 0.03), name


def test_the_papers_costs_are_hours_of_gpus():
    """8 P100 of 9.5 TFLOP/s for 12 hours and for 3.5 days."""
    costs, own = systems.translation_costs.show(True).tables
    published = {row[0]: float(row[3]) for row in costs.rows if row[3]}
    assert len(costs.rows) == 10
    for (size, paper, counted, share), hours in zip(own.rows, (12, 84), strict=True):
        assert float(paper) == published[f"Transformer, {size}"] == pytest.approx(hours * 3600 * 8 * 9.5e12, rel=0.02)
        assert share == pytest.approx(float(counted) / float(paper), abs=0.02)


def test_hours_of_a_step():
    """Crops of 320,000 samples at 16,000 a second; XLS-R's batches are of 4.3 hours, and of 2.8 to 3.6."""
    [table] = systems.speech_batches.show(True).tables
    for _, gpus, crops, hours, _, least, most in table.rows:
        assert hours == round(crops * 20 / 3600, 1)
        assert crops % gpus == 0
        assert 0 < least <= most
    assert [row[3] for row in table.rows] == [4.3, 3.3, 3.3]


def test_shares_on_both_levels_by_hand():
    once, twice = systems.mixing.show(True).tables
    sizes = {(corpus, name): n for corpus, found in systems.CORPORA.items() for name, n in found.items()}
    for column, alpha in enumerate((1.0, 0.7, 0.5, 0.3), 2):
        powers = {key: n**alpha for key, n in sizes.items()}
        corpora = {corpus: sum(found.values()) ** alpha for corpus, found in systems.CORPORA.items()}
        for row, plain, (corpus, name) in zip(twice.rows, once.rows, sizes, strict=True):
            within = powers[corpus, name] / sum(p for (other, _), p in powers.items() if other == corpus)
            wanted = within * corpora[corpus] / sum(corpora.values())
            assert float(row[column].rstrip("%")) == pytest.approx(100 * wanted, abs=0.051)
            alone = powers[corpus, name] / sum(powers.values())
            assert float(plain[column].rstrip("%")) == pytest.approx(100 * alone, abs=0.051)


def test_layers_learn_from_below_and_then_the_predictions():
    [drawing] = systems.layer_transfer.show(True).figures
    predictions, *layers = drawing.values
    layers = layers[::-1]  # drawn from the top
    turns = [[step for step, on in enumerate(row) if on and not predictions[step]] for row in layers]
    assert [turn[0] for turn in turns] == sorted(turn[0] for turn in turns)
    assert sum(map(len, turns)) == len(predictions) - sum(predictions)  # one layer at a time
    assert all(row[step] for row in layers for step, on in enumerate(predictions) if on)
