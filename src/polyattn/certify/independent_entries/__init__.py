"""Entries that are independent: lambda_min of the population, and how many sequences show it.

moments.py        the moments of one entry, read exactly
expectations.py   expectations of products of features
blocks.py         entries without odd moments: Lambda in blocks of at most three
permutations.py   entries with any moments: Lambda on 49 sums of features
leverage.py       how many sequences bring Lambda_D above half of Lambda
result.py         the entry point and what it returns
"""

from polyattn.certify.independent_entries.result import IndependentEntries, independent_entries

__all__ = ["IndependentEntries", "independent_entries"]
