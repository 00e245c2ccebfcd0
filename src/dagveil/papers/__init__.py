"""The methods of the papers as published: exact access to rows, their own noise, and no guarantee."""
