"""What a container gets: which devices are preferred, and the answer that injects them. Pure."""
