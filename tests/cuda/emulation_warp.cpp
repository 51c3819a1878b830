// Warp collectives: the lanes named by a mask meet, the last to arrive computes every lane's
// result.
//
// Only __syncwarp orders memory; the others exchange registers.
#include "cuda/emulation_internal.h"

// Lanes of one warp can be in several collectives at a time, with disjoint masks.
enum { MAX_MEETINGS = 4 };
static struct emu_meeting meetings[EMU_MAX_WARPS][MAX_MEETINGS];
static char warp_sync[EMU_MAX_WARPS][64]; // addresses for ThreadSanitizer

void emu_warp_start_block(void)
{
  for (auto &of_warp : meetings)
    for (emu_meeting &meeting : of_warp)
      meeting.arrived = 0;
}

void emu_warp_thread_exited(const emu_fiber *fiber)
{
  for (const emu_meeting &meeting : meetings[fiber->warp])
    if (meeting.arrived != 0 && (meeting.mask >> fiber->lane & 1) != 0)
      emu_fail(meeting.site, "warp collective: mask 0x%08x names lane %d, which has exited",
               meeting.mask, fiber->lane);
}

static void give(struct emu_meeting *meeting, int lane, uint64_t result)
{
  memcpy(meeting->lanes[lane]->result, &result, sizeof result);
}

static void combine_shuffle(struct emu_meeting *meeting)
{
  for (int lane = 0; lane < EMU_WARP; lane++) {
    if ((meeting->mask >> lane & 1) == 0) continue;
    const int source = meeting->aux[lane];
    const bool present = (meeting->mask >> source & 1) != 0; // else undefined: not-a-number
    give(meeting, lane, present ? meeting->values[source] : ~UINT64_C(0));
  }
}

static void combine_ballot(struct emu_meeting *meeting)
{
  uint64_t votes = 0;
  for (int lane = 0; lane < EMU_WARP; lane++)
    if ((meeting->mask >> lane & 1) != 0 && meeting->aux[lane] != 0) votes |= UINT64_C(1) << lane;
  for (int lane = 0; lane < EMU_WARP; lane++)
    if ((meeting->mask >> lane & 1) != 0) give(meeting, lane, votes);
}

static uint32_t reduce_two(enum emu_collective_kind kind, uint32_t a, uint32_t b)
{
  const int32_t signed_a = static_cast<int32_t>(a), signed_b = static_cast<int32_t>(b);
  switch (kind) {
  case EMU_REDUCE_ADD: return a + b;
  case EMU_REDUCE_MIN: return signed_b < signed_a ? b : a;
  case EMU_REDUCE_MAX: return signed_b > signed_a ? b : a;
  case EMU_REDUCE_UNSIGNED_MIN: return b < a ? b : a;
  case EMU_REDUCE_UNSIGNED_MAX: return b > a ? b : a;
  case EMU_REDUCE_AND: return a & b;
  case EMU_REDUCE_OR: return a | b;
  default: return a ^ b;
  }
}

static void combine_reduction(struct emu_meeting *meeting)
{
  const int first = __builtin_ctz(meeting->mask);
  uint32_t result = static_cast<uint32_t>(meeting->values[first]);
  for (int lane = first + 1; lane < EMU_WARP; lane++)
    if ((meeting->mask >> lane & 1) != 0)
      result = reduce_two(meeting->kind, result, static_cast<uint32_t>(meeting->values[lane]));
  for (int lane = 0; lane < EMU_WARP; lane++)
    if ((meeting->mask >> lane & 1) != 0) give(meeting, lane, result);
}

static void combine(struct emu_meeting *meeting)
{
  switch (meeting->kind) {
  case EMU_SYNC: break;
  case EMU_SHUFFLE: combine_shuffle(meeting); break;
  case EMU_BALLOT: combine_ballot(meeting); break;
  case EMU_MMA_F16:
  case EMU_MMA_BF16: emu_combine_mma(meeting); break;
  case EMU_LDMATRIX_X2:
  case EMU_LDMATRIX_X2_TRANS:
  case EMU_LDMATRIX_X4:
  case EMU_LDMATRIX_X4_TRANS: emu_combine_ldmatrix(meeting); break;
  default: combine_reduction(meeting); break;
  }
}

// All lanes named must exist, and the first to come finds none of them gone.
static void check_mask(unsigned mask, struct emu_site site)
{
  const emu_fiber *me = static_cast<const emu_fiber *>(emu_current);
  const int n_lanes = emu_block.n_threads - me->warp * EMU_WARP;
  if ((mask >> me->lane & 1) == 0)
    emu_fail(site, "warp collective: mask 0x%08x does not name the calling lane %d", mask,
             me->lane);
  if (n_lanes < EMU_WARP && mask >> n_lanes != 0)
    emu_fail(site, "warp collective: mask 0x%08x names lanes that do not exist: the warp has %d",
             mask, n_lanes);
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    if (emu_block.threads[me->warp * EMU_WARP + lane]->state == EMU_EXITED)
      emu_fail(site, "warp collective: mask 0x%08x names lane %d, which has exited", mask, lane);
  }
}

// The open meeting of these lanes, or a new one.
static struct emu_meeting *find_meeting(enum emu_collective_kind kind, unsigned mask,
                                        struct emu_site site)
{
  const int warp = emu_current->warp;
  emu_meeting *unused = nullptr;
  for (emu_meeting &meeting : meetings[warp]) {
    if (meeting.arrived == 0) {
      unused = &meeting;
      continue;
    }
    if ((meeting.mask & mask) == 0) continue;
    if (meeting.mask == mask && meeting.kind == kind && meeting.site.line == site.line &&
        strcmp(meeting.site.file, site.file) == 0)
      return &meeting;
    emu_fail(site,
             "divergent warp collective: mask 0x%08x here, lanes of mask 0x%08x wait at %s:%d",
             mask, meeting.mask, meeting.site.file, meeting.site.line);
  }
  if (unused == nullptr)
    emu_fail(site, "more than %d collectives of one warp at a time", MAX_MEETINGS);
  check_mask(mask, site);
  unused->kind = kind;
  unused->mask = mask;
  unused->site = site;
  unused->lanes = &emu_block.threads[warp * EMU_WARP];
  return unused;
}

extern "C" void emu_collective(enum emu_collective_kind kind, unsigned mask, uint64_t value,
                               int aux, const struct emu_mma_operands *operands,
                               struct emu_site site)
{
  const emu_fiber *me = static_cast<const emu_fiber *>(emu_current);
  if ((mask >> me->lane & 1) == 0) check_mask(mask, site);
  emu_meeting *meeting = find_meeting(kind, mask, site);
  meeting->values[me->lane] = value;
  meeting->aux[me->lane] = aux;
  if (operands != nullptr) meeting->operands[me->lane] = *operands;
  meeting->arrived |= 1u << me->lane;
  char *sync = warp_sync[me->warp];
  if (kind == EMU_SYNC) EMU_RELEASE(sync);
  if (meeting->arrived == mask) {
    emu_counted.collectives++;
    combine(meeting);
    meeting->arrived = 0;
    for (unsigned rest = mask & ~(1u << me->lane); rest != 0; rest &= rest - 1)
      emu_make_ready(meeting->lanes[__builtin_ctz(rest)]);
  } else {
    emu_wait(EMU_AT_COLLECTIVE, site);
  }
  if (kind == EMU_SYNC) EMU_ACQUIRE(sync);
}
