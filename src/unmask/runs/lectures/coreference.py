"""Entries on coreference."""

from __future__ import annotations

from unmask.data.labelled.rows import Clusters, Discourse
from unmask.metrics import of_coreference
from unmask.runs.lectures.entry import Shown, entry
from unmask.tasks.lexical.coreference import mentions_in, string_match
from unmask.train.report import Table

SENTENCE = "I voted for Nader because he was most aligned with my values , she said ."
CLUSTERS = (((0, 1), (10, 11), (13, 14)), ((3, 4), (5, 6)))
"""{I, my, she}, {Nader, he}"""


@entry(
    "Clusters of mentions, and their scores", code="metrics/coreference.py", test="metrics/test_metrics_coreference.py"
)
def clusters(quick: bool) -> Shown:
    """Coreference puts the mentions of one person or thing into a cluster. In "I voted for Nader because he was most
    aligned with my values, she said", the clusters are {I, my, she} and {Nader, he}: she is the speaker, so the arrow
    from she goes to I and my, and not to Nader.

    MUC counts links, B³ looks from each mention at its cluster, CEAFφ4 aligns clusters one to one; their mean is the
    score of CoNLL-2012 (Pradhan et al. 2014). MUC alone would give one cluster of all mentions a high score.

    `unmask finetune --task coreference` trains a model that finds mentions and links them, from documents with
    clusters.
    """
    row = Discourse(SENTENCE, words=tuple(SENTENCE.split()))
    mentions = [span for cluster in CLUSTERS for span in cluster]
    answers = {
        "annotated": CLUSTERS,
        "string match": string_match(row, mentions_in(row)),
        "all mentions in one cluster": (tuple(sorted(mentions)),),
    }
    names = ("muc_f1", "b_cubed_f1", "ceaf_f1", "conll_f1")
    scores = {name: of_coreference([(CLUSTERS, found)]) for name, found in answers.items()}
    return Shown(
        f"String match puts she with Nader, the nearest name: its mean is "
        f"{scores['string match']['conll_f1']:.2f}. One cluster of all five has a MUC of "
        f"{scores['all mentions in one cluster']['muc_f1']:.2f}, and a CEAFφ4 of "
        f"{scores['all mentions in one cluster']['ceaf_f1']:.2f}.",
        [
            Table("Clusters", ["", "clusters"], [(name, _said(row, found)) for name, found in answers.items()]),
            Table(
                "F1",
                ["", "MUC", "B³", "CEAFφ4", "mean"],
                [(name, *(f"{found[one]:.3f}" for one in names)) for name, found in scores.items()],
            ),
        ],
    )


def _said(row: Discourse, found: Clusters) -> str:
    return ", ".join("{" + ", ".join(" ".join(row.words[b:e]) for b, e in cluster) + "}" for cluster in found) or "none"


ENTRIES = (clusters,)
