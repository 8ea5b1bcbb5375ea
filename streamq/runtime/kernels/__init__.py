"""The kernels: one module a stateful operator."""
