// Pictures of a run, drawn by gnuplot from its metrics. Local.
#pragma once

#include "trireme/base/status.h"

// Draws RUN/loss.svg. TRI_ERR_UNSUPPORTED when there is no gnuplot on PATH (the message says how to
// draw later).
TRI_MUST_CHECK tri_status tri_report_loss_svg(const char *run_folder);

// Writes RUN/report.html: one self-contained page (inline SVG) with loss, throughput and time-split
// curves, the header facts and the resolved job file.
TRI_MUST_CHECK tri_status tri_report_html(const char *run_folder);
