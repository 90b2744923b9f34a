"""alignment.json: similarity transforms of five landmarks and warped images, by scikit-image."""

import numpy as np
from skimage.transform import SimilarityTransform, warp

TEMPLATE = np.array([[30.2946, 51.6963], [65.5318, 51.5014], [48.0252, 71.7366], [33.5493, 92.3655], [62.7299, 92.2041]])
WIDTH, HEIGHT = 96, 112


def template(width: int, height: int) -> np.ndarray:
    """The template for a crop of another size: scaled about the corner of the first pixel, at (-0.5, -0.5), and centred."""
    scale = min(width / WIDTH, height / HEIGHT)
    offset = np.array([width - WIDTH * scale, height - HEIGHT * scale]) / 2
    return (TEMPLATE + 0.5) * scale - 0.5 + offset


def drawn_image(width: int, height: int) -> np.ndarray:
    """A smooth picture with an edge and three different channels."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [np.sin(0.31 * x + 0.11 * y + c) + np.cos(0.17 * x - 0.23 * y + 2 * c) for c in range(3)]
    image = 127.5 + 55 * np.stack(channels, axis=-1)
    image[height // 3 : height // 2, width // 4 : width // 2] = [250, 20, 90]
    return np.round(image).clip(0, 255).astype(np.uint8)


def alignment() -> dict:
    """Faces of several sizes, turned by any angle, partly outside of the image; noisy and mirrored landmarks."""
    rng = np.random.default_rng(2016)
    width, height = 60, 48
    image = drawn_image(width, height)
    records = []
    for name, angle, scale, centre, noise, size in [
        ("upright", 0.0, 0.3, (30, 24), 0.0, (30, 35)),
        ("a few degrees", 7.0, 0.28, (28, 25), 0.6, (30, 35)),
        ("beyond a right angle", 117.0, 0.27, (30, 22), 0.5, (30, 35)),
        ("upside down", 180.0, 0.29, (31, 24), 0.2, (30, 35)),
        ("almost a whole turn", -176.0, 0.2, (29, 21), 0.4, (30, 30)),
        ("partly outside", 20.0, 0.28, (4, 40), 0.5, (30, 35)),
        ("outside", 0.0, 0.25, (-60, -70), 0.5, (30, 35)),
        ("enlarged", -33.0, 0.12, (33, 25), 0.3, (30, 35)),
        ("another shape", 12.0, 0.25, (30, 24), 0.4, (40, 32)),
        ("mirrored landmarks", 15.0, 0.6, (30, 24), 0.2, (12, 14)),
    ]:
        points = TEMPLATE - [47.5, 62]
        if name == "mirrored landmarks":
            points = points * [-1, 1]
        turn = np.radians(angle)
        rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        points = scale * points @ rotation.T + centre + noise * rng.normal(size=(5, 2))
        points = np.round(points, 2)
        target = template(*size)
        transform = SimilarityTransform.from_estimate(points, target)
        matrix = transform.params[:2]
        if transform.scale < 1 and name != "mirrored landmarks":
            raise ValueError(f"{name}: shrunk by {transform.scale}, which needs anti-aliasing")
        warped = warp(image, transform.inverse, output_shape=size[::-1], order=1, mode="constant", cval=0, preserve_range=True)
        records.append({
            "name": name,
            "landmarks": points.ravel().tolist(),
            "width": size[0],
            "height": size[1],
            "template": target.ravel().tolist(),
            "transform": matrix.ravel().tolist(),
            "channel": len(records) % 3,
            "warped": np.round(warped[:, :, len(records) % 3], 3).ravel().tolist() if transform.scale >= 1 else None,
        })
    return {"images": [{"width": width, "height": height, "pixels": image.ravel().tolist()}], "cases": records}
