"""What a parent is worth to a node, from reports: a BIC that knows the channel."""

from __future__ import annotations

import numpy as np

from dagveil.evidence.scores import EvidenceScore
from dagveil.local.linear_reports import LinearReportEvidence
from dagveil.local.reports import ReportEvidence


def report_score(evidence: ReportEvidence | LinearReportEvidence) -> EvidenceScore:
    """Return ½ (T − penalty) of the tests on reports; T stands in for twice the gain in log-likelihood.

    The penalty belongs to the pair, so graphs with one skeleton differ by statistics alone.
    """
    d = len(evidence.columns)
    penalties = np.zeros((d, d))
    for x in range(d):
        for y in range(x):
            penalties[x, y] = penalties[y, x] = evidence.penalty(x, y)
    return EvidenceScore(evidence, penalties, left_behind=0.0)
