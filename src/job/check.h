// Values one by one, and the rules between them. Private to job.
#pragma once

#include "job/document.h"

// Checks every value against its type and range, puts defaults where none is given (a derived one
// waits as 0 or ""), and turns `auto`, yes and no, and the words of enums into what the schema
// loads. TRI_ERR_CONFIG names the place, the key, what was wanted and what was found.
TRI_MUST_CHECK tri_status tri_job_check_values(job_document *document);

// Fills what depends on other keys: name, run.dir, checkpoint.dir, the shape of a published model,
// train.context, train.min_lr.
TRI_MUST_CHECK tri_status tri_job_derive(const job_document *document, tri_job *job);

// The rules between values.
TRI_MUST_CHECK tri_status tri_job_check_rules(const job_document *document, const tri_job *job);
