"""Seeing inside a job: what it does now (`godwit top`), and what it did (GODWIT_TRACE, `godwit report`)."""
