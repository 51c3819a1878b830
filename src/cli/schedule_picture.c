// The picture of a timetable: a row a stage, a box an action, time to the right.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/schedule.h"
#include "trireme/base/file.h"

// In pixels. A box that is too narrow for its label goes without; its title has all of it.
enum {
  LEFT = 84,
  RIGHT = 110,
  TOP = 100,
  ROW = 30,
  GAP = 6,
  BOX_WIDTH = 26,
  MOST_WIDTH = 8000,
  LETTER = 7
};

typedef struct picture {
  FILE *out;
  const tri_cli_timetable *table;
  double scale; // pixels a second
  double width; // of all rows
} picture;

typedef struct colour {
  int red, green, blue;
} colour;

// Blue, green and yellow of a palette that stays apart for colour-blind eyes (Paul Tol's "bright");
// later chunks are paler.
static colour colour_of(const tri_cli_timetable *table, const tri_pipeline_action *action)
{
  static const colour colours[] = {{0x44, 0x77, 0xaa}, {0x22, 0x88, 0x33}, {0xcc, 0xbb, 0x44}};
  const int n = table->schedule->n_virtual;
  const double pale = n == 1 ? 0.0 : 0.65 * action->chunk / (n - 1);
  const colour *c = &colours[action->work == TRI_PIPELINE_FORWARD           ? 0
                             : action->work == TRI_PIPELINE_BACKWARD_WEIGHT ? 2
                                                                            : 1];
  return (colour){(int)(c->red + pale * (255 - c->red)), (int)(c->green + pale * (255 - c->green)),
                  (int)(c->blue + pale * (255 - c->blue))};
}

// Black on light boxes, white on dark ones (luminance after Rec. 709, without gamma).
static const char *ink_on(colour c)
{
  return 0.2126 * c.red + 0.7152 * c.green + 0.0722 * c.blue > 130 ? "#000" : "#fff";
}

static void draw_action(const picture *p, int s, int k, double y)
{
  const tri_pipeline_action *a = &p->table->schedule->stages[s].actions[k];
  const tri_pipeline_span span = p->table->timing->spans[s][k];
  const double x = LEFT + span.start * p->scale, width = (span.end - span.start) * p->scale;
  const colour c = colour_of(p->table, a);
  char label[32];
  const int length =
      snprintf(label, sizeof label, "%s%d", tri_cli_timetable_letter(a->work), a->microbatch);
  fprintf(p->out, "<g><title>stage %d: %s of micro-batch %d, chunk %d, %g to %g s, slot %d", s,
          tri_pipeline_work_name(a->work), a->microbatch, a->chunk, span.start, span.end, a->slot);
  if (a->weight_slot >= 0) fprintf(p->out, ", weight slot %d", a->weight_slot);
  fprintf(p->out,
          "</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"#%02x%02x%02x\" "
          "stroke=\"#fff\"/>",
          x, y, width, ROW, c.red, c.green, c.blue);
  if (length * LETTER + 2 <= width)
    fprintf(p->out, "<text x=\"%.2f\" y=\"%.1f\" fill=\"%s\" text-anchor=\"middle\">%s</text>",
            x + width / 2, y + ROW / 2 + 4, ink_on(c), label);
  fputs("</g>\n", p->out);
}

static void draw_stage(const picture *p, int s)
{
  const tri_pipeline_stage *stage = &p->table->schedule->stages[s];
  const double y = TOP + (double)s * (ROW + GAP);
  fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">stage %d</text>\n", LEFT - 8,
          y + ROW / 2 + 4, s);
  fprintf(p->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"#eee\"/>\n", LEFT,
          y, p->width, ROW);
  for (int k = 0; k < stage->n_actions; k++)
    draw_action(p, s, k, y);
  fprintf(p->out, "<text x=\"%.2f\" y=\"%.1f\">keeps %d", LEFT + p->width + 8, y + ROW / 2 + 4,
          stage->peak);
  if (stage->weight_peak > 0) fprintf(p->out, " + %d", stage->weight_peak);
  fputs("</text>\n", p->out);
}

// A step of 1, 2 or 5 times a power of ten, wide enough for its number.
static double tick_seconds(const picture *p)
{
  const double least = 60 / p->scale, power = pow(10, floor(log10(least)));
  return least <= power       ? power
         : least <= 2 * power ? 2 * power
         : least <= 5 * power ? 5 * power
                              : 10 * power;
}

