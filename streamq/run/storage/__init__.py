"""What a run keeps in files: its checkpoint, Spark's logs in it, and the migration to another one."""
