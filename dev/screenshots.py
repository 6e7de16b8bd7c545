"""Take a picture of every view of the explorer, light and dark, wide and narrow, to be looked at.

    python dev/screenshots.py [DIRECTORY]

It shows runs/reversal, runs/microscope and runs/number-words, and trains what is missing.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.explorer.browser import CHROMIUM, FLAGS, Page, launched, needed, serving

from glassformer.config import preset
from glassformer.explorer.shelf import open_run
from glassformer.learn.trainer import Trainer

RUNS = ("reversal", "microscope", "number-words")
PICTURES = {
    "tokens": {},
    "position": {"step": "encoder.embedding.positioned"},
    "self-attention": {"step": "encoder.layers.0.self_attention.weights"},
    "proof": {"step": "encoder.layers.0.ffn.projected", "cell": "encoder.layers.0.ffn.projected@0,1,5"},
    "cross-attention": {"step": "decoder.layers.1.cross_attention.weights", "head": "mean"},
    "softmax": {"step": "probabilities"},
    "attention": {"view": "attention", "head": "mean"},
    "generate": {"view": "generate"},
    "training": {"view": "training"},
    "positions": {"view": "positions"},
    "microscope": {"run": "1", "source": "8 9 =", "step": "decoder.layers.0.self_attention.weights"},
    "microscope-block": {"run": "1", "source": "8 9 =", "view": "block"},
    "numbers": {"run": "2", "source": "4 2 7 = four", "view": "attention"},
}
SCREENS = {"wide": (1440, 900), "narrow": (390, 844)}


def main(place: Path) -> None:
    needed()
    place.mkdir(parents=True, exist_ok=True)
    runs = []
    for name in RUNS:
        directory = Path("runs") / name
        if not (directory / "model.safetensors").is_file():
            print(f"training {directory}")
            Trainer(preset(name), directory, lambda _: None).train()
        runs.append(open_run(directory))
    with launched() as playwright, serving(runs) as address:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for screen, (width, height) in SCREENS.items():
            for dark in (False, True):
                page = Page(browser, address, width=width, height=height, dark=dark)
                for name, state in PICTURES.items():
                    opened = page.open(**({"source": "c a b e d"} | state))
                    if opened.get_by_text("show me").count():
                        opened.get_by_text("show me").click()
                    opened.wait_for_timeout(700)
                    path = place / f"{name}-{screen}-{'dark' if dark else 'light'}.png"
                    opened.screenshot(path=path, full_page=screen == "narrow")
                page.check()
                page.context.close()
        browser.close()
    print(f"{len(PICTURES) * 2 * len(SCREENS)} pictures in {place}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/screenshots"))
