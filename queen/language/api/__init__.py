"""Language models behind an OpenAI-compatible endpoint: asked, paid for, and remembered."""
