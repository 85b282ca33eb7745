"""Editors whose folders are in diffusers' layout: FLUX.1-Kontext and Qwen-Image-Edit-2511. Sizes are those of the folder."""
