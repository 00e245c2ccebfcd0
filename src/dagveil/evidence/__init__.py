"""What the curator hands out, and independence tests on it that know its noise."""
