"""The door: the only room that holds rows. `Curator` is asked, charges, and answers with noise."""

from dagveil.curator.curator import Curator
from dagveil.curator.questions import Answer, Question, QuestionSession, ThresholdRounds

__all__ = ["Answer", "Curator", "Question", "QuestionSession", "ThresholdRounds"]
