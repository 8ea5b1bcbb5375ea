"""Tests of pages in a headless Chromium of the system."""
