"""Sound edits, and the same edits with a defect planted: what the gates are measured on.

Sound are the real triplets in the folder ``triplets`` of a checkout's shared data, and exact edits of the toy world. Every defect is a
function from sound edits to spoilt ones.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from reward.inputs.decoding import decode
from stages.datasets.io.cells import by_characters
from stages.datasets.readers import Edit
from stages.engine.images import png
from stages.world import flaws, items

Defect = Callable[[Sequence[Edit]], list[Edit]]
BICUBIC, LANCZOS = Image.Resampling.BICUBIC, Image.Resampling.LANCZOS


def real_triplets(folder: Path) -> list[Edit]:
    """The real triplets; the data set that each comes from is its task."""
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        edit_of(
            row["id"], row["instruction"], (folder / row["source"]).read_bytes(), (folder / row["candidate"]).read_bytes(),
            (row["source"], row["candidate"]), row["set"],
        )
        for row in rows
    ]  # fmt: skip


def drawn_edits(count: int, size: int) -> list[Edit]:
    """Exact edits of the toy world."""
    made = []
    for number in range(count):
        item = items.item(0, "noisy", number)
        renders = flaws.renders_of(item, size)
        made.append(edit_of(f"world:{number}", item.instruction, png(renders.source), png(renders.target), (None, None), item.kind))
    return made


def edit_of(name: str, instruction: str, source: bytes, edited: bytes, paths: tuple[str | None, str | None], task: str) -> Edit:
    """An edit as a reader returns it."""
    return Edit(name, name, "planted", source, paths[0], instruction, edited, paths[1], by_characters(instruction), task, "")


def encoded(image: Image.Image, form: str = "PNG", quality: int = 90) -> bytes:
    """An image file."""
    buffer = io.BytesIO()
    image.save(buffer, form, quality=quality)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    """RGB image of a file."""
    return decode(data)


def on_edited(change: Callable[[Image.Image], Image.Image], form: str = "JPEG", quality: int = 90) -> Defect:
    """Spoil the edited image."""
    return lambda edits: [replace(edit, edited=encoded(change(opened(edit.edited)), form, quality)) for edit in edits]


def on_both(change: Callable[[Image.Image], Image.Image], form: str = "JPEG", quality: int = 90) -> Defect:
    """Spoil both images."""
    return lambda edits: [
        replace(edit, **{role: encoded(change(opened(getattr(edit, role))), form, quality) for role in ("source", "edited")})
        for edit in edits
    ]


def copied(form: str, quality: int, scale: float = 1.0) -> Defect:
    """The edited image is the source, encoded again, perhaps at another size."""
    return lambda edits: [replace(edit, edited=encoded(scaled(opened(edit.source), scale), form, quality)) for edit in edits]


def asking(instructions: Sequence[str]) -> Defect:
    """Other instructions, one after the other."""
    return lambda edits: [
        replace(edits[number % len(edits)], instruction=text, language=by_characters(text)) for number, text in enumerate(instructions)
    ]


def swapped(with_names: bool) -> Defect:
    """Source and edited image exchanged, with the names of the files or without any."""
    return lambda edits: [
        replace(
            edit, source=edit.edited, edited=edit.source,
            source_path=edit.edited_path if with_names else None, edited_path=edit.source_path if with_names else None,
        )
        for edit in edits
    ]  # fmt: skip


def nameless(edits: Sequence[Edit]) -> list[Edit]:
    """The same without names of files."""
    return [replace(edit, source_path=None, edited_path=None) for edit in edits]


def scaled(image: Image.Image, factor: float, how: Image.Resampling = LANCZOS) -> Image.Image:
    """Another size."""
    return image if factor == 1 else image.resize((max(1, round(image.width * factor)), max(1, round(image.height * factor))), how)


def blown_up(factor: float, how: Image.Resampling) -> Callable[[Image.Image], Image.Image]:
    """Shrunk and enlarged again to its old size."""
    return lambda image: scaled(image, 1 / factor).resize(image.size, how)


def to_longest_side(side: int) -> Callable[[Image.Image], Image.Image]:
    """Shrunk to a longest side."""
    return lambda image: scaled(image, side / max(image.size))


def squeezed(image: Image.Image) -> Image.Image:
    """Three quarters of its width."""
    return image.resize((max(1, image.width * 3 // 4), image.height), LANCZOS)


def cropped(image: Image.Image) -> Image.Image:
    """The middle square; an image that is nearly square loses a fifth of its height instead."""
    side = min(image.size)
    height = side if max(image.size) > 1.15 * side else side * 4 // 5
    width = side
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def shifted_colours(amount: int) -> Callable[[Image.Image], Image.Image]:
    """Redder and less blue."""
    return lambda image: Image.fromarray(np.clip(np.asarray(image, np.int16) + np.array([amount, 0, -amount]), 0, 255).astype(np.uint8))


def gamma(value: float) -> Callable[[Image.Image], Image.Image]:
    """Other mid-tones."""
    return lambda image: image.point([round(255 * (level / 255) ** value) for level in range(256)] * 3)


def blurred(image: Image.Image) -> Image.Image:
    """As of a decoder that loses detail."""
    return image.filter(ImageFilter.GaussianBlur(3))


def moved(image: Image.Image) -> Image.Image:
    """The whole picture zoomed by 3 %, as of an editor that draws all of it anew."""
    width, height = image.size
    return image.resize((width, height), BICUBIC, box=(0.015 * width, 0.015 * height, 0.985 * width, 0.985 * height))


NOTHING = (
    "no change", "No changes needed.", "Keep the image as is", "leave it unchanged", "Do nothing", "...", "!!!", "🙂", "Same image.",
    "none", "Do not edit this picture", "please keep everything the same", "Don't change anything!", "N/A", "return the original image",
    "-", "No edit", "make no modifications to the photo", "Copy the image.", "Leave the photo alone", "不做任何修改", "保持不变",
    "无需修改", "It is perfect already", "Looks good to me", "I like it the way it is", "Nothing to do here",
    "just give me the same thing back",
)  # fmt: skip
"""The last five would need an understanding of the sentence."""
OTHER_SCRIPTS = (
    "把天空变成粉红色", "让她微笑", "Сделай небо розовым", "Удали собаку с фотографии", "空をピンク色にしてください", "犬を消して",
    "하늘을 분홍색으로 바꿔줘", "اجعل السماء وردية", "ทำให้ท้องฟ้าเป็นสีชมพู", "आसमान को गुलाबी करो", "Κάνε τον ουρανό ροζ",
    "将文本 'TRAIN' 替换为 'PLANE'",
)  # fmt: skip
LATIN_SCRIPT = ("Rends le ciel rose", "Mach den Himmel rosa", "Haz el cielo rosa", "Làm cho bầu trời màu hồng", "Zrób niebo różowe")

BROKEN = (
    "I'm sorry, but I can't help with editing this photo.", "I’m sorry, I cannot assist with that request.", "Sorry, but I can't do that.",
    "I cannot generate images of real people.", "As an AI language model, I do not edit pictures.",
    "I apologize, but this is not possible.",
    "Unfortunately, I am unable to process this image.", "We are unable to fulfil this request.", "抱歉，我无法编辑这张图片。",
    "作为一个人工智能，我不能这样做。", "My apologies, the image could not be loaded.", "I won't be able to remove the person.",
    "see https://example.org/edit?id=3", "make it look like www.example.com/cat.jpg", "data:image/png;base64,iVBORw0KGgo",
    "<p>Make the sky <b>pink</b></p>", "make the sky pink &amp; the sea green", "<|im_start|>user make it red<|im_end|>",
    "```json make it red```", "![edit](cat.png) make it red", '{"instruction": "make it red"}', "make it \\u7ea2",
    "make\x00 it red", "make it r\ufffdd", "\x1b[31mmake it red", "add a cat. " * 400,
)  # fmt: skip
"""Texts that are no instructions. They were written after the word lists of the gate's revision 2."""
LATER_BROKEN = (
    "I'm not going to be able to alter this photograph.", "Regrettably, that edit falls outside what I can do.",
    "Your request was declined by the safety system.", "Can't process: image too large",
    "Leider darf ich Bilder von echten Personen nicht bearbeiten.", "Diese Anfrage verstößt gegen die Richtlinien.",
    "Je regrette, cette demande ne peut pas être traitée.", "Desafortunadamente no me es posible editar esta foto.",
    "Non mi è possibile modificare questa immagine.", "Não tenho como ajudar com esse pedido.",
    "К сожалению, эта операция мне недоступна.", "ご要望の編集には対応できかねます。", "해당 이미지는 편집이 불가합니다.",
    "أعتذر، لا أستطيع تنفيذ هذا الطلب.", "您的请求违反了内容政策，无法处理。", "Üzgünüm, bu isteği yerine getiremem.",
    "gs://edits/0001/after.webp", "<<instruction_text>>", "[PLACEHOLDER]", "Edit: {edit_prompt}",
)  # fmt: skip
LATER_SOUND = (
    "I couldn't find my keys in this mess, clear the table.", "Sorry, wrong colour last time: use navy instead of black for the coat.",
    "We are not able to read the sign; enlarge its letters.", "I won't be wearing glasses anymore, take them off my face",
    "This image is not possible to read at night, brighten the street", "No people are needed here, just the empty beach",
    "Apologies for the blurry shot. Sharpen the face.", 'Write "404 not found / try again" on the screen', "Swap the mug/cup for a vase",
    "Make the note read: TODO: buy milk", "Leider ist das Bild zu dunkel, mach es heller.", "Tut mir leid für die Eile: entferne den Zaun.",
    "Je ne peux pas distinguer le visage, éclaircis-le.", "Lo siento por el desorden, quita la basura del suelo.",
    "Purtroppo il cielo è grigio, rendilo azzurro.", "Desculpe a foto torta, endireite o horizonte.", "Извините за качество, уберите шум.",
    "ごめんなさい、背景を海に変えてください。", "미안하지만 모자를 빨간색으로 바꿔 주세요.", "很遗憾天空太灰，换成晚霞。",
)  # fmt: skip
"""Both were written after the gate's rules had been frozen; 5 and 3 were caught. The rules were then changed with them."""
LAST_BROKEN = (
    "I'm afraid I have to turn this one down.", "Sorry! Editing pictures of minors is something I won't do.", "Request denied.",
    "I lack the tools needed to modify images.", "The picture failed to load, so nothing could be edited.",
    "Dabei kann ich dir leider nicht behilflich sein.", "Als KI-Assistent habe ich keinen Zugriff auf Bilder.",
    "Nous ne sommes pas autorisés à retoucher cette photo.", "Esta solicitud infringe nuestras normas.",
    "Mi scuso, ma questa modifica non è consentita.", "Peço desculpas, mas não consigo ver a imagem.",
    "Прошу прощения, я не умею редактировать фотографии.", "恐れ入りますが、この内容にはお応えできません。",
    "미안합니다. 저는 사진을 편집할 수 없습니다.", "لا يمكنني مساعدتك في تعديل هذه الصورة.", "抱歉，该图片涉及敏感内容，不支持编辑。",
    "Het spijt me, dat kan ik niet doen.", "file:///home/user/cat.png", "%(instruction)s", "user: make the sky red",
)  # fmt: skip
LAST_SOUND = (
    "I can't tell which one is the boss, give the left man a crown", "Unfortunately my thumb is in the shot, remove it.",
    "No image of the king should be on the coin", "I'm sorry to ask again: could the dress be green?",
    "We can't have two suns. Erase one.", "Put the words \"request denied\" on the stamp", "Not possible to see the cat; lift the shadows",
    "Add a speech bubble: I cannot help you!", "Change the label from 5ml/day to 10ml/day", "Let the robot say: as an AI, I refuse",
    "Leider kann ich das Preisschild nicht entfernen, mach du es bitte weg.", "Es tut mir leid, aber der Himmel soll doch blau sein.",
    "Désolée, je voulais dire : mets le chapeau en bleu.", "No puedo creer lo feo que es el sofá, cámbialo por uno rojo.",
    "Scusa, metti il gatto a destra.", "Não gosto do fundo, troque por uma praia.", "Не могу прочитать вывеску, сделай буквы крупнее.",
    "申し訳ないけど、空を夕焼けにして。", "얼굴이 안 보일 수 없게 밝게 해 줘", "我们没办法重拍，所以把路人去掉。",
)  # fmt: skip
"""Both were written after the rules of the gate's revision 3 were frozen, and measured once."""
ADJUSTMENTS = (
    "make it brighter", "darken the photo a little", "fix the white balance", "reduce the yellow tint", "increase the saturation",
    "make the colors pop", "warm up the tones", "give it a cooler look", "remove the haze", "lower the exposure by one stop",
    "lift the shadows", "bring down the highlights", "add some contrast", "make it black and white", "give the photo a vintage look",
    "color grade it like a thriller", "make the picture more vivid", "it is overexposed, please correct that", "give it a sepia tone",
    "fade the colours", "make it look like golden hour", "correct the colour cast", "more warmth please", "make the light softer",
    "it should look like it was taken at dusk", "turn down the saturation", "apply an HDR effect", "change the lighting to neon",
    "make everything more orange", "let it look gloomy",
)  # fmt: skip
"""Wishes for other light or colours of the whole picture, written after the word lists of the gate; the last two have none of its words."""


