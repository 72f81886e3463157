"""Alerts: rules over the live state, what they found, who was told."""
