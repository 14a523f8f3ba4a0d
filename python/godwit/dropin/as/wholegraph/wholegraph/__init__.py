"""What `import wholegraph` finds after `godwit run --as wholegraph`."""
