// The printable alphabet in which byte-level vocabularies are written: every byte is one character
// (Radford et al. 2019, encoder.py, bytes_to_unicode). Bytes that print in Latin-1 stand for
// themselves, the other 68 are U+0100 to U+0143 in their order. Local.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The character of a byte in UTF-8: 1 or 2 bytes, their number is returned.
int tri_byte_alphabet_character(uint8_t byte, char out[2]);

// The bytes that a text in the alphabet stands for, at most `size_bytes` of them. False, with
// nothing said about *out, when a character is not of the alphabet.
bool tri_byte_alphabet_bytes(const char *text, size_t size_bytes, uint8_t *out, size_t *n_out);
