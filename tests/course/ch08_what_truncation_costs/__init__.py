"""Tests of chapter 8."""
