"""What streamq renders, in a headless Chromium of the system."""
