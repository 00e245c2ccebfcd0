"""How far a found graph is from the true one: skeletons, arrows and distances. Import from the modules."""
