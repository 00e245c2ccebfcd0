"""Which of two columns is the cause: four published rules.

They read columns of numbers, so they are for rows that are public or that a local channel has randomised already. Each
gives a number that is above 0 if the first column is the cause.
"""