static void draw_axis(const picture *p)
{
  const double y = TOP + (double)p->table->schedule->n_stages * (ROW + GAP);
  const double step = tick_seconds(p);
  const int n = (int)(p->width / p->scale / step * (1 + 1e-9));
  fprintf(p->out, "<path d=\"M%d %.1fH%.2f\" stroke=\"#000\"/>\n", LEFT, y, LEFT + p->width);
  for (int i = 0; i <= n; i++) {
    const double x = LEFT + i * step * p->scale;
    fprintf(p->out,
            "<path d=\"M%.2f %.1fv5\" stroke=\"#000\"/><text x=\"%.2f\" y=\"%.1f\" "
            "text-anchor=\"middle\">%g</text>\n",
            x, y, x, y + 18, i * step);
  }
  fprintf(p->out, "<text x=\"%.2f\" y=\"%.1f\">seconds</text>\n", LEFT + p->width + 8, y + 18);
}

static void draw_title(const picture *p)
{
  const tri_cli_timetable *t = p->table;
  const bool chunks = t->schedule->n_virtual > 1;
  const bool halves = t->schedule->kind == TRI_PIPELINE_ZB_H1;
  fprintf(p->out, "<text x=\"8\" y=\"22\" font-size=\"15\" font-weight=\"bold\">%s: %d stage%s, ",
          tri_pipeline_kind_name(t->schedule->kind), t->schedule->n_stages,
          t->schedule->n_stages == 1 ? "" : "s");
  if (chunks) fprintf(p->out, "%d chunks each, ", t->schedule->n_virtual);
  fprintf(p->out, "%d micro-batch%s</text>\n", t->schedule->n_microbatches,
          t->schedule->n_microbatches == 1 ? "" : "es");
  fprintf(
      p->out,
      "<text x=\"8\" y=\"42\">%g s, bubble %.1f %% of the work; a chunk takes %g s forward, %g + "
      "%g s backward, a transfer %g s</text>\n",
      t->timing->makespan, 100 * t->timing->bubble, t->cost.forward, t->cost.backward_input,
      t->cost.backward_weight, t->cost.transfer);
  fprintf(p->out, "<text x=\"8\" y=\"62\">F forward, B backward%s, and the micro-batch%s</text>\n",
          halves ? " (input), W backward (weight)" : "", chunks ? "; later chunks are paler" : "");
  fprintf(p->out,
          "<text x=\"8\" y=\"82\">keeps: the most activations alive at once, in "
          "micro-batches of a chunk%s</text>\n",
          halves ? " + backwards between their halves" : "");
}

static void draw(const picture *p)
{
  // The lines of the title want a width of their own.
  const double width = LEFT + p->width + RIGHT, least = 720;
  const double height = TOP + (double)p->table->schedule->n_stages * (ROW + GAP) + 30;
  fprintf(p->out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
          "font-family=\"sans-serif\" font-size=\"12\">\n",
          width > least ? width : least, height);
  fputs("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", p->out);
  draw_title(p);
  for (int s = 0; s < p->table->schedule->n_stages; s++)
    draw_stage(p, s);
  draw_axis(p);
  fputs("</svg>\n", p->out);
}

tri_status tri_cli_timetable_svg(const tri_cli_timetable *table, const char *path)
{
  tri_status status = TRI_OK;
  char *text = NULL;
  size_t size = 0;
  const double unit = tri_cli_timetable_unit(table);
  TRI_CHECK(unit > 0, TRI_ERR_USAGE,
            "no action takes any time, so there is nothing to draw: give "
            "--forward or a half of backward more than 0");
  picture p = {.table = table, .scale = BOX_WIDTH / unit};
  if (table->timing->makespan * p.scale > MOST_WIDTH)
    p.scale = MOST_WIDTH / table->timing->makespan;
  p.width = table->timing->makespan * p.scale;
  p.out = open_memstream(&text, &size);
  TRI_CHECK(p.out != NULL, TRI_ERR_MEMORY, "no memory for the picture");
  draw(&p);
  const bool whole = ferror(p.out) == 0;
  TRI_CHECK_GOTO(done, fclose(p.out) == 0 && whole, TRI_ERR_MEMORY,
                 "no memory for the picture of %zu bytes", size);
  TRI_CALL_GOTO(done, tri_file_write_atomic(path, text, size));
done:
  free(text);
  return status;
}
