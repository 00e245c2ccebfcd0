"""The door: the only room that holds rows. `Curator` is asked, charges, and answers with noise."""

from dagveil.curator.door import Curator
from dagveil.curator.interview import Answer, Interview, Question, Sieve
from dagveil.curator.published import PublishedAccess

__all__ = ["Answer", "Curator", "Interview", "PublishedAccess", "Question", "Sieve"]
