"""What `import wg_torch` finds after `godwit run --as wholegraph`."""
