// Counts instructions in the machine code of each kernel of a cubin: sass_count FILE
//
// One line a kernel: its (mangled) name, instructions, HMMA, LDSM, STL, LDL. A cubin is a 64-bit
// ELF file with a section .text.NAME for each kernel; an instruction has 16 bytes and its opcode
// in the low 12 bits (sm_70 and up). The opcodes were read off kernels whose ptxas report was
// known, for sm_80, sm_90 and sm_100: HMMA is the tensor core's bf16 and f16 product, LDSM is
// ldmatrix, STL and LDL go to local memory.
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INSTRUCTION_BYTES = 16, N_OPCODES = 4, MAX_FILE = 1 << 28 };
static const uint64_t OPCODES[N_OPCODES] = {0x23c, 0x83b, 0x387, 0x983};

typedef struct image {
  unsigned char *bytes;
  size_t size;
} image;

static int read_file(const char *path, image *out)
{
  FILE *file = fopen(path, "rb");
  if (file == NULL) return -1;
  out->bytes = malloc(MAX_FILE);
  out->size = out->bytes == NULL ? 0 : fread(out->bytes, 1, MAX_FILE, file);
  const int failed = out->size == 0 || out->size == MAX_FILE || ferror(file);
  fclose(file);
  return failed ? -1 : 0;
}

static int is_inside(const image *it, uint64_t offset, uint64_t size)
{
  return offset <= it->size && size <= it->size - offset;
}

static void count(const char *name, const unsigned char *code, uint64_t size)
{
  long counts[N_OPCODES] = {0};
  for (uint64_t at = 0; at + INSTRUCTION_BYTES <= size; at += INSTRUCTION_BYTES) {
    uint64_t word;
    memcpy(&word, code + at, sizeof word);
    for (int k = 0; k < N_OPCODES; k++)
      counts[k] += (word & 0xfff) == OPCODES[k];
  }
  printf("%s %llu", name, (unsigned long long)(size / INSTRUCTION_BYTES));
  for (int k = 0; k < N_OPCODES; k++)
    printf(" %ld", counts[k]);
  printf("\n");
}

// The sections by way of copies: the file's bytes need no alignment. The number of kernels, -1 when
// the file is damaged.
static int count_all(const image *it)
{
  Elf64_Ehdr header;
  Elf64_Shdr section, names;
  if (!is_inside(it, 0, sizeof header)) return -1;
  memcpy(&header, it->bytes, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_shstrndx >= header.e_shnum ||
      !is_inside(it, header.e_shoff, (uint64_t)header.e_shnum * sizeof section))
    return -1;
  const unsigned char *sections = it->bytes + header.e_shoff;
  memcpy(&names, sections + header.e_shstrndx * sizeof names, sizeof names);
  if (!is_inside(it, names.sh_offset, names.sh_size) || names.sh_size == 0 ||
      it->bytes[names.sh_offset + names.sh_size - 1] != 0)
    return -1;

  static const char prefix[] = ".text.";
  int n_kernels = 0;
  for (int k = 0; k < header.e_shnum; k++) {
    memcpy(&section, sections + (size_t)k * sizeof section, sizeof section);
    if (section.sh_name >= names.sh_size) return -1;
    const char *name = (const char *)it->bytes + names.sh_offset + section.sh_name;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
    if (!is_inside(it, section.sh_offset, section.sh_size)) return -1;
    count(name + sizeof prefix - 1, it->bytes + section.sh_offset, section.sh_size);
    n_kernels++;
  }
  return n_kernels;
}

int main(int argc, char **argv)
{
  image it = {0};
  if (argc != 2 || read_file(argv[1], &it) != 0) {
    fprintf(stderr, "sass_count: cannot read %s\n", argc == 2 ? argv[1] : "nothing: name a cubin");
    return 1;
  }
  const int n_kernels = count_all(&it);
  free(it.bytes);
  if (n_kernels > 0) return 0;
  fprintf(stderr, "sass_count: %s is not a cubin with kernels\n", argv[1]);
  return 1;
}
