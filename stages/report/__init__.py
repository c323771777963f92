"""The project on one page: self-contained HTML, nothing fetched from anywhere."""