def with_edits_of(change: Defect, instructions: Sequence[str]) -> Defect:
    """Spoilt edits, one after the other, under other instructions."""
    return lambda edits: asking(instructions)(change(edits))


def pushed(across: int, down: int) -> Callable[[Image.Image], Image.Image]:
    """Moved to the right and down by pixels; the edge is repeated."""

    def change(image: Image.Image) -> Image.Image:
        pixels = np.asarray(image)
        padded = np.pad(pixels, ((down, 0), (across, 0), (0, 0)), mode="edge")
        return Image.fromarray(padded[: pixels.shape[0], : pixels.shape[1]])

    return change


def mirrored(image: Image.Image) -> Image.Image:
    """Left and right exchanged."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def of_source(change: Callable[[Image.Image], Image.Image]) -> Defect:
    """The edited image is made of the source."""
    return lambda edits: [replace(edit, edited=encoded(change(opened(edit.source)), "JPEG")) for edit in edits]


def painted(colour: tuple[int, int, int], left: float, top: float) -> Callable[[Image.Image], Image.Image]:
    """One colour to the right of and below a place, in shares of the sides."""

    def change(image: Image.Image) -> Image.Image:
        found = image.copy()
        found.paste(colour, (round(left * image.width), round(top * image.height), image.width, image.height))
        return found

    return change


def noisy(image: Image.Image) -> Image.Image:
    """All grey, with noise of 8 levels (standard deviation)."""
    noise = np.random.default_rng(0).normal(128, 8, (image.height, image.width, 3))
    return Image.fromarray(noise.clip(0, 255).astype(np.uint8))


def of_another_row(edits: Sequence[Edit]) -> list[Edit]:
    """Every edit with the edited image of the next one that has another source."""
    found = []
    for number, edit in enumerate(edits):
        others = [*edits[number + 1 :], *edits[:number]]
        found.append(replace(edit, edited=next(other.edited for other in others if other.source != edit.source)))
    return found


PLANTED: tuple[tuple[str, str, Defect], ...] = (
    ("size", "both shrunk to 96 pixels", on_both(to_longest_side(96))),
    ("aspect", "edit squeezed to three quarters of its width", on_edited(squeezed)),
    ("aspect", "edit cropped to a square, or by a fifth", on_edited(cropped)),
    ("unchanged", "copy, same bytes", lambda edits: [replace(edit, edited=edit.source) for edit in edits]),
    ("unchanged", "copy, JPEG quality 90", copied("JPEG", 90)),
    ("unchanged", "copy, JPEG quality 75", copied("JPEG", 75)),
    ("unchanged", "copy, JPEG quality 50", copied("JPEG", 50)),
    ("unchanged", "copy, WebP quality 80", copied("WEBP", 80)),
    ("unchanged", "copy at half size, JPEG quality 85", copied("JPEG", 85, 0.5)),
    ("unchanged", "source moved by a pixel, JPEG", of_source(pushed(1, 0))),
    ("unchanged", "source moved by 3 and 2 pixels, JPEG", of_source(pushed(3, 2))),
    ("unchanged", "source mirrored, JPEG", of_source(mirrored)),
    ("flat", "edit all white", on_edited(painted((255, 255, 255), 0, 0))),
    ("flat", "edit all grey", on_edited(painted((120, 124, 128), 0, 0))),
    ("flat", "edit all grey, with noise of 8 levels", on_edited(noisy)),
    ("flat", "right half of the edit white", on_edited(painted((255, 255, 255), 0.5, 0))),
    ("flat", "lower third of the edit black", on_edited(painted((0, 0, 0), 0, 0.667))),
    ("unrelated", "edited image of another row", of_another_row),
    ("broken_text", f"{len(BROKEN)} texts that are no instructions", asking(BROKEN)),
    ("broken_text", f"{len(LATER_BROKEN)} further ones, used for tuning", asking(LATER_BROKEN)),
    ("broken_text", f"no fault: {len(LATER_SOUND)} wishes, used for tuning", asking(LATER_SOUND)),
    ("broken_text", f"{len(LAST_BROKEN)} further ones, not used for tuning", asking(LAST_BROKEN)),
    ("broken_text", f"no fault: {len(LAST_SOUND)} wishes, not used for tuning", asking(LAST_SOUND)),
    ("upscaled", "edit enlarged twice, bicubic", on_edited(blown_up(2, BICUBIC))),
    ("upscaled", "edit enlarged twice, Lanczos", on_edited(blown_up(2, LANCZOS))),
    ("upscaled", "edit enlarged three times, bicubic", on_edited(blown_up(3, BICUBIC))),
    ("upscaled", "edit enlarged four times, bicubic", on_edited(blown_up(4, BICUBIC))),
    ("upscaled", "edit enlarged four times, Lanczos, JPEG 75", on_edited(blown_up(4, LANCZOS), quality=75)),
    ("swapped", "exchanged, with file names", swapped(with_names=True)),
    ("swapped", "exchanged, no file names", swapped(with_names=False)),
    ("drift", "edit redder by 4 levels", on_edited(shifted_colours(4))),
    ("drift", "edit redder by 8 levels", on_edited(shifted_colours(8))),
    ("drift", "edit with gamma 1.2", on_edited(gamma(1.2))),
    ("drift", f"no fault: gamma 1.2 asked for by {len(ADJUSTMENTS)} wishes", with_edits_of(on_edited(gamma(1.2)), ADJUSTMENTS)),
    ("redrawn", "edit blurred, sigma 3", on_edited(blurred)),
    ("redrawn", "edit zoomed by 3 %", on_edited(moved)),
    ("near_duplicate", "again, JPEG quality 85", on_both(lambda image: image, quality=85)),
    ("near_duplicate", "again, JPEG quality 50", on_both(lambda image: image, quality=50)),
    ("near_duplicate", "again, nine tenths of the size", on_both(lambda image: scaled(image, 0.9))),
    ("near_duplicate", "again, redder by 8 levels", on_both(shifted_colours(8))),
    ("language", "in another script", asking(OTHER_SCRIPTS)),
    ("language", "in another language, Latin letters", asking(LATIN_SCRIPT)),
    ("nothing_asked", "28 ways of asking for nothing", asking(NOTHING)),
)
"""Gate, what was planted, how."""
