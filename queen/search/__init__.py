"""Explanation trees and their recursion."""
