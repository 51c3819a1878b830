#include "data/utf8.h"

#include <string.h>

// The bytes of the valid character at the head of `text`, 0 when there is none.
static size_t character_bytes(const uint8_t *text, size_t size_bytes)
{
  const uint8_t head = text[0];
  if (head < 0x80) return 1;
  const size_t n = head >= 0xc2 && head <= 0xdf   ? 2
                   : head >= 0xe0 && head <= 0xef ? 3
                   : head >= 0xf0 && head <= 0xf4 ? 4
                                                  : 0;
  if (n == 0 || n > size_bytes) return 0;
  // The second byte excludes overlong forms, surrogates and what is above U+10FFFF.
  const uint8_t low = head == 0xe0 ? 0xa0 : head == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = head == 0xed ? 0x9f : head == 0xf4 ? 0x8f : 0xbf;
  if (text[1] < low || text[1] > high) return 0;
  for (size_t i = 2; i < n; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return n;
}

size_t tri_utf8_valid_bytes(const uint8_t *text, size_t size_bytes)
{
  size_t at = 0;
  while (at < size_bytes) {
    uint64_t eight;
    if (size_bytes - at >= sizeof eight) {
      memcpy(&eight, text + at, sizeof eight);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t n = character_bytes(text + at, size_bytes - at);
    if (n == 0) break;
    at += n;
  }
  return at;
}
