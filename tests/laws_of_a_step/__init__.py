"""The laws that every step's price obeys, numbered in laws.csv, which names the tests of each wherever they are."""
