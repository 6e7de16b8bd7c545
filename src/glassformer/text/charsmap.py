"""How SentencePiece writes a text before it cuts it, exactly."""

import struct


class Charsmap:
    """SentencePiece's own normalisation: at each place the longest known stretch of text gives way to another.

    The library's `Precompiled` takes the shortest one, which loses marks of decomposed letters, and panics on texts
    in which two characters that vanish meet.
    """

    def __init__(self, blob: bytes) -> None:
        size = int.from_bytes(blob[:4], "little")
        self._units = struct.unpack(f"<{size // 4}I", blob[4 : 4 + size])  # a trie, as Darts-clone writes it
        self._texts = blob[4 + size :]
        self._keeps_ascii = not self._knows_of(_offset(self._units[0]), range(0x20, 0x7F))

    def __call__(self, text: str) -> str:
        """Return the text as the model reads it."""
        if self._keeps_ascii and text.isascii() and text.isprintable():
            return text
        raw, out, place = text.encode("utf-8"), [], 0
        while place < len(raw):
            length, new = self._longest(raw, place)
            out.append(new)
            place += length
        return "".join(out)

    def _knows_of(self, node: int, alphabet: range) -> bool:
        """Whether some stretch of text that is known holds bytes of the alphabet only."""
        for byte in alphabet:
            child = node ^ byte
            if child < len(self._units) and self._units[child] & 0x800000FF == byte:
                has_value = self._units[child] >> 8 & 1
                if has_value or self._knows_of(child ^ _offset(self._units[child]), alphabet):
                    return True
        return False

    def _longest(self, raw: bytes, place: int) -> tuple[int, str]:
        """Return how many bytes stand at a place as the longest stretch that is known, and what replaces them."""
        units = self._units
        node = _offset(units[0])
        found: tuple[int, int] | None = None
        for length, byte in enumerate(memoryview(raw)[place:], start=1):
            node ^= byte
            if node >= len(units) or units[node] & 0x800000FF != byte:
                break
            has_value = units[node] >> 8 & 1
            node ^= _offset(units[node])
            if has_value:
                found = length, units[node] & 0x7FFFFFFF
        if found is None:
            length = 1 if raw[place] < 0x80 else 2 if raw[place] < 0xE0 else 3 if raw[place] < 0xF0 else 4
            return length, raw[place : place + length].decode()
        length, start = found
        return length, self._texts[start : self._texts.index(0, start)].decode()


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)
