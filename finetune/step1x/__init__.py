"""Step1X-Edit v1.0 (arXiv 2504.17761) from library parts: its weights, conditioning, denoiser and adapters."""
