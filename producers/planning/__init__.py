"""What to expect of a survey before it starts: intervals, alerts, lying devices, costs, and ladders for a goal.

Server side only.
"""
