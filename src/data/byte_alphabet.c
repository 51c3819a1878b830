#include "data/byte_alphabet.h"

static bool stands_for_itself(int code)
{
  return (code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) ||
         (code >= 0xae && code <= 0xff);
}

// The bytes that do not are 0x00 to 0x20, 0x7f to 0xa0 and 0xad.
static int code_of_byte(uint8_t byte)
{
  if (stands_for_itself(byte)) return byte;
  if (byte <= 0x20) return 0x100 + byte;
  return byte == 0xad ? 0x143 : 0x121 + (byte - 0x7f);
}

static int byte_of_code(int code)
{
  if (stands_for_itself(code)) return code;
  if (code >= 0x100 && code <= 0x120) return code - 0x100;
  if (code >= 0x121 && code <= 0x142) return code - 0x121 + 0x7f;
  return code == 0x143 ? 0xad : -1;
}

int tri_byte_alphabet_character(uint8_t byte, char out[2])
{
  const int code = code_of_byte(byte);
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  out[0] = (char)(0xc0 | code >> 6);
  out[1] = (char)(0x80 | (code & 0x3f));
  return 2;
}

bool tri_byte_alphabet_bytes(const char *text, size_t size_bytes, uint8_t *out, size_t *n_out)
{
  const uint8_t *next = (const uint8_t *)text;
  size_t n = 0;
  for (size_t i = 0; i < size_bytes; i++) {
    int code = next[i];
    if (code >= 0x80) {
      if ((code & 0xe0) != 0xc0 || i + 1 == size_bytes) return false;
      code = (code & 0x1f) << 6 | (next[++i] & 0x3f);
    }
    const int byte = byte_of_code(code);
    if (byte < 0) return false;
    out[n++] = (uint8_t)byte;
  }
  *n_out = n;
  return true;
}
