"""What meets other processes: the recorder's build, the launcher, the trace reader."""
