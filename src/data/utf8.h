// UTF-8 as PCRE2 wants it. Local.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The length of the longest head of `text` that is valid UTF-8 (Unicode 15, table 3-7: no overlong
// forms, no surrogates, nothing above U+10FFFF).
size_t tri_utf8_valid_bytes(const uint8_t *text, size_t size_bytes);
