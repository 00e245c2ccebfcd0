"""Searches that remove edges by conditional independence and orient what is left."""
