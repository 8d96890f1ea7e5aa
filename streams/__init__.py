"""The collector: workers that fold reports into rolling counts, estimates per window, exporter and command line."""
