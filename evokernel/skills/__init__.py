"""Owns the texts by which a model that has tools works; `proposers.llm.skills` reads them."""
